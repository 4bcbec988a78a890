#include "init/file_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_path.h"
#include "init/file_proc.h"

enum { XATTRS_SIZE = 64 * 1024 };

void target_init(struct target *t)
{
	*t = (struct target){ .dir = -1 };
	nameless_init(&t->file);
}

void target_release(struct target *t)
{
	nameless_release(&t->file);
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
			(void)fsetxattr(t->file.fd, name, value, (size_t)len, 0);
	}
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
	int r = 0;

	if (!t->in_place)
		r = nameless_open(&t->file, t->dir);
	else
		r = t->file.fd = open_itself(t);
	return r < 0 ? file_err(e, r, "write", path) : 0;
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
	return fchown(t->file.fd, uid, gid) < 0 || fchmod(t->file.fd, mode) < 0 ? -errno : 0;
}

int target_finish(struct target *t, const char *path, uid_t uid, gid_t gid, mode_t mode,
		  uint64_t size, struct err *e)
{
	int r = 0;

	if (!t->in_place)
		r = dress(t, uid, gid, mode);
	else if (ftruncate(t->file.fd, (off_t)size) < 0)
		r = -errno;
	if (!r && fsync(t->file.fd) < 0)
		r = -errno;
	if (!r && !t->in_place)
		r = nameless_link(&t->file, t->leaf, t->exists);
	if (!r && !t->in_place)
		r = sync_dir(t);
	return r < 0 ? file_err(e, r, "write", path) : 0;
}
