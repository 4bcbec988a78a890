/*
 * Removes what stands at a path, and all below it. No link is followed, no mount point entered; where
 * the kernel tells what is mounted below, nothing is removed at all.
 *
 * Without recursion, and with LEVELS descriptors however deep the tree is: the directories next to
 * the one that is emptied are held open. One above these is found again by "..", and must be the one
 * it was. A name is tried again when all below it has gone, and so on up to the first.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_job.h"
#include "init/file_mounts.h"
#include "init/file_path.h"

enum {
	LEVELS = 64,
	NAMES_SIZE = 8 * 1024, /* bytes of names read at a time, by each */
	AGAIN_MOST = 16,       /* a directory that somebody fills is given up */
	DEPTH_MOST = 1024 * 1024,
};

struct dirent64_kernel {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

/* A directory on the way. */
struct place {
	dev_t dev;
	ino_t ino;
	unsigned again; /* how often one name in it was entered */
};

/* One that is open. */
struct level {
	int fd;
	size_t depth;
	long len, at, last; /* of `names`: read, next, the one before */
	_Alignas(struct dirent64_kernel) char names[NAMES_SIZE];
};

struct walk {
	struct place *way;
	size_t depth, room; /* of `way`: in use, allocated */
};

static struct level held[LEVELS];

static struct level *level_of(size_t depth)
{
	return &held[(depth - 1) % LEVELS];
}

/* 0: it is gone; 1: a directory that is not empty. */
static int try_one(int dir, const char *name, bool directory)
{
	int r = directory ? -EISDIR : unlinkat(dir, name, 0) < 0 ? -errno : 0;

	if (r == -EISDIR || r == -EPERM) {
		if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
			return 0;
		if (errno != ENOTDIR)
			r = -errno;
		else if (r == -EISDIR) /* by now another thing */
			r = unlinkat(dir, name, 0) < 0 ? -errno : 0;
	}
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 1;
	return r == -ENOENT ? 0 : r;
}

static int way_add(struct walk *w, const struct stat *st)
{
	if (w->depth == w->room) {
		size_t room = w->room ? 2 * w->room : LEVELS;
		struct place *way =
			room > DEPTH_MOST ? NULL : reallocarray(w->way, room, sizeof(*way));

		if (!way)
			return -ENOMEM;
		w->way = way;
		w->room = room;
	}
	w->way[w->depth++] = (struct place){ st->st_dev, st->st_ino, 0 };
	return 0;
}

/* Takes `fd`, the directory at `w->depth`. */
static void hold(struct walk *w, int fd)
{
	struct level *l = level_of(w->depth);

	if (l->depth)
		close(l->fd);
	l->fd = fd;
	l->depth = w->depth;
	l->len = l->at = l->last = 0;
}

/* 0 when it was entered, or is not there any more. */
static int enter(struct walk *w, int dir, const char *name)
{
	_cleanup_close_ int fd = file_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
					     RESOLVE_NO_XDEV | RESOLVE_BENEATH);
	struct stat st;
	int r;

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0; /* tried again under that name */
	if (fd < 0)
		return fd == -EXDEV ? -EBUSY : fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = way_add(w, &st);
	if (!r)
		hold(w, take_fd(&fd));
	return r;
}

/* Back to the directory above. */
static int leave(struct walk *w)
{
	struct level *from = level_of(w->depth), *to;
	const struct place *want;
	struct stat st;
	int r = 0;

	w->depth--;
	to = w->depth ? level_of(w->depth) : NULL;
	if (to && to->depth != w->depth) {
		_cleanup_close_ int fd =
			file_openat(from->fd, "..", O_RDONLY | O_DIRECTORY, 0, RESOLVE_NO_XDEV);

		want = &w->way[w->depth - 1];
		if (fd < 0)
			r = fd == -EXDEV ? -EBUSY : fd;
		else if (fstat(fd, &st) < 0)
			r = -errno;
		else if (st.st_dev != want->dev || st.st_ino != want->ino)
			r = -EBUSY; /* somebody moves what is to go */
		else
			hold(w, take_fd(&fd));
	} else if (to) {
		to->at = to->last; /* the name that was entered */
	}
	close(from->fd);
	from->depth = 0;
	return r;
}

/* The next name in the directory: 1, or 0 after the last. */
static int next_name(struct level *l, const struct dirent64_kernel **ret)
{
	for (;;) {
		if (l->at >= l->len) {
			l->len = syscall(SYS_getdents64, l->fd, l->names, NAMES_SIZE);
			l->at = 0;
			if (l->len <= 0)
				return l->len < 0 && errno != ENOENT ? -errno : 0;
		}
		*ret = (const void *)(l->names + l->at);
		l->last = l->at;
		l->at += (*ret)->len;
		if (!str_eq((*ret)->name, ".") && !str_eq((*ret)->name, ".."))
			return 1;
	}
}

static int remove_name(struct walk *w, int dir, const char *name, bool directory, unsigned *again)
{
	int r = try_one(dir, name, directory);

	if (!r)
		*again = 0;
	else if (r > 0)
		r = ++*again > AGAIN_MOST ? -ENOTEMPTY : enter(w, dir, name);
	return r;
}

static int failed(struct walk *w, int code, const char *name, const char *path, struct err *e)
{
	char full[2 * FILE_PATH_MAX], at[FILE_PATH_MAX + 1];

	if (w->depth && level_of(w->depth)->depth && fchdir(level_of(w->depth)->fd) == 0 &&
	    getcwd(at, sizeof(at)) &&
	    snprintf(full, sizeof(full), "%s%s%s", at, *name ? "/" : "", name) < (int)sizeof(full))
		path = full;
	return file_err(e, code, "remove", path);
}

/* One name of the directory, or back from it; `ret_name` is what an error is about. */
static int step(struct walk *w, const char **ret_name)
{
	const struct dirent64_kernel *entry = NULL;
	struct level *l = level_of(w->depth);
	int r = next_name(l, &entry);

	*ret_name = r > 0 && entry ? entry->name : "";
	if (r <= 0 || !entry)
		return r < 0 ? r : leave(w);
	return remove_name(w, l->fd, entry->name, entry->type == DT_DIR,
			   &w->way[w->depth - 1].again);
}

/* All below the directory that was entered. */
static int empty(struct walk *w, const char *path, struct err *e)
{
	while (w->depth) {
		const char *name;
		int r = step(w, &name);

		if (r < 0)
			return failed(w, r, name, path, e);
	}
	return 0;
}

/* Looked for before anything goes. */
static int refuse_mounts(int dir, const char *leaf, const char *path, struct err *e)
{
	char at[FILE_PATH_MAX + 1], mounted[FILE_PATH_MAX + 1];
	_cleanup_close_ int fd = file_openat(dir, leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0,
					     RESOLVE_NO_XDEV | RESOLVE_BENEATH);

	if (fd == -EXDEV)
		return file_err(e, EBUSY, "remove", path);
	/* an error here is one that comes again, or a path too long to have mounts below */
	if (fd < 0 || fchdir(fd) < 0 || !getcwd(at, sizeof(at)))
		return 0;
	return file_mount_below(at, mounted) ? file_err(e, EBUSY, "remove", mounted) : 0;
}

int file_remove(struct file_job *j, struct err *e)
{
	const char *path = j->req.path;
	char leaf[FILE_NAME_MAX + 1];
	_cleanup_close_ int dir = -1;
	unsigned again = 0;
	struct walk w = { 0 };
	struct stat st;
	int r;

	if (path[strspn(path, "/")] == '\0')
		return file_err(e, EBUSY, "remove", path);
	dir = file_parent(path, leaf, e);
	if (dir < 0)
		return dir;
	if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return file_err(e, errno, "remove", path);
	if (S_ISDIR(st.st_mode) && (r = refuse_mounts(dir, leaf, path, e)) < 0)
		return r;
	do {
		r = remove_name(&w, dir, leaf, S_ISDIR(st.st_mode), &again);
		if (r < 0)
			file_err(e, r, "remove", path);
		else
			r = empty(&w, path, e);
	} while (!r && again);
	free(w.way);
	return r;
}
