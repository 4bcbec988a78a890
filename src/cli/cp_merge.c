#include "cp_merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

enum { OWNER_ALL = 0700 };

/* Two directories of one name. */
struct pair {
	int from, to;
};

/* What `from` has must be ours to read and change; its mode is to be that of `to` anyway. */
static int open_below(const struct pair *up, const char *name, struct pair *ret, struct err *e)
{
	static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

	(void)fchmodat(up->from, name, OWNER_ALL, 0);
	ret->from = openat(up->from, name, flags);
	ret->to = ret->from < 0 ? -1 : openat(up->to, name, flags);
	return ret->to < 0 ? err_set(e, errno, "open '%s': %s", name, strerror(errno)) : 0;
}

/* A directory that changes its parent must be writable itself. */
static int move(const struct pair *p, const char *name, mode_t mode)
{
	int r = renameat(p->from, name, p->to, name);

	if (r < 0 && errno == EACCES && S_ISDIR(mode) &&
	    fchmodat(p->from, name, OWNER_ALL, 0) == 0) {
		r = renameat(p->from, name, p->to, name);
		if (r == 0)
			r = fchmodat(p->to, name, mode & 07777, 0);
	}
	return r;
}

static int walk(const struct pair *p, bool moves, struct err *e);

static int into(const struct pair *p, const char *name, bool moves, struct err *e)
{
	struct pair sub = { -1, -1 };
	int r = open_below(p, name, &sub, e);

	if (!r)
		r = walk(&sub, moves, e);
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
	if (moves && move(p, name, mine.st_mode) < 0)
		return err_set(e, errno, "put '%s' in its place: %s", name, strerror(errno));
	return 0;
}

/* The first pass only looks. */
static int walk(const struct pair *p, bool moves, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_close_ int fd = openat(p->from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
	mine = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	its = mine < 0 ? -1 : open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (its < 0)
		return err_set(e, errno, "open '%s': %s", mine < 0 ? from : to, strerror(errno));
	r = walk(&(struct pair){ mine, its }, false, e);
	if (!r)
		r = walk(&(struct pair){ mine, its }, true, e);
	return r < 0 ? err_wrap(e, "into '%s'", to) : 0;
}

void remove_tree(const char *path)
{
	FTS *tree = fts_open((char *[]){ (char *)path, NULL }, FTS_PHYSICAL | FTS_XDEV, NULL);
	FTSENT *ent;

	while (tree && (ent = fts_read(tree))) {
		if (ent->fts_info == FTS_D)
			(void)chmod(ent->fts_accpath, OWNER_ALL);
		else
			(void)remove(ent->fts_accpath);
	}
	if (tree)
		fts_close(tree);
}
