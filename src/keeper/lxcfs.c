#include "lxcfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

#include "mounts.h"

static int host_ns = -1;

int lxcfs_init(struct err *e)
{
	host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	return host_ns < 0 ? err_set(e, errno, "open the host's mount namespace: %m") : 0;
}

/* What lies in the directory while lxcfs does not is not its own. */
static bool is_fuse(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

static int take_file(const struct conf *c, const char *file, bool first)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					       MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };
	_cleanup_close_ int mount = -1;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/lxcfs/%s", PATH_MAX - 32, c->run_dir, file);
	mount = mount_clone(AT_FDCWD, path, false);
	if (mount < 0 || (first && !is_fuse(mount)) ||
	    syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -1;
	return take_fd(&mount);
}

int lxcfs_take(const struct conf *c, int ret[LXCFS_FILES], struct err *e)
{
	_cleanup_close_ int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);

	for (int i = 0; i < LXCFS_FILES; i++)
		ret[i] = -1;
	if (own < 0 || setns(host_ns, CLONE_NEWNS) < 0)
		return err_set(e, errno, "enter the host's mount namespace: %m");
	for (int i = 0; i < LXCFS_FILES && (!i || ret[0] >= 0); i++)
		ret[i] = take_file(c, lxcfs_files[i], !i);
	return setns(own, CLONE_NEWNS) < 0
		       ? err_set(e, errno, "leave the host's mount namespace: %m")
		       : 0;
}
