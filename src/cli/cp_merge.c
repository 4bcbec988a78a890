#include "cp_merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

enum { OWNER_ALL = 0700, SPARES = 10000 };

static const int dir_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/* Two directories of one name. */
struct pair {
	int from, to;
};

/* What `from` has must be ours to read and change; its mode is to be that of `to` anyway. */
static int open_below(const struct pair *up, const char *name, struct pair *ret, struct err *e)
{
	(void)fchmodat(up->from, name, OWNER_ALL, 0);
	ret->from = openat(up->from, name, dir_flags);
	ret->to = ret->from < 0 ? -1 : openat(up->to, name, dir_flags);
	return ret->to < 0 ? err_set(e, errno, "open '%s': %s", name, strerror(errno)) : 0;
}

/* A directory that changes its parent must be writable itself. */
static int move(const struct pair *p, const char *name, mode_t mode)
{
	_cleanup_close_ int fd = -1;
	int r = renameat(p->from, name, p->to, name);

	if (r == 0 || errno != EACCES || !S_ISDIR(mode))
		return r;
	if (fchmodat(p->from, name, OWNER_ALL, 0) < 0)
		return -1;
	fd = openat(p->from, name, dir_flags);
	r = fd < 0 ? -1 : renameat(p->from, name, p->to, name);
	return r < 0 ? r : fchmod(fd, mode & 07777);
}

/* Would `to` take it, as far as can be told beforehand? */
static bool takes(const struct pair *p, const struct stat *mine)
{
	struct stat its;

	if (faccessat(p->to, ".", W_OK | X_OK, AT_EACCESS) < 0 || fstat(p->to, &its) < 0)
		return false;
	errno = EXDEV;
	return mine->st_dev == its.st_dev;
}

static int walk(const struct pair *p, bool moves, struct err *e);

static int into(const struct pair *p, const char *name, bool moves, struct err *e)
{
	struct pair sub = { -1, -1 };
	int r = open_below(p, name, &sub, e);

	if (!r && (r = walk(&sub, moves, e)) < 0)
		err_wrap(e, "in '%s'", name);
	close_p(&sub.from);
	close_p(&sub.to);
	return r;
}

static int step(const struct pair *p, const char *name, bool moves, struct err *e)
{
	struct stat mine, its;
	bool there = fstatat(p->to, name, &its, AT_SYMLINK_NOFOLLOW) == 0;

	if (!there && errno != ENOENT)
		return err_set(e, errno, "look at '%s': %s", name, strerror(errno));
	if (fstatat(p->from, name, &mine, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "look at what is to be '%s': %s", name, strerror(errno));
	if (there && S_ISDIR(mine.st_mode) && S_ISDIR(its.st_mode))
		return into(p, name, moves, e);
	if (there && S_ISDIR(mine.st_mode))
		return err_set(e, EEXIST, "'%s' is no directory here", name);
	if (there && S_ISDIR(its.st_mode))
		return err_set(e, EEXIST, "'%s' is a directory here", name);
	if (moves ? move(p, name, mine.st_mode) < 0 : !takes(p, &mine))
		return err_set(e, errno, "put '%s' in its place: %s", name, strerror(errno));
	return 0;
}

/* The first pass only looks. */
static int walk(const struct pair *p, bool moves, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_close_ int fd = openat(p->from, ".", dir_flags);
	struct dirent *ent;
	int r = 0;

	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return err_set(e, errno, "read what came: %s", strerror(errno));
	take_fd(&fd);
	while (!r && (ent = readdir(d))) {
		if (!str_eq(ent->d_name, ".") && !str_eq(ent->d_name, ".."))
			r = step(p, ent->d_name, moves, e);
	}
	return r;
}

int merge_tree(const char *from, const char *to, struct err *e)
{
	_cleanup_close_ int mine = -1, its = -1;
	int r;

	(void)chmod(from, OWNER_ALL);
	mine = open(from, dir_flags);
	its = mine < 0 ? -1 : open(to, dir_flags);
	if (its < 0)
		return err_set(e, errno, "open '%s': %s", mine < 0 ? from : to, strerror(errno));
	r = walk(&(struct pair){ mine, its }, false, e);
	if (!r)
		r = walk(&(struct pair){ mine, its }, true, e);
	return r < 0 ? err_wrap(e, "into '%s'", to) : 0;
}

/* -- removing ------------------------------------------------------------------------------------- */

/* A directory gets a name of its own in `top`. */
static bool raise_one(int dir, const char *name, int top)
{
	static unsigned count;
	char spare[24];

	for (unsigned tries = 0; tries < SPARES; tries++) {
		snprintf(spare, sizeof(spare), "%u", ++count);
		if (renameat(dir, name, top, spare) == 0)
			return true;
		if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
			return false;
	}
	return false;
}

static bool clear(int dir, int top);

/* Only what is a directory for certain is made ours: a mode goes through links. */
static bool clear_one(int dir, const char *name, int top)
{
	_cleanup_close_ int sub = -1;

	if (unlinkat(dir, name, 0) == 0 || unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return true;
	if (errno != ENOTEMPTY)
		return false;
	(void)fchmodat(dir, name, OWNER_ALL, 0);
	if (dir != top)
		return raise_one(dir, name, top);
	sub = openat(dir, name, dir_flags);
	return sub >= 0 && clear(sub, top);
}

/* Did anything of what is in `dir` go? Directories that are not empty are put into `top`: however
 * deep a tree is, two descriptors and short names are enough. */
static bool clear(int dir, int top)
{
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_close_ int fd = openat(dir, ".", dir_flags);
	struct dirent *ent;
	bool some = false;

	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return false;
	take_fd(&fd);
	while ((ent = readdir(d))) {
		if (!str_eq(ent->d_name, ".") && !str_eq(ent->d_name, ".."))
			some |= clear_one(dir, ent->d_name, top);
	}
	return some;
}

void remove_tree(const char *path)
{
	_cleanup_close_ int top = -1;

	(void)chmod(path, OWNER_ALL);
	top = open(path, dir_flags);
	while (top >= 0 && clear(top, top))
		;
	(void)rmdir(path);
}
