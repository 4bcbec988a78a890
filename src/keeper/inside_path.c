#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "inside.h"

/* Gives a stray object another name in its own directory: nothing of the user's is deleted. */
static int move_aside(int dir, const char *name)
{
	char other[NAME_MAX + 1];
	uint32_t n;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		return -errno;
	if (snprintf(other, sizeof(other), "%.200s.stray-%08x", name, n) >= (int)sizeof(other))
		return -ENAMETOOLONG;
	return renameat(dir, name, dir, other) < 0 ? -errno : 0;
}

static int enter(int dir, const char *name, mode_t mode)
{
	for (int attempt = 0; attempt < 4; attempt++) {
		int fd = open_beneath(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
		int r = 0;

		if (fd >= 0)
			return fd;
		if (fd == -ENOENT)
			r = mkdirat(dir, name, mode) < 0 && errno != EEXIST ? -errno : 0;
		else if (fd == -ENOTDIR || fd == -ELOOP)
			r = move_aside(dir, name);
		else
			return fd;
		if (r)
			return r;
	}
	return -ELOOP;
}

int inside_dir(int root, const char *path, mode_t mode)
{
	/* what leads to a closed directory is closed too: a mount hides the directory's own mode */
	const mode_t parents = mode == 0700 ? 0700 : 0755;
	_cleanup_close_ int held = -1;
	char name[NAME_MAX + 1];

	do {
		size_t n = strcspn(path, "/");
		int next;

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		path += n;
		path += *path == '/';
		next = n ? enter(held < 0 ? root : held, name, *path ? parents : mode)
			 : open_beneath(root, ".", O_PATH | O_DIRECTORY, 0);
		if (next < 0)
			return next;
		close_p(&held);
		held = next;
	} while (*path);
	return take_fd(&held);
}

/* The directory of `path` and the last part of its name. */
static int parent_of(int root, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];

	*ret_name = slash ? slash + 1 : path;
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	return inside_dir(root, dir, 0755);
}

/* Not synced: what it says is written again by a boot that does not find it. */
static int put_text(int dir, const char *name, const char *text)
{
	char temp[NAME_MAX + 1];
	_cleanup_close_ int fd = -1;
	int r;

	if (snprintf(temp, sizeof(temp), ".%s.skerry", name) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	if (unlinkat(dir, temp, 0) < 0 && errno == EISDIR && (r = move_aside(dir, temp)))
		return r;
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, strlen(text));
	if (!r && renameat(dir, temp, dir, name) < 0)
		r = -errno;
	if (r)
		unlinkat(dir, temp, 0);
	return r;
}

int inside_text(int root, const char *path, const char *text)
{
	const char *name;
	_cleanup_close_ int parent = parent_of(root, path, &name);
	int r;

	if (parent < 0)
		return parent;
	r = put_text(parent, name, text);
	if (r == -EISDIR || r == -ENOTEMPTY || r == -EEXIST) {
		r = move_aside(parent, name);
		if (!r)
			r = put_text(parent, name, text);
	}
	return r;
}
