#include "init/file_nameless.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { NAME_TRIES = 16, DIGITS = 16 };

#define PREFIX ".skerry-"
#define SUFFIX ".tmp"

void nameless_init(struct nameless *n)
{
	*n = (struct nameless){ .dir = -1, .fd = -1 };
}

void nameless_release(struct nameless *n)
{
	if (n->temporary[0])
		(void)unlinkat(n->dir, n->temporary, 0);
	n->temporary[0] = '\0';
	close_p(&n->fd);
}

static int open_at(int dir, const char *name, int flags)
{
	int fd = openat(dir, name, flags | O_WRONLY | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

static void make_name(struct nameless *n)
{
	uint64_t random = 0;

	(void)!getrandom(&random, sizeof(random), 0);
	snprintf(n->temporary, sizeof(n->temporary), PREFIX "%0*llx" SUFFIX, DIGITS,
		 (unsigned long long)random);
}

static int open_named(struct nameless *n)
{
	int fd = -EEXIST;

	for (int i = 0; i < NAME_TRIES && fd == -EEXIST; i++) {
		make_name(n);
		fd = open_at(n->dir, n->temporary, O_CREAT | O_EXCL | O_NOFOLLOW);
	}
	if (fd < 0)
		n->temporary[0] = '\0';
	return fd;
}

int nameless_open(struct nameless *n, int dir)
{
	struct stat st;

	n->dir = dir;
	n->fd = open_at(dir, ".", O_TMPFILE);
	if (n->fd == -EOPNOTSUPP || n->fd == -EISDIR || n->fd == -ENOENT || n->fd == -EINVAL)
		n->fd = open_named(n);
	/* of a directory that was removed some file systems say that it may not be done */
	if (n->fd == -EPERM && fstat(dir, &st) == 0 && !st.st_nlink)
		return -ENOENT;
	return n->fd < 0 ? n->fd : 0;
}

/* By the descriptor; older kernels allow that only by way of /proc, which is the sandbox's own: what
 * it gave is looked at. */
static int link_as(const struct nameless *n, const char *name)
{
	struct stat mine, made;
	char proc[32];

	if (linkat(n->fd, "", n->dir, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOENT && errno != EPERM)
		return -errno;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", n->fd);
	if (linkat(AT_FDCWD, proc, n->dir, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	if (fstat(n->fd, &mine) < 0 || fstatat(n->dir, name, &made, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (mine.st_dev == made.st_dev && mine.st_ino == made.st_ino)
		return 0;
	(void)unlinkat(n->dir, name, 0);
	return -EIO;
}

/* Under its name, in the place of what has it now. */
int nameless_link(struct nameless *n, const char *leaf, bool taken)
{
	int r = 0;

	if (!n->temporary[0]) {
		r = taken ? -EEXIST : link_as(n, leaf);
		if (r != -EEXIST)
			return r;
		for (int i = 0; i < NAME_TRIES && r == -EEXIST; i++) {
			make_name(n);
			r = link_as(n, n->temporary);
		}
		if (r < 0) {
			n->temporary[0] = '\0';
			return r;
		}
	}
	if (renameat(n->dir, n->temporary, n->dir, leaf) < 0)
		return -errno;
	n->temporary[0] = '\0';
	return 0;
}

bool nameless_is_temporary(const char *name)
{
	return str_starts(name, PREFIX) &&
	       strspn(name + strlen(PREFIX), "0123456789abcdef") == DIGITS &&
	       str_eq(name + strlen(PREFIX) + DIGITS, SUFFIX);
}

bool nameless_is_kernels(const char *name)
{
	return name[0] == '#' && name[1] && !name[1 + strspn(name + 1, "0123456789")];
}
