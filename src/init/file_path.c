#include "init/file_path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_names.h"
#include "init/file_proc.h"

enum { OPEN_TRIES = 8, ENTRY_TRIES = 8, LINKS_MOST = 40 };

int file_openat(int dir, const char *path, int flags, mode_t mode, unsigned resolve)
{
	const struct open_how how = {
		.flags = (uint64_t)flags | O_CLOEXEC,
		.mode = flags & (O_CREAT | O_TMPFILE) & ~O_DIRECTORY ? mode : 0,
		.resolve = RESOLVE_NO_MAGICLINKS | resolve,
	};
	int fd;

	do
		fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

const char *file_quote(const char *path, char ret[FILE_QUOTED_SIZE])
{
	static const char dots[] = "...'";
	bool utf8 = utf8_valid(path, strlen(path));
	size_t n = 0;

	ret[n++] = '\'';
	for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
		if (n + 4 + sizeof(dots) > FILE_QUOTED_SIZE) {
			/* not in the middle of a character */
			while (utf8 && ((unsigned char)ret[n - 1] & 0xc0) == 0x80)
				n--;
			n -= utf8 && (unsigned char)ret[n - 1] >= 0xc0;
			memcpy(ret + n, dots, sizeof(dots));
			return ret;
		}
		if (*p < ' ' || *p == 0x7f || (!utf8 && *p >= 0x80))
			n += (size_t)snprintf(ret + n, 5, "\\x%02x", *p);
		else
			ret[n++] = (char)*p;
	}
	ret[n++] = '\'';
	ret[n] = '\0';
	return ret;
}

int file_err(struct err *e, int code, const char *what, const char *path)
{
	char quoted[FILE_QUOTED_SIZE];

	return err_set(e, code, "%s %s: %s", what, file_quote(path, quoted),
		       strerror(code < 0 ? -code : code));
}

int file_split(const char *path, char ret_parent[FILE_PATH_MAX + 1],
	       char ret_leaf[FILE_NAME_MAX + 1])
{
	size_t end = strlen(path), start;

	if (end > FILE_PATH_MAX)
		return -ENAMETOOLONG;
	while (end && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	if (end - start > FILE_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret_leaf, path + start, end - start);
	ret_leaf[end - start] = '\0';
	if (!*ret_leaf || str_eq(ret_leaf, ".") || str_eq(ret_leaf, ".."))
		return -EINVAL;
	memcpy(ret_parent, path, start);
	ret_parent[start] = '\0';
	if (!start)
		memcpy(ret_parent, ".", 2);
	return 0;
}

int file_parent(const char *path, char ret_leaf[FILE_NAME_MAX + 1], struct err *e)
{
	char parent[FILE_PATH_MAX + 1];
	int fd = file_split(path, parent, ret_leaf);

	if (!fd)
		fd = file_openat(AT_FDCWD, parent, O_PATH | O_DIRECTORY, 0, 0);
	return fd < 0 ? file_err(e, fd, "open the directory of", path) : fd;
}

/* One link further: `*dir` (owned) and `leaf` become what it says. 1, or 0 where it is no link. */
static int follow_link(int *dir, char leaf[FILE_NAME_MAX + 1])
{
	char link[FILE_PATH_MAX + 1], parent[FILE_PATH_MAX + 1];
	ssize_t n = readlinkat(*dir, leaf, link, sizeof(link) - 1);
	_cleanup_close_ int found = -1;
	int fd, r;

	if (n < 0)
		return errno == EINVAL || errno == ENOENT ? 0 : -errno;
	/* what a magic link says is not where it leads */
	found = file_openat(*dir, leaf, O_PATH, 0, 0);
	if (found == -ELOOP)
		return found;
	link[n] = '\0';
	r = file_split(link, parent, leaf);
	if (r < 0)
		return r == -EINVAL ? -EISDIR : r;
	fd = file_openat(*dir, parent, O_PATH | O_DIRECTORY, 0, 0);
	if (fd < 0)
		return fd;
	close(*dir);
	*dir = fd;
	return 1;
}

int file_resolve(int dir, const char *path, char ret_leaf[FILE_NAME_MAX + 1])
{
	char parent[FILE_PATH_MAX + 1];
	_cleanup_close_ int at = -1;
	int r = file_split(path, parent, ret_leaf);

	if (r < 0)
		return r == -EINVAL ? -EISDIR : r;
	at = file_openat(dir, parent, O_PATH | O_DIRECTORY, 0, 0);
	if (at < 0)
		return at;
	for (int i = 0; i < LINKS_MOST; i++) {
		r = follow_link(&at, ret_leaf);
		if (r <= 0)
			return r < 0 ? r : take_fd(&at);
	}
	return -ELOOP;
}

/* One more directory on the way, made where it is missing. */
static int step(int dir, const char *name, uid_t uid, gid_t gid)
{
	int fd = file_openat(dir, name, O_PATH | O_DIRECTORY, 0, 0);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(dir, name, 0755) < 0)
		return errno == EEXIST ? file_openat(dir, name, O_PATH | O_DIRECTORY, 0, 0)
				       : -errno;
	fd = file_openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, 0);
	if (fd >= 0 && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

int file_make_way(const char *path, uid_t uid, gid_t gid)
{
	char copy[FILE_PATH_MAX + 1], *rest = copy, *name;
	int dir = file_openat(AT_FDCWD, *path == '/' ? "/" : ".", O_PATH | O_DIRECTORY, 0, 0);

	if (!str_copy(copy, sizeof(copy), path)) {
		if (dir >= 0)
			close(dir);
		return -ENAMETOOLONG;
	}
	while (dir >= 0 && (name = strsep(&rest, "/"))) {
		int next;

		if (!*name)
			continue;
		next = step(dir, name, uid, gid);
		close(dir);
		dir = next;
	}
	return dir;
}

int file_parent_make(const char *path, uid_t uid, gid_t gid, char ret_leaf[FILE_NAME_MAX + 1],
		     struct err *e)
{
	char parent[FILE_PATH_MAX + 1];
	int fd = file_split(path, parent, ret_leaf);

	if (!fd)
		fd = file_make_way(parent, uid, gid);
	return fd < 0 ? file_err(e, fd, "make the directory of", path) : fd;
}

int file_find(const char *path, bool follow, struct stat *ret, struct err *e)
{
	int fd = file_openat(AT_FDCWD, path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0, 0);

	if (fd < 0)
		return file_err(e, fd, "find", path);
	if (fstat(fd, ret) < 0) {
		int r = file_err(e, errno, "look at", path);

		close(fd);
		return r;
	}
	return fd;
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT);
}

/* One look and one opening of what was seen. -EAGAIN when it was another thing then. */
static int open_seen(int dir, const char *path, int flags, struct stat *ret)
{
	_cleanup_close_ int seen = -1, fd = -1;
	struct stat st;
	int r;

	seen = file_openat(dir, path, O_PATH | (flags & O_NOFOLLOW), 0, 0);
	if (seen < 0)
		return seen;
	if (fstat(seen, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return -EINVAL;
	fd = file_openat(dir, path, flags | O_NONBLOCK | O_NOCTTY, 0, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, ret) < 0)
		return -errno;
	if (!same(&st, ret))
		return -EAGAIN;
	r = file_proc_may_read(fd, dir, path, ret);
	return r < 0 ? r : take_fd(&fd);
}

int file_open(int dir, const char *path, int flags, struct stat *ret, struct err *e)
{
	char quoted[FILE_QUOTED_SIZE];
	int fd = -EAGAIN;

	for (int i = 0; i < OPEN_TRIES && fd == -EAGAIN; i++)
		fd = open_seen(dir, path, flags, ret);
	if (fd == -EAGAIN)
		return err_set(e, EBUSY, "open %s: it changes all the time",
			       file_quote(path, quoted));
	if (fd == -EINVAL)
		return err_set(e, EINVAL, "open %s: not a regular file or directory",
			       file_quote(path, quoted));
	return fd < 0 ? file_err(e, fd, "open", path) : fd;
}

static uint8_t kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return ENTRY_DIR;
	case S_IFLNK:
		return ENTRY_LINK;
	case S_IFIFO:
		return ENTRY_FIFO;
	case S_IFSOCK:
		return ENTRY_SOCKET;
	case S_IFCHR:
		return ENTRY_CHAR;
	case S_IFBLK:
		return ENTRY_BLOCK;
	default:
		return ENTRY_FILE;
	}
}

/* What a link leads to; a regular file of no size where that is not there. */
static void follow(int dir, const char *name, struct agent_entry *ret)
{
	_cleanup_close_ int fd = file_openat(dir, name, O_PATH, 0, 0);
	struct stat st;

	ret->leads_to = ENTRY_FILE;
	ret->size = 0;
	if (fd < 0 || fstat(fd, &st) < 0 || S_ISLNK(st.st_mode))
		return;
	ret->leads_to = kind_of(st.st_mode);
	ret->size = (uint64_t)st.st_size;
}

/* Where a link leads, "" where that is not ours to know. -EINVAL: it is no link any more. */
static int read_target(int dir, const char *name, char target[FILE_PATH_MAX + 1])
{
	ssize_t n;

	target[0] = '\0';
	/* where our own program and descriptors are is nobody's business */
	if (file_proc_is_own(dir))
		return 0;
	n = readlinkat(dir, name, target, FILE_PATH_MAX);
	if (n < 0)
		return errno == ENOENT || errno == EINVAL ? -errno : 0;
	target[n] = '\0';
	return 0;
}

int file_entry(int dir, const char *name, const char *path, struct agent_entry *ret)
{
	static char target[FILE_PATH_MAX + 1];
	struct stat st;
	int r;

	for (int i = 0; i < ENTRY_TRIES; i++) {
		target[0] = '\0';
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
			return -errno;
		r = S_ISLNK(st.st_mode) ? read_target(dir, name, target) : 0;
		if (r != -EINVAL)
			break;
	}
	if (r < 0)
		return r == -EINVAL ? -EBUSY : r; /* other things by turns */
	*ret = (struct agent_entry){
		.kind = kind_of(st.st_mode),
		.leads_to = kind_of(st.st_mode),
		.mode = st.st_mode & 07777,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.size = st.st_size > 0 ? (uint64_t)st.st_size : 0,
		.mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec,
		.path = path,
		.owner = file_user_name(st.st_uid),
		.group = file_group_name(st.st_gid),
		.target = target,
	};
	if (*target) {
		follow(dir, name, ret);
	} else if (ret->kind == ENTRY_LINK) {
		ret->leads_to = ENTRY_FILE;
		ret->size = 0;
	}
	return 0;
}
