#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "inside.h"
#include "mounts.h"

#define NOSUID MOUNT_ATTR_NOSUID
#define NODEV  MOUNT_ATTR_NODEV
#define NOEXEC MOUNT_ATTR_NOEXEC
#define RDONLY MOUNT_ATTR_RDONLY

static const char *const dev_options[] = { "mode=0755", "size=1m", NULL };
static const char *const pts_options[] = { "ptmxmode=0666", "mode=0620", "gid=5",
					   "max=512", /* of the host's, which all sandboxes share */
					   NULL };
static const char *const shm_options[] = { "mode=1777", NULL };
static const char *const run_options[] = { "mode=0755", NULL };

/* The plan, in order. New file systems; a full proc and sysfs out of the way let programs inside
 * mount their own, which the kernel refuses where every visible one is partly covered. */
static const struct new_mount {
	const char *path;
	mode_t mode; /* of the mount point where it is missing */
	const char *type;
	const char *const *options;
	uint64_t attributes;
} new_mounts[] = {
	{ "proc", 0555, "proc", NULL, NOSUID | NODEV | NOEXEC },
	{ "sys", 0555, "sysfs", NULL, NOSUID | NODEV | NOEXEC | RDONLY },
	{ "dev", 0755, "tmpfs", dev_options, NOSUID | NOEXEC },
	{ "dev/pts", 0755, "devpts", pts_options, NOSUID | NOEXEC },
	{ "dev/shm", 0755, "tmpfs", shm_options, NOSUID | NODEV },
	{ "dev/mqueue", 0755, "mqueue", NULL, NOSUID | NODEV | NOEXEC },
	{ "dev/.skerry/proc", 0700, "proc", NULL, NOSUID | NODEV | NOEXEC },
	{ "dev/.skerry/sys", 0700, "sysfs", NULL, NOSUID | NODEV | NOEXEC },
	{ "run", 0755, "tmpfs", run_options, NOSUID | NODEV },
};

/* The nodes a sandbox may open, bound one by one from the stage; `path` is below /dev. */
static const struct device_node {
	const char *from, *path;
} device_nodes[] = {
	{ "d/null", "null" },     { "d/zero", "zero" },       { "d/full", "full" },
	{ "d/random", "random" }, { "d/urandom", "urandom" }, { "d/tty", "tty" },
	{ "d/fuse", "fuse" },     { "d/tun", "net/tun" },
};

static const struct device_link {
	const char *name, *target;
} device_links[] = {
	{ "ptmx", "pts/ptmx" },          { "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },  { "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" }, { "core", "/proc/kcore" },
};

/* A courtesy, not the boundary: files that tell of the host. Covered by /dev/null. */
static const char *const masked_files[] = {
	"proc/kcore",       "proc/keys",       "proc/key-users",     "proc/latency_stats",
	"proc/sched_debug", "proc/timer_list", "proc/sysrq-trigger",
};
/* The same for directories, covered by an empty one of the stage's, read-only. */
static const char *const masked_dirs[] = { "proc/acpi", "proc/scsi", "sys/firmware" };

/* From the sandbox's engine subvolume. */
static const struct engine_bind {
	const char *from, *path;
	mode_t mode;
} engine_binds[] = {
	{ "e/docker", "var/lib/docker", 0710 },
	{ "e/containerd", "var/lib/containerd", 0711 },
};

static int attach_at(int root, const char *path, mode_t mode, int mount, struct err *e)
{
	_cleanup_close_ int at = inside_dir(root, path, mode);
	int r = at < 0 ? at : mount_attach(mount, at, "");

	return r ? err_set(e, r, "mount at '/%s': %m", path) : 0;
}

static int attach_new(int root, const struct new_mount *m, struct err *e)
{
	_cleanup_close_ int mount = mount_new(m->type, m->options, m->attributes);

	if (mount < 0)
		return err_set(e, mount, "make %s for '/%s': %m", m->type, m->path);
	return attach_at(root, m->path, m->mode, mount, e);
}

static int bind_file(int root, const char *from, const char *path, struct err *e)
{
	_cleanup_close_ int mount = mount_clone(AT_FDCWD, from, false);
	int r = mount < 0 ? mount : mount_attach(mount, root, path);

	return r ? err_set(e, r, "bind '%s' at '%s': %m", from, path) : 0;
}

static int make_devices(int root, struct err *e)
{
	_cleanup_close_ int dev = inside_dir(root, "dev", 0755);

	if (dev < 0)
		return err_set(e, dev, "open '/dev': %m");
	if (mkdirat(dev, "net", 0755) < 0)
		return err_set(e, errno, "make '/dev/net': %m");
	for (unsigned i = 0; i < ARRAY_SIZE(device_nodes); i++) {
		const struct device_node *n = &device_nodes[i];
		int r;

		/* by plain names: this file system is new, nothing foreign is in it */
		if (mknodat(dev, n->path, S_IFREG | 0644, 0) < 0)
			return err_set(e, errno, "make '/dev/%s': %m", n->path);
		r = bind_file(dev, n->from, n->path, e);
		if (r)
			return r;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(device_links); i++) {
		if (symlinkat(device_links[i].target, dev, device_links[i].name) < 0)
			return err_set(e, errno, "link '/dev/%s': %m", device_links[i].name);
	}
	return 0;
}

static int mask_dir(int root, const char *path, struct err *e)
{
	_cleanup_close_ int empty = mount_clone(AT_FDCWD, "n", false);
	struct mount_attr attr = { .attr_set = NOSUID | NODEV | NOEXEC | RDONLY };

	if (empty < 0)
		return err_set(e, empty, "clone 'n': %m");
	if (syscall(SYS_mount_setattr, empty, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_set(e, errno, "make the mask of '/%s' read-only: %m", path);
	return attach_at(root, path, 0555, empty, e);
}

static int mask(int root, struct err *e)
{
	struct stat st;

	for (unsigned i = 0; i < ARRAY_SIZE(masked_files); i++) {
		int r = fstatat(root, masked_files[i], &st, AT_SYMLINK_NOFOLLOW)
				? 0
				: bind_file(root, "d/null", masked_files[i], e);

		if (r)
			return r;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(masked_dirs); i++) {
		int r = fstatat(root, masked_dirs[i], &st, AT_SYMLINK_NOFOLLOW)
				? 0
				: mask_dir(root, masked_dirs[i], e);

		if (r)
			return r;
	}
	return 0;
}

static int bind_engine(int root, struct err *e)
{
	for (unsigned i = 0; i < ARRAY_SIZE(engine_binds); i++) {
		_cleanup_close_ int mount = mount_clone(AT_FDCWD, engine_binds[i].from, false);
		int r = mount < 0 ? err_set(e, mount, "clone '%s': %m", engine_binds[i].from)
				  : attach_at(root, engine_binds[i].path, engine_binds[i].mode,
					      mount, e);

		if (r)
			return r;
	}
	return 0;
}

struct cgroup_view {
	int cgns, mount;
};

/* Shares memory and descriptors with PID 1, but is in the sandbox's cgroup namespace: PID 1 itself
 * stays outside of it, so that it can place commands where it is not. */
static int make_cgroup_view(void *arg)
{
	struct cgroup_view *v = arg;

	v->mount = setns(v->cgns, CLONE_NEWCGROUP) < 0
			   ? -errno
			   : mount_new("cgroup2", NULL, NOSUID | NODEV | NOEXEC);
	return 0;
}

static int mount_cgroup(int root, int cgns, struct err *e)
{
	static char stack[16 * 1024] __attribute__((aligned(16)));
	struct cgroup_view view = { cgns, -1 };
	_cleanup_close_ int mount = -1;
	pid_t pid = clone(make_cgroup_view, stack + sizeof(stack),
			  CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &view);

	if (pid < 0)
		return err_set(e, errno, "clone: %m");
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	mount = view.mount;
	if (mount < 0)
		return err_set(e, mount, "mount the cgroup view: %m");
	return attach_at(root, "sys/fs/cgroup", 0555, mount, e);
}

/* Unprivileged ping, as on a desktop distribution. The file takes group ids of the writer's user
 * namespace, and below the sandbox's own proc it does not lengthen the look-ups of all others. */
static void allow_ping(int root)
{
	_cleanup_close_ int fd =
		open_beneath(root, "proc/sys/net/ipv4/ping_group_range", O_WRONLY, 0);

	if (fd >= 0) /* else the kernel has none */
		(void)write_all(fd, "0 65535", 7);
}

/* A courtesy: without them the kernel's own tell of the host. */
static void attach_lxcfs(int root, const int lxcfs[LXCFS_FILES])
{
	for (int i = 0; i < LXCFS_FILES; i++) {
		if (lxcfs[i] >= 0)
			(void)mount_attach(lxcfs[i], root, lxcfs_files[i]);
	}
}

int inside_mounts(int root, const struct launch *l, struct err *e)
{
	int r = 0;

	for (unsigned i = 0; !r && i < ARRAY_SIZE(new_mounts); i++)
		r = attach_new(root, &new_mounts[i], e);
	if (r)
		return r;
	allow_ping(root);
	r = make_devices(root, e);
	if (!r)
		r = mask(root, e);
	if (!r)
		r = bind_engine(root, e);
	if (!r && l->cgns >= 0)
		r = mount_cgroup(root, l->cgns, e);
	if (!r)
		attach_lxcfs(root, l->lxcfs);
	return r;
}
