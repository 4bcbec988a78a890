#include "init/file_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_path.h"
#include "init/file_proc.h"

enum { NAME_TRIES = 16, XATTRS_SIZE = 64 * 1024 };

void target_init(struct target *t)
{
	*t = (struct target){ .dir = -1, .fd = -1 };
}

void target_release(struct target *t)
{
	if (t->temporary[0])
		(void)unlinkat(t->dir, t->temporary, 0);
	t->temporary[0] = '\0';
	close_p(&t->fd);
	close_p(&t->dir);
}

static bool is_mount_point(const struct target *t)
{
	_cleanup_close_ int fd =
		file_openat(t->dir, t->leaf, O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_XDEV);

	return fd == -EXDEV;
}

static bool is_same(const struct target *t, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == t->was.st_dev && st.st_ino == t->was.st_ino;
}

/* What stands there, looked at without opening it. */
static int look(struct target *t)
{
	_cleanup_close_ int fd = file_openat(t->dir, t->leaf, O_PATH | O_NOFOLLOW, 0, 0);

	if (fd == -ENOENT)
		return file_is_proc(t->dir) ? -EPERM : 0;
	if (fd < 0)
		return fd;
	if (fstat(fd, &t->was) < 0)
		return -errno;
	t->exists = true;
	if (S_ISDIR(t->was.st_mode))
		return -EISDIR;
	if (!S_ISREG(t->was.st_mode))
		return -EINVAL;
	t->in_place = t->was.st_nlink > 1 || is_mount_point(t);
	return file_is_proc(fd) ? -EPERM : 0;
}

int target_find(struct target *t, const char *path, bool parents, uid_t uid, gid_t gid,
		struct err *e)
{
	char quoted[FILE_QUOTED_SIZE];
	int r;

	if (parents) {
		_cleanup_close_ int made = file_parent_make(path, uid, gid, t->leaf, e);

		if (made < 0 && made != -EINVAL)
			return made;
	}
	t->dir = file_resolve(AT_FDCWD, path, t->leaf);
	r = t->dir < 0 ? t->dir : look(t);
	if (r == -EINVAL)
		return err_set(e, EINVAL, "write %s: not a regular file", file_quote(path, quoted));
	return r < 0 ? file_err(e, r, "write", path) : 0;
}

/* A user's own attributes, and access lists: as far as they are to be had. Those of the kernel's that
 * speak of the content (capabilities) went with it, as a write takes them away. */
static void copy_xattrs(const struct target *t)
{
	static char names[XATTRS_SIZE], value[XATTRS_SIZE];
	_cleanup_close_ int old =
		file_openat(t->dir, t->leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0, 0);
	ssize_t n, len;

	if (old < 0 || !is_same(t, old) || (n = flistxattr(old, names, sizeof(names))) <= 0)
		return;
	for (const char *name = names; name < names + n; name += strlen(name) + 1) {
		if (!str_starts(name, "user.") && !str_eq(name, "system.posix_acl_access"))
			continue;
		len = fgetxattr(old, name, value, sizeof(value));
		if (len >= 0)
			(void)fsetxattr(t->fd, name, value, (size_t)len, 0);
	}
}

static void make_name(struct target *t)
{
	uint64_t random = 0;

	(void)!getrandom(&random, sizeof(random), 0);
	snprintf(t->temporary, sizeof(t->temporary), ".skerry-%016llx.tmp",
		 (unsigned long long)random);
}

static int open_named(struct target *t)
{
	int fd = -EEXIST;

	for (int i = 0; i < NAME_TRIES && fd == -EEXIST; i++) {
		make_name(t);
		fd = file_openat(t->dir, t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
				 0600, 0);
	}
	if (fd < 0)
		t->temporary[0] = '\0';
	return fd;
}

/* What was found may be another thing by now: a FIFO, or a link. */
static int open_itself(struct target *t)
{
	_cleanup_close_ int fd =
		file_openat(t->dir, t->leaf, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0, 0);

	if (fd < 0)
		return fd;
	return is_same(t, fd) ? take_fd(&fd) : -EBUSY;
}

int target_open(struct target *t, const char *path, struct err *e)
{
	if (t->in_place) {
		t->fd = open_itself(t);
	} else {
		t->fd = file_openat(t->dir, ".", O_WRONLY | O_TMPFILE, 0600, 0);
		if (t->fd == -EOPNOTSUPP || t->fd == -EISDIR || t->fd == -ENOENT ||
		    t->fd == -EINVAL)
			t->fd = open_named(t);
	}
	return t->fd < 0 ? file_err(e, t->fd, "write", path) : 0;
}

/* By the descriptor; older kernels allow that only by way of /proc, which is the sandbox's own: what
 * it gave is looked at. */
static int link_as(const struct target *t, const char *name)
{
	struct stat mine, made;
	char proc[32];

	if (linkat(t->fd, "", t->dir, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOENT && errno != EPERM)
		return -errno;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", t->fd);
	if (linkat(AT_FDCWD, proc, t->dir, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	if (fstat(t->fd, &mine) < 0 || fstatat(t->dir, name, &made, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (mine.st_dev == made.st_dev && mine.st_ino == made.st_ino)
		return 0;
	(void)unlinkat(t->dir, name, 0);
	return -EIO;
}

/* Under its name, in the place of what has it now. */
static int give_name(struct target *t)
{
	int r = 0;

	if (!t->temporary[0]) {
		r = t->exists ? -EEXIST : link_as(t, t->leaf);
		if (r != -EEXIST)
			return r;
		for (int i = 0; i < NAME_TRIES && r == -EEXIST; i++) {
			make_name(t);
			r = link_as(t, t->temporary);
		}
		if (r < 0) {
			t->temporary[0] = '\0';
			return r;
		}
	}
	if (renameat(t->dir, t->temporary, t->dir, t->leaf) < 0)
		return -errno;
	t->temporary[0] = '\0';
	return 0;
}

static int sync_dir(const struct target *t)
{
	_cleanup_close_ int fd = file_openat(t->dir, ".", O_RDONLY | O_DIRECTORY, 0, 0);

	if (fd < 0)
		return fd;
	/* not every file system can */
	return fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
}

/* What it is to be beside its content: as the one it replaces, or as the caller says. */
static int dress(const struct target *t, uid_t uid, gid_t gid, mode_t mode)
{
	if (t->exists) {
		copy_xattrs(t);
		uid = t->was.st_uid;
		gid = t->was.st_gid;
		mode = t->was.st_mode & 07777;
	}
	return fchown(t->fd, uid, gid) < 0 || fchmod(t->fd, mode) < 0 ? -errno : 0;
}

int target_finish(struct target *t, const char *path, uid_t uid, gid_t gid, mode_t mode,
		  uint64_t size, struct err *e)
{
	int r = 0;

	if (!t->in_place)
		r = dress(t, uid, gid, mode);
	else if (ftruncate(t->fd, (off_t)size) < 0)
		r = -errno;
	if (!r && fsync(t->fd) < 0)
		r = -errno;
	if (!r && !t->in_place)
		r = give_name(t);
	if (!r && !t->in_place)
		r = sync_dir(t);
	return r < 0 ? file_err(e, r, "write", path) : 0;
}
