#include "init/file_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_path.h"

enum { LINKS_MOST = 40, NAME_TRIES = 16 };

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

/* One link further: `dir` and `leaf` become what it says. */
static int follow(struct target *t)
{
	char link[FILE_PATH_MAX + 1], parent[FILE_PATH_MAX + 1];
	ssize_t n = readlinkat(t->dir, t->leaf, link, sizeof(link) - 1);
	int fd, r;

	if (n < 0)
		return -errno;
	link[n] = '\0';
	r = file_split(link, parent, t->leaf);
	if (r < 0)
		return r == -EINVAL ? -EISDIR : r;
	fd = file_openat(t->dir, parent, O_PATH | O_DIRECTORY, 0, 0);
	if (fd < 0)
		return fd;
	close(t->dir);
	t->dir = fd;
	return 0;
}

static bool is_mount_point(const struct target *t)
{
	_cleanup_close_ int fd =
		file_openat(t->dir, t->leaf, O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_XDEV);

	return fd == -EXDEV;
}

int target_find(struct target *t, const char *path, bool parents, uid_t uid, gid_t gid,
		struct err *e)
{
	char quoted[FILE_QUOTED_SIZE];
	int r = -ELOOP;

	t->dir = parents ? file_parent_make(path, uid, gid, t->leaf, e)
			 : file_parent(path, t->leaf, e);
	if (t->dir < 0)
		return t->dir;
	for (int i = 0; i < LINKS_MOST; i++) {
		if (fstatat(t->dir, t->leaf, &t->was, AT_SYMLINK_NOFOLLOW) < 0) {
			r = errno == ENOENT ? 0 : -errno;
			break;
		}
		t->exists = !S_ISLNK(t->was.st_mode);
		r = t->exists ? 0 : follow(t);
		if (r < 0 || t->exists)
			break;
		r = -ELOOP;
	}
	if (r < 0)
		return file_err(e, r, "find", path);
	if (t->exists && S_ISDIR(t->was.st_mode))
		return file_err(e, EISDIR, "write", path);
	if (t->exists && !S_ISREG(t->was.st_mode))
		return err_set(e, EINVAL, "write %s: not a regular file", file_quote(path, quoted));
	t->in_place = t->exists && (t->was.st_nlink > 1 || is_mount_point(t));
	return 0;
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
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_dev == t->was.st_dev && st.st_ino == t->was.st_ino ? take_fd(&fd) : -EBUSY;
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

int target_finish(struct target *t, const char *path, uid_t uid, gid_t gid, mode_t mode,
		  uint64_t size, struct err *e)
{
	int r = 0;

	if (t->in_place) {
		if (ftruncate(t->fd, (off_t)size) < 0)
			r = -errno;
	} else if (fchown(t->fd, t->exists ? t->was.st_uid : uid, t->exists ? t->was.st_gid : gid) <
			   0 ||
		   fchmod(t->fd, t->exists ? t->was.st_mode & 07777 : mode) < 0) {
		r = -errno;
	}
	if (!r && fsync(t->fd) < 0)
		r = -errno;
	if (!r && !t->in_place)
		r = give_name(t);
	if (!r && !t->in_place)
		r = sync_dir(t);
	return r < 0 ? file_err(e, r, "write", path) : 0;
}
