#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

int mount_clone(int dir, const char *path, bool recursive)
{
	unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
			 (*path ? 0 : AT_EMPTY_PATH) | (recursive ? AT_RECURSIVE : 0);
	long fd = syscall(SYS_open_tree, dir, path, flags);

	return fd < 0 ? -errno : (int)fd;
}

static int configure(int fs, const char *word)
{
	const char *value = strchr(word, '=');
	char key[32];

	if (!value)
		return syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, word, NULL, 0) < 0 ? -errno : 0;
	if ((size_t)(value - word) >= sizeof(key))
		return -ENAMETOOLONG;
	memcpy(key, word, (size_t)(value - word));
	key[value - word] = '\0';
	return syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, key, value + 1, 0) < 0 ? -errno : 0;
}

int mount_new(const char *type, const char *const *options, uint64_t attributes)
{
	_cleanup_close_ int fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
	long mount;

	if (fs < 0)
		return -errno;
	for (; options && *options; options++) {
		int r = configure(fs, *options);

		if (r)
			return r;
	}
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned)attributes);
	return mount < 0 ? -errno : (int)mount;
}

int mount_attach(int mount, int dir, const char *path)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH);

	return syscall(SYS_move_mount, mount, "", dir, path, flags) < 0 ? -errno : 0;
}
