#include "init/file_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_path.h"

bool file_is_proc(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

/* The directory of this process, or of a thread of it: its "stat" begins with the number. What cannot
 * be looked at (something is mounted over it) may be it. */
static bool is_own(int dir)
{
	_cleanup_close_ int fd =
		file_openat(dir, "stat", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0,
			    RESOLVE_BENEATH | RESOLVE_NO_XDEV);
	char text[32];
	ssize_t n;

	if (fd < 0)
		return fd != -ENOENT;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return strtoul(text, NULL, 10) == (unsigned long)getpid();
}

static bool same_as(int dir, const char *name, const struct stat *st)
{
	struct stat found;

	return fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == 0 &&
	       found.st_dev == st->st_dev && found.st_ino == st->st_ino;
}

bool file_proc_is_own(int dir)
{
	_cleanup_close_ int at = -1;

	if (!file_is_proc(dir))
		return false;
	at = file_openat(dir, ".", O_PATH | O_DIRECTORY, 0, 0);
	while (at >= 0 && file_is_proc(at)) {
		int up;

		if (is_own(at))
			return true;
		up = file_openat(at, "..", O_PATH | O_DIRECTORY, 0, RESOLVE_NO_XDEV);
		close(at);
		at = up;
	}
	return false;
}

/* The file `leaf` in `dir`: upwards, as far as procfs goes. */
static int may_read_in(int dir, const char *leaf)
{
	_cleanup_close_ int at = file_openat(dir, ".", O_PATH | O_DIRECTORY, 0, 0);
	struct stat below = { 0 };

	while (at >= 0 && file_is_proc(at)) {
		int up;

		if (is_own(at)) {
			bool shared = below.st_ino
					      ? same_as(at, "net", &below)
					      : str_eq(leaf, "mounts") || str_eq(leaf, "mountinfo");

			return shared ? 0 : -EPERM;
		}
		if (fstat(at, &below) < 0)
			return -EPERM;
		up = file_openat(at, "..", O_PATH | O_DIRECTORY, 0, RESOLVE_NO_XDEV);
		close(at);
		at = up;
	}
	return 0;
}

int file_proc_may_read(int fd, int dir, const char *path, const struct stat *st)
{
	_cleanup_close_ int parent = -1, found = -1;
	char leaf[FILE_NAME_MAX + 1];

	if (!S_ISREG(st->st_mode) || !file_is_proc(fd))
		return 0;
	parent = file_resolve(dir, path, leaf);
	if (parent < 0)
		return -EAGAIN;
	/* a file that is mounted elsewhere does not tell whose it is */
	found = file_openat(parent, leaf, O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_XDEV);
	if (found == -EXDEV)
		return -EPERM;
	if (found < 0 || !same_as(found, "", st))
		return -EAGAIN;
	return may_read_in(parent, leaf);
}
