#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#include "cpuset.h"
#include "mounts.h"
#include "pool.h"

static void stage_path(const struct conf *c, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.*s/stage", PATH_MAX - 16, c->run_dir);
}

/* Nodes of our own with the modes that a sandbox needs: those of a host may be closed to it. */
static int make_nodes(int stage, struct err *e)
{
	static const struct {
		const char *name;
		unsigned major, minor;
	} nodes[] = {
		{ "null", 1, 3 },    { "zero", 1, 5 }, { "full", 1, 7 },    { "random", 1, 8 },
		{ "urandom", 1, 9 }, { "tty", 5, 0 },  { "fuse", 10, 229 }, { "tun", 10, 200 },
	};

	if (mount("tmpfs", "d", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
		return err_set(e, errno, "mount the device nodes: %m");
	for (unsigned i = 0; i < ARRAY_SIZE(nodes); i++) {
		char path[16];

		snprintf(path, sizeof(path), "d/%s", nodes[i].name);
		if (mknodat(stage, path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) <
			    0 ||
		    fchmodat(stage, path, 0666, 0) < 0)
			return err_set(e, errno, "make device node '%s': %m", nodes[i].name);
	}
	return 0;
}

/* The program as a file of its own that the sandbox may run and not read: so the kernel lets nobody
 * inside trace PID 1 or look at its descriptors, and an upgrade does not touch what runs. */
static int copy_program(int stage, const char *path, struct err *e)
{
	_cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int to =
		openat(stage, "skerry-init", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
	struct stat st;
	int fd;

	if (from < 0 || fstat(from, &st) < 0)
		return err_set(e, errno, "open '%s': %m", path);
	if (to < 0)
		return err_set(e, errno, "copy '%s': %m", path);
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = sendfile(to, from, NULL, (size_t)left);

		if (n <= 0)
			return err_set(e, n ? errno : EIO, "copy '%s': %m", path);
		left -= n;
	}
	if (fchmod(to, 0111) < 0)
		return err_set(e, errno, "copy '%s': %m", path);
	fd = openat(stage, "skerry-init", O_PATH | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open '%s': %m", path) : fd;
}

/* Attach points in the stage: l0 … lower layers, u upper, e engine, m the overlay, d device nodes,
 * n nothing. Short and neutral, since the overlay's options show inside the sandbox. */
int launch_stage_init(const struct conf *c, struct err *e)
{
	static const char *const dirs[] = { "l0", "l1", "l2", "l3", "l4", "l5", "l6",
					    "l7", "u",  "e",  "m",  "d",  "n" };
	char stage[PATH_MAX];
	int r;

	stage_path(c, stage);
	if (mkdir(stage, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make '%s': %m", stage);
	if (mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m") < 0)
		return err_set(e, errno, "mount '%s': %m", stage);
	_cleanup_close_ int dir = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < ARRAY_SIZE(dirs); i++) {
		r = mkdirat(dir, dirs[i], 0755);
		if (r < 0)
			return err_set(e, errno, "make '%s/%s': %m", stage, dirs[i]);
	}
	if (fchdir(dir) < 0)
		return err_set(e, errno, "enter '%s': %m", stage);
	r = make_nodes(dir, e);
	if (chdir("/") < 0 && !r)
		r = err_set(e, errno, "enter '/': %m");
	return r ? r : copy_program(dir, c->init, e);
}

int launch_stage_enter(const struct conf *c, struct err *e)
{
	char stage[PATH_MAX];

	stage_path(c, stage);
	return chdir(stage) < 0 ? err_set(e, errno, "enter '%s': %m", stage) : 0;
}

/* Attaches the directory `path` below `dir`, idmapped into the slot, at `at` of the stage (the
 * current directory). */
static int attach_mapped(int dir, const char *path, const char *at, int userns, uint64_t set,
			 struct err *e)
{
	_cleanup_close_ int tree = mount_clone(dir, path, false);
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_IDMAP | set,
		.attr_clr = MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID,
		.userns_fd = (uint64_t)userns,
	};
	int r;

	if (tree < 0)
		return err_set(e, tree, "clone the mount of '%s': %m", path);
	if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_set(e, errno, "map the ids of '%s': %m", path);
	r = mount_attach(tree, AT_FDCWD, at);
	return r ? err_set(e, r, "attach '%s': %m", path) : 0;
}

/* The overlay remembers these credentials and acts with them on the layers: the mapped root with
 * the file capabilities, nothing of the host's root. */
static int lower_credentials(uint32_t root_id, struct err *e)
{
	static const int keep[] = { CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,
				    CAP_FSETID, CAP_MKNOD,        CAP_SYS_ADMIN };
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	setfsgid(root_id);
	setfsuid(root_id);
	if (setfsuid(-1) != (int)root_id || setfsgid(-1) != (int)root_id)
		return err_set(e, EPERM, "take the file system ids of the slot");
	if (syscall(SYS_capget, &head, caps) < 0)
		return err_set(e, errno, "capget: %m");
	caps[0].effective = 0;
	caps[1].effective = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(keep); i++)
		caps[CAP_TO_INDEX(keep[i])].effective |= CAP_TO_MASK(keep[i]);
	return syscall(SYS_capset, &head, caps) < 0 ? err_set(e, errno, "capset: %m") : 0;
}

static int raise_credentials(struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	setfsuid(0);
	setfsgid(0);
	if (syscall(SYS_capget, &head, caps) < 0)
		return err_set(e, errno, "capget: %m");
	for (unsigned i = 0; i < 2; i++)
		caps[i].effective = caps[i].permitted;
	return syscall(SYS_capset, &head, caps) < 0 ? err_set(e, errno, "capset: %m") : 0;
}

static int try_overlay(unsigned layers, struct err *e)
{
	char options[256];
	struct statvfs fs;
	size_t n;

	n = (size_t)snprintf(options, sizeof(options), "lowerdir=l0");
	for (unsigned i = 1; i < layers; i++)
		n += (size_t)snprintf(options + n, sizeof(options) - n, ":l%u", i);
	snprintf(options + n, sizeof(options) - n,
		 ",upperdir=u/upper,workdir=u/work,redirect_dir=on,metacopy=off,index=off,"
		 "nfs_export=off,xino=off");
	if (mount("overlay", "m", "overlay", MS_NODEV, options) < 0)
		return err_set(e, errno, "mount the overlay: %m");
	/* the kernel falls back to read-only without an error: read the effect back */
	if (statvfs("m", &fs) < 0 || fs.f_flag & ST_RDONLY) {
		umount2("m", MNT_DETACH);
		return err_set(e, EROFS, "the overlay came up read-only");
	}
	return 0;
}

static int mount_overlay(const struct launch *l, struct err *e)
{
	enum { HEADROOM = 16 * 1024 * 1024 };
	const struct keeper_sandbox_start *s = l->start;
	int r;

	r = lower_credentials(l->root_id, e);
	if (r)
		return r;
	r = try_overlay(s->layers_count, e);
	if (raise_credentials(NULL))
		return err_set(e, EPERM, "take the launcher's credentials back");
	if (r != -EROFS || !s->disk_bytes)
		return r;
	/* a full disk has no room for the overlay's own work: lend it some for the mount */
	r = pool_sandbox_limit(s->id, s->disk_bytes + HEADROOM, e);
	if (!r)
		r = lower_credentials(l->root_id, e);
	if (!r)
		r = try_overlay(s->layers_count, e);
	if (raise_credentials(NULL) || pool_sandbox_limit(s->id, s->disk_bytes, NULL))
		return err_set(e, EPERM, "restore the limit of '%s'", s->id);
	return r;
}

static int mount_sandbox(const struct launch *l, struct err *e)
{
	const struct keeper_sandbox_start *s = l->start;
	_cleanup_close_ int disk = pool_sandbox_open(s->id, e);
	int r = 0;

	if (disk < 0)
		return disk;
	for (unsigned i = 0; !r && i < s->layers_count; i++) {
		_cleanup_close_ int layer = pool_layer_open(s->layers[i], e);
		const char at[] = { 'l', (char)('0' + i), '\0' };

		r = layer < 0 ? layer
			      : attach_mapped(layer, "", at, l->ns.userns,
					      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, e);
	}
	if (!r)
		r = attach_mapped(disk, "root", "u", l->ns.userns, MOUNT_ATTR_NODEV, e);
	if (!r)
		r = attach_mapped(disk, "engine", "e", l->ns.userns, MOUNT_ATTR_NODEV, e);
	return r ? r : mount_overlay(l, e);
}

static int mount_target(const struct launch *l, struct err *e)
{
	char name[ID_SIZE + 8];

	snprintf(name, sizeof(name), "%s.new", l->layer);
	_cleanup_close_ int layer = pool_layer_open(name, e);

	if (layer < 0)
		return layer;
	return attach_mapped(layer, "", "m", l->ns.userns, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, e);
}

/* Shares the launcher's memory and descriptors for a moment: the only way to have a namespace made
 * and not be in it. */
static int make_cgns(void *arg)
{
	*(int *)arg = open("/proc/self/ns/cgroup", O_RDONLY | O_CLOEXEC);
	return 0;
}

/* A cgroup namespace rooted where the launcher is: the work group. */
static int cgroup_namespace(struct err *e)
{
	static char stack[16 * 1024] __attribute__((aligned(16)));
	int ns = -1;
	pid_t pid = clone(make_cgns, stack + sizeof(stack),
			  CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_NEWCGROUP | SIGCHLD, &ns);

	if (pid < 0)
		return err_set(e, errno, "make cgroup namespace: %m");
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return ns < 0 ? err_set(e, EIO, "open cgroup namespace") : ns;
}

static void report(int fd, const struct err *e)
{
	/* a failure to report is seen as a PID 1 that ended */
	(void)write_all(fd, e->text, strlen(e->text));
}

static int clone_pid1(struct launch *l, struct launched *ret, struct err *e)
{
	int pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
	};
	long pid;

	if (l->start)
		args.flags |= CLONE_PARENT; /* the keeper's child, with its exit signal */
	else
		args.exit_signal = SIGCHLD;

	if (l->cgroup) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)l->cgroup->agent;
	}
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return err_set(e, errno, "clone PID 1: %m");
	if (!pid) {
		struct err mine = ERR_INIT;

		inside_run(l, &mine);
		report(l->status, &mine);
		_exit(127);
	}
	*ret = (struct launched){ .pid = (int)pid, .pidfd = pidfd };
	return 0;
}

/* What protects the keeper is not for the sandbox. Later nobody could: PID 1's files in /proc are the
 * host's, as those of all its children are until they execute a program. */
static void become_killable(void)
{
	int r = write_text_at(AT_FDCWD, "/proc/self/oom_score_adj", "0");

	if (r < 0)
		log_notice("oom_score_adj of the sandbox stays the keeper's: %s", strerror(-r));
}

int launch_run(struct launch *l, struct launched *ret, struct err *e)
{
	const gid_t key = conf_key_group(l->conf);
	int r = l->start ? lxcfs_take(l->conf, l->lxcfs, e) : 0;

	if (!r)
		r = pool_reopen(l->conf->pool_dir, e);
	if (r)
		return r;
	become_killable();
	r = launch_stage_enter(l->conf, e);
	if (r)
		return r;
	r = l->start ? mount_sandbox(l, e) : mount_target(l, e);
	if (!r && l->cgroup)
		r = cgroup_enter_work(l->cgroup, e);
	if (!r && l->start)
		r = cpuset_enter(l->start->id, e);
	if (r)
		return r;
	if (setgroups(1, &key) < 0)
		return err_set(e, errno, "take the cgroups' group: %m");
	if (setns(l->ns.userns, CLONE_NEWUSER) < 0)
		return err_set(e, errno, "enter user namespace: %m");
	if (setns(l->ns.netns, CLONE_NEWNET) < 0)
		return err_set(e, errno, "enter network namespace: %m");
	if (l->cgroup && (l->cgns = cgroup_namespace(e)) < 0)
		return l->cgns;
	return clone_pid1(l, ret, e);
}
