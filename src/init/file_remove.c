/* Removes what stands at a path, and all below it. No link is followed, no mount point entered. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_job.h"
#include "init/file_path.h"

enum {
	NAMES_SIZE = 16 * 1024, /* bytes of names read at a time … */
	LEVELS = 64,            /* … by each of the first levels, and by all below together */
	AGAIN_MOST = 16,        /* a directory that somebody fills is given up */
};

struct dirent64_kernel {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

_Alignas(struct dirent64_kernel) static char names_of[LEVELS][NAMES_SIZE];

static int remove_tree(int dir, const char *name, unsigned depth);

static bool is_dots(const char *name)
{
	return str_eq(name, ".") || str_eq(name, "..");
}

static int remove_one(int fd, const char *name, unsigned depth)
{
	if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	return errno == EISDIR || errno == EPERM ? remove_tree(fd, name, depth + 1) : -errno;
}

/* 1: something went, or was gone; 0: nothing more is there. A descriptor a level, and no memory: the
 * deepest share their names, and read them anew when they come back. */
static int remove_some(int fd, unsigned depth)
{
	bool shared = depth >= LEVELS - 1;
	char *names = names_of[shared ? LEVELS - 1 : depth];
	int some = 0;
	long n;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	while ((n = syscall(SYS_getdents64, fd, names, NAMES_SIZE)) > 0) {
		for (long at = 0; at < n;) {
			const struct dirent64_kernel *d = (const void *)(names + at);
			char name[FILE_NAME_MAX + 1];
			int r;

			at += d->len;
			if (is_dots(d->name) || !str_copy(name, sizeof(name), d->name))
				continue;
			some = 1;
			r = remove_one(fd, name, depth);
			if (r < 0)
				return r;
			if (shared)
				return 1;
		}
	}
	return n < 0 ? -errno : some;
}

static int empty(int fd, unsigned depth)
{
	int r;

	do
		r = remove_some(fd, depth);
	while (r > 0);
	return r;
}

static int remove_tree(int dir, const char *name, unsigned depth)
{
	int fd = file_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			     RESOLVE_NO_XDEV | RESOLVE_BENEATH);
	int r = 0;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd == -EXDEV ? -EBUSY : fd;
	for (int i = 0; i < AGAIN_MOST; i++) {
		r = empty(fd, depth);
		if (r < 0)
			break;
		r = unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
		if (r != -ENOTEMPTY)
			break;
	}
	close(fd);
	return r;
}

int file_remove(struct file_job *j, struct err *e)
{
	const char *path = j->req.path;
	char leaf[FILE_NAME_MAX + 1];
	_cleanup_close_ int dir = -1;
	struct stat st;
	int r = 0;

	if (path[strspn(path, "/")] == '\0')
		return file_err(e, EBUSY, "remove", path);
	dir = file_parent(path, leaf, e);
	if (dir < 0)
		return dir;
	if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return file_err(e, errno, "remove", path);
	if (S_ISDIR(st.st_mode))
		r = remove_tree(dir, leaf, 0);
	else if (unlinkat(dir, leaf, 0) < 0)
		r = -errno;
	return r < 0 ? file_err(e, r, "remove", path) : 0;
}
