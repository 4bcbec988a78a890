/*
 * limit LAYER DIR [COUNT]: the bare limit. What any system must do to run one command in a new
 * machine with a disk of its own, and nothing more: no limits, no network link, no masks, no agent.
 *
 * One round: a subvolume in DIR (on btrfs), an overlay of it on LAYER with ids mapped into a new
 * user namespace, new mount, pid, network, ipc, uts and cgroup namespaces, the overlay as root,
 * /proc, /bin/true; then everything goes. Prints milliseconds until the command has ended and until
 * all is gone. Without COUNT: one round for each byte on standard input, answered by a line of two
 * numbers in nanoseconds, so that a caller can put other measurements in between.
 *
 * Run by bench.py, as root.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/btrfs.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

enum { ID_FIRST = 0x3ff00000, ID_COUNT = 65536, COUNT_MAX = 100000 };

struct round {
	uint64_t run_ns, whole_ns;
};

static int layer_fd, disks_fd;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void check(long result, const char *what)
{
	if (result < 0)
		die(what);
}

static void subvolume(unsigned long request, const char *name)
{
	struct btrfs_ioctl_vol_args args = { 0 };

	str_copy(args.name, sizeof(args.name), name);
	check(ioctl(disks_fd, request, &args), "subvolume");
}

/* The command's process: told to go on once its root is mounted. */
static _Noreturn void run_inside(int go)
{
	char *argv[] = { (char[]){ "true" }, NULL }, *envp[] = { NULL };
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	check(setgroups(0, NULL), "setgroups");
	check(setresgid(0, 0, 0), "setresgid");
	check(setresuid(0, 0, 0), "setresuid");
	check(unshare(CLONE_NEWNS), "unshare");
	check(mount("m", "m", NULL, MS_BIND, NULL), "bind the root");
	check(chdir("m"), "enter the root");
	/* allowed only while the host's is in sight */
	check(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
	check(syscall(SYS_pivot_root, ".", "."), "pivot_root");
	check(umount2(".", MNT_DETACH), "let the host's root go");
	execve("/bin/true", argv, envp);
	die("/bin/true");
}

static void write_map(pid_t pid, const char *file)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	snprintf(text, sizeof(text), "0 %d %d\n", ID_FIRST, ID_COUNT);
	check(write_text_at(AT_FDCWD, path, text), path);
}

static void attach_mapped(int dir, const char *path, const char *at, int userns)
{
	_cleanup_close_ int tree = (int)syscall(
		SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_IDMAP,
		.attr_clr = MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID,
		.userns_fd = (uint64_t)userns,
	};

	check(tree, "open_tree");
	check(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)), "idmap");
	check(syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH), "attach");
}

/* Leaving file system id 0 took the file capabilities away. */
static void raise_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	check(syscall(SYS_capget, &head, caps), "capget");
	for (unsigned i = 0; i < 2; i++)
		caps[i].effective = caps[i].permitted;
	check(syscall(SYS_capset, &head, caps), "capset");
}

static void mount_root(const char *disk, int userns)
{
	attach_mapped(layer_fd, "", "l", userns);
	attach_mapped(disks_fd, disk, "u", userns);
	/* the overlay acts on its layers with the ids it was mounted with */
	setfsgid(ID_FIRST);
	setfsuid(ID_FIRST);
	raise_capabilities();
	check(mount("overlay", "m", "overlay", 0, "lowerdir=l,upperdir=u/upper,workdir=u/work"),
	      "overlay");
	setfsuid(0);
	setfsgid(0);
}

static pid_t make_process(int go)
{
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
			 CLONE_NEWCGROUP,
		.exit_signal = SIGCHLD,
	};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	check(pid, "clone3");
	if (!pid)
		run_inside(go);
	return pid;
}

static void make_disk(const char *disk)
{
	char path[64];

	subvolume(BTRFS_IOC_SUBVOL_CREATE, disk);
	snprintf(path, sizeof(path), "%s/upper", disk);
	check(mkdirat(disks_fd, path, 0755), path);
	snprintf(path, sizeof(path), "%s/work", disk);
	check(mkdirat(disks_fd, path, 0755), path);
}

static struct round one_round(void)
{
	static unsigned count;
	struct round r;
	char disk[32], path[64];
	int go[2], status;
	uint64_t start = clock_mono_ns();
	pid_t pid;

	snprintf(disk, sizeof(disk), "limit-%d-%u", getpid(), count++);
	check(pipe2(go, O_CLOEXEC), "pipe");
	pid = make_process(go[0]);
	write_map(pid, "uid_map");
	write_map(pid, "gid_map");
	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	_cleanup_close_ int userns = open(path, O_RDONLY | O_CLOEXEC);
	check(userns, path);
	make_disk(disk);
	mount_root(disk, userns);
	check(write_all(go[1], "g", 1), "go");
	check(waitpid(pid, &status, 0), "wait");
	r.run_ns = clock_mono_ns() - start;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "limit: the command ended with status %#x\n", (unsigned)status);
		_exit(1);
	}
	close(go[0]);
	close(go[1]);
	check(umount2("m", 0), "umount");
	check(umount2("u", 0), "umount");
	check(umount2("l", 0), "umount");
	subvolume(BTRFS_IOC_SNAP_DESTROY, disk);
	r.whole_ns = clock_mono_ns() - start;
	return r;
}

/* The stage: attach points in a mount namespace of our own, over /tmp; the current directory from
 * here on. */
static void prepare(const char *layer, const char *disks)
{
	check(unshare(CLONE_NEWNS), "unshare");
	check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "make mounts private");
	layer_fd = open(layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	check(layer_fd, layer);
	disks_fd = open(disks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	check(disks_fd, disks);
	check(mount("tmpfs", "/tmp", "tmpfs", 0, "mode=0755"), "mount the stage");
	check(chdir("/tmp"), "enter the stage");
	check(mkdir("l", 0755), "l");
	check(mkdir("u", 0755), "u");
	check(mkdir("m", 0755), "m");
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static void print_line(const char *what, uint64_t *ns, size_t count)
{
	qsort(ns, count, sizeof(*ns), by_value);
	printf("%-28s min %7.2f  median %7.2f  p99 %7.2f ms\n", what, ms(ns[0]), ms(ns[count / 2]),
	       ms(ns[count * 99 / 100]));
}

static void many_rounds(size_t count)
{
	_cleanup_free_ uint64_t *run = calloc(count, sizeof(*run));
	_cleanup_free_ uint64_t *whole = calloc(count, sizeof(*whole));

	if (!run || !whole)
		die("calloc");
	for (size_t i = 0; i < count; i++) {
		struct round r = one_round();

		run[i] = r.run_ns;
		whole[i] = r.whole_ns;
	}
	print_line("until the command has ended", run, count);
	print_line("until all is gone", whole, count);
}

int main(int argc, char **argv)
{
	uint64_t count = 0;
	char byte;

	if (argc < 3 || argc > 4 || (argc == 4 && str_u64(argv[3], 1, COUNT_MAX, &count))) {
		fprintf(stderr, "usage: limit LAYER DIR [COUNT]\n");
		return 2;
	}
	prepare(argv[1], argv[2]);
	if (count) {
		many_rounds(count);
		return fflush(stdout) ? 1 : 0;
	}
	while (read(0, &byte, 1) == 1) {
		struct round r = one_round();

		printf("%llu %llu\n", (unsigned long long)r.run_ns, (unsigned long long)r.whole_ns);
		fflush(stdout);
	}
	return 0;
}
