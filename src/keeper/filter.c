#include "filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/btrfs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

/* The newest call this table was read against (mseal). Later ones do not exist in a sandbox. */
enum { NEWEST_CALL = 462, PROGRAM_MAX = 2048 };

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "name this architecture's audit constant"
#endif

#define CALL(name) SCMP_SYS(name)

static const struct refused_call {
	int call;
	int error;
	const char *reason;
} refused_calls[] = {
	{ CALL(open_by_handle_at), EPERM, "opens files by number, past every path" },
	{ CALL(init_module), EPERM, "kernel code" },
	{ CALL(finit_module), EPERM, "kernel code" },
	{ CALL(delete_module), EPERM, "kernel code" },
	{ CALL(kexec_load), EPERM, "replaces the kernel" },
	{ CALL(kexec_file_load), EPERM, "replaces the kernel" },
	{ CALL(bpf), EPERM, "a verifier with a long record of faults" },
	{ CALL(perf_event_open), EPERM, "observes the host" },
	{ CALL(userfaultfd), EPERM, "widens races in the kernel" },
	{ CALL(add_key), EPERM, "keyrings are not namespaced" },
	{ CALL(request_key), EPERM, "keyrings are not namespaced" },
	{ CALL(keyctl), EPERM, "keyrings are not namespaced" },
	{ CALL(io_uring_setup), ENOSYS, "acts past this filter" },
	{ CALL(io_uring_enter), ENOSYS, "acts past this filter" },
	{ CALL(io_uring_register), ENOSYS, "acts past this filter" },
	{ CALL(swapon), EPERM, "the host's memory" },
	{ CALL(swapoff), EPERM, "the host's memory" },
	{ CALL(reboot), EPERM, "ends the sandbox behind the agent's back" },
	{ CALL(acct), EPERM, "the host's accounting" },
	{ CALL(settimeofday), EPERM, "the host's clock" },
	{ CALL(clock_settime), EPERM, "the host's clock" },
	{ CALL(lookup_dcookie), EPERM, "profiles the host" },
	{ CALL(quotactl), EPERM, "the pool's quotas" },
	{ CALL(quotactl_fd), EPERM, "the pool's quotas" },
	{ CALL(iopl), EPERM, "the host's ports" },
	{ CALL(ioperm), EPERM, "the host's ports" },
	{ CALL(vhangup), EPERM, "the host's terminals" },
	{ CALL(move_pages), EPERM, "the host's memory layout" },
	{ CALL(mbind), EPERM, "the host's memory layout" },
	{ CALL(migrate_pages), EPERM, "the host's memory layout" },
};

static const struct refused_ioctl {
	unsigned long request;
	const char *reason;
} refused_ioctls[] = {
	{ BTRFS_IOC_SUBVOL_CREATE, "a nested subvolume escapes limit and snapshot" },
	{ BTRFS_IOC_SUBVOL_CREATE_V2, "a nested subvolume escapes limit and snapshot" },
	{ BTRFS_IOC_SNAP_CREATE, "a nested subvolume escapes limit and snapshot" },
	{ BTRFS_IOC_SNAP_CREATE_V2, "a nested subvolume escapes limit and snapshot" },
	{ BTRFS_IOC_SNAP_DESTROY, "deletes subvolumes" },
	{ BTRFS_IOC_SNAP_DESTROY_V2, "deletes subvolumes" },
	{ BTRFS_IOC_DEFAULT_SUBVOL, "changes what the pool's mount shows" },
	{ BTRFS_IOC_SYNC, "makes the whole pool wait" },
	{ BTRFS_IOC_START_SYNC, "makes the whole pool wait" },
	{ BTRFS_IOC_WAIT_SYNC, "makes the whole pool wait" },
	{ BTRFS_IOC_DEV_INFO, "tells of the host's devices" },
	{ BTRFS_IOC_FS_INFO, "tells of the pool" },
	{ BTRFS_IOC_SPACE_INFO, "tells of the pool" },
	{ BTRFS_IOC_GET_SUBVOL_INFO, "tells of the pool" },
	{ BTRFS_IOC_GET_SUBVOL_ROOTREF, "tells of the pool" },
	{ TIOCSTI, "types into another program's terminal" },
	{ TIOCLINUX, "types into the console" },
};

static const int allowed_families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET };
enum { NEWEST_FAMILY_ROW = 17 }; /* AF_PACKET: every later one is refused by one comparison */

static struct sock_filter program[PROGRAM_MAX];
static struct sock_fprog loaded = { .filter = program };

static int add_families(scmp_filter_ctx ctx, int call)
{
	int r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1,
				 SCMP_A0(SCMP_CMP_GT, NEWEST_FAMILY_ROW));

	for (unsigned family = 0; !r && family <= NEWEST_FAMILY_ROW; family++) {
		bool allowed = false;

		for (unsigned i = 0; i < ARRAY_SIZE(allowed_families); i++)
			allowed = allowed || (int)family == allowed_families[i];
		if (!allowed)
			r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1,
					     SCMP_A0(SCMP_CMP_EQ, family));
	}
	return r;
}

static int add_rules(scmp_filter_ctx ctx)
{
	int r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	if (!r)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (unsigned i = 0; !r && i < ARRAY_SIZE(refused_calls); i++) {
		/* negative: not a call of this architecture */
		if (refused_calls[i].call >= 0)
			r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(refused_calls[i].error),
					     refused_calls[i].call, 0);
	}
	for (unsigned i = 0; !r && i < ARRAY_SIZE(refused_ioctls); i++)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
			SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, refused_ioctls[i].request));
	if (!r)
		r = add_families(ctx, SCMP_SYS(socket));
	if (!r)
		r = add_families(ctx, SCMP_SYS(socketpair));
	return r;
}

/* Before the table's program: a native call beyond the newest one known does not exist. */
static unsigned add_prologue(void)
{
	const struct sock_filter prologue[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 2, 0), /* x32: a foreign ABI */
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};

	memcpy(program, prologue, sizeof(prologue));
	return ARRAY_SIZE(prologue);
}

int filter_init(struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	_cleanup_close_ int fd = memfd_create("filter", MFD_CLOEXEC);
	unsigned first = add_prologue();
	ssize_t n = -1;
	int r;

	if (!ctx || fd < 0) {
		seccomp_release(ctx);
		return err_set(e, ENOMEM, "make the system call filter: %m");
	}
	r = add_rules(ctx);
	if (!r)
		r = seccomp_export_bpf(ctx, fd);
	seccomp_release(ctx);
	if (r < 0)
		return err_set(e, r, "compile the system call filter: %m");
	if (lseek(fd, 0, SEEK_SET) == 0)
		n = read_full(fd, program + first, sizeof(program) - first * sizeof(*program));
	if (n <= 0 || (size_t)n % sizeof(*program) || read(fd, &r, 1) != 0)
		return err_set(e, E2BIG, "read the system call filter back");
	loaded.len = (unsigned short)(first + (size_t)n / sizeof(*program));
	return 0;
}

int filter_load(void)
{
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &loaded) < 0 ? -errno : 0;
}
