/*
 * Listings in the order of names' bytes, a directory before what it holds, in pages that end
 * anywhere: what comes after the last entry of one page begins the next, and a directory is read
 * anew for it. Of a directory only the names that fit the page are held.
 *
 * The memory of the agent is not the sandbox's to use: where the names of all levels would be too
 * many, those of the highest are let go, and read again from where they were left. So are
 * descriptors below a depth, which are found again by their path.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_job.h"
#include "init/file_path.h"

enum {
	NAMES_MOST = 4 * 1024 * 1024, /* bytes of names held, by all levels but the deepest */
	DIRS_MOST = 64,               /* levels that hold their descriptor */
};

/* The smallest names seen, as a heap with the largest on top. */
struct names {
	struct names *above; /* of the directory this one is in */
	char **name;
	size_t count, room, most;
	size_t bytes;
	bool cut; /* larger ones were left out */
};

struct list {
	struct file_job *j;
	uint32_t left; /* entries of this page */
	bool more;
	int top;             /* the listed directory, the caller's */
	struct names *names; /* of the deepest level */
	size_t bytes;        /* of all levels' names */
	size_t base;         /* bytes of `path` before the listed directory's own */
	char path[FILE_PATH_MAX + 1];
};

static void names_drop(struct list *l, struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->name[i]);
	free(n->name);
	l->bytes -= n->bytes;
	n->name = NULL;
	n->count = n->room = n->bytes = 0;
}

/* Lets the names of the highest levels go; their directories are to be read again. */
static void make_room(struct list *l)
{
	while (l->bytes > NAMES_MOST) {
		struct names *highest = NULL;

		for (struct names *n = l->names->above; n; n = n->above) {
			if (n->count)
				highest = n;
		}
		if (!highest)
			return;
		names_drop(l, highest);
		highest->cut = true;
	}
}

static void sift_down(struct names *n)
{
	size_t at = 0;

	for (;;) {
		size_t child = 2 * at + 1;
		char *swap;

		if (child >= n->count)
			return;
		if (child + 1 < n->count && strcmp(n->name[child + 1], n->name[child]) > 0)
			child++;
		if (strcmp(n->name[child], n->name[at]) <= 0)
			return;
		swap = n->name[at];
		n->name[at] = n->name[child];
		n->name[child] = swap;
		at = child;
	}
}

static void sift_up(struct names *n)
{
	size_t at = n->count - 1;

	while (at && strcmp(n->name[(at - 1) / 2], n->name[at]) < 0) {
		char *swap = n->name[at];

		n->name[at] = n->name[(at - 1) / 2];
		n->name[(at - 1) / 2] = swap;
		at = (at - 1) / 2;
	}
}

static void account(struct list *l, struct names *n, const char *name, bool more)
{
	size_t bytes = sizeof(char *) + strlen(name) + 1;

	n->bytes += more ? bytes : -bytes;
	l->bytes += more ? bytes : -bytes;
}

static int names_grow(struct names *n)
{
	size_t room = n->room ? 2 * n->room : 16;
	char **list = reallocarray(n->name, room, sizeof(*list));

	if (!list)
		return -ENOMEM;
	n->name = list;
	n->room = room;
	return 0;
}

static int names_add(struct list *l, struct names *n, const char *name)
{
	char *copy;

	if (n->count == n->most) {
		n->cut = true;
		if (strcmp(name, n->name[0]) >= 0)
			return 0;
	} else if (n->count == n->room && names_grow(n) < 0) {
		return -ENOMEM;
	}
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	account(l, n, copy, true);
	if (n->count < n->most) {
		n->name[n->count++] = copy;
		sift_up(n);
	} else {
		account(l, n, n->name[0], false);
		free(n->name[0]);
		n->name[0] = copy;
		sift_down(n);
	}
	make_room(l);
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of `dir` from `first` on (`after`: behind it). */
static int names_read(struct list *l, struct names *n, int dir, const char *first, bool after)
{
	_cleanup_dir_ DIR *d = NULL;
	const struct dirent *entry;
	int fd = file_openat(dir, ".", O_RDONLY | O_DIRECTORY, 0, 0), r = 0;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	for (errno = 0; !r && (entry = readdir(d)); errno = 0) {
		int order = strcmp(entry->d_name, first);

		if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..") &&
		    (order > 0 || (order == 0 && !after)))
			r = names_add(l, n, entry->d_name);
	}
	if (!r && errno)
		r = -errno;
	if (n->count)
		qsort(n->name, n->count, sizeof(*n->name), by_bytes);
	return r;
}

static int list_dir(struct list *l, int *dir, size_t len, const char *cursor, unsigned depth,
		    struct err *e);

static bool is_gone(int fd)
{
	return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP;
}

/* What lies below `name`, whose path ends at `len`. `*dir` may be closed. */
static int descend(struct list *l, int *dir, const char *name, size_t len, const char *cursor,
		   unsigned depth, struct err *e)
{
	_cleanup_close_ int fd = file_openat(*dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
					     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

	/* meanwhile, or another thing by now; or one that not even root may look into */
	if (is_gone(fd) || fd == -EACCES)
		return 0;
	if (fd < 0)
		return file_err(e, fd, "open", l->path);
	if (depth > DIRS_MOST)
		close_p(dir);
	return list_dir(l, &fd, len, cursor, depth, e);
}

/* 0, or -ENOENT for one that is gone; `ret_dir`: it is a directory. */
static int put_one(struct list *l, int dir, const char *name, bool *ret_dir, struct err *e)
{
	struct agent_entry entry;
	int r = file_entry(dir, name, l->path + l->base, &entry);

	if (r == -ENOENT)
		return r;
	if (r < 0)
		return file_err(e, r, "look at", l->path);
	*ret_dir = entry.kind == ENTRY_DIR;
	file_put_entry(&l->j->out, &entry);
	l->left--;
	return file_job_push(l->j);
}

/* `cursor`: what is left of it below this directory, "" for none; it begins with `name` when the page
 * before ended at or below it. */
static int list_name(struct list *l, int *dir, const char *name, size_t len, const char *cursor,
		     unsigned depth, struct err *e)
{
	size_t n = strlen(name), at = len + (len > 0 && l->path[len - 1] != '/');
	bool resumed = *cursor && !strncmp(cursor, name, n) && (cursor[n] == '/' || !cursor[n]);
	bool directory = resumed;
	int r = 0;

	if (at + n > FILE_PATH_MAX)
		return file_err(e, ENAMETOOLONG, "list below", l->path);
	if (at > len)
		l->path[len] = '/';
	memcpy(l->path + at, name, n + 1);
	if (!resumed && !l->left)
		l->more = true;
	else if (!resumed)
		r = put_one(l, *dir, name, &directory, e);
	if (!r && !l->more && directory && l->j->req.flags & FILE_RECURSIVE)
		r = descend(l, dir, name, at + n, resumed && cursor[n] ? cursor + n + 1 : "",
			    depth + 1, e);
	l->path[len] = '\0';
	return r == -ENOENT ? 0 : r;
}

/* The directory that `path` is, where its descriptor was let go. */
static int again(const struct list *l, int *dir)
{
	if (*dir < 0)
		*dir = file_openat(l->top, l->path + l->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
				   0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	return *dir < 0 ? *dir : 0;
}

static int list_names(struct list *l, int *dir, size_t len, const char *cursor, char *first,
		      unsigned depth, struct err *e)
{
	const struct names *names = l->names;
	int r = 0;

	for (size_t i = 0; !r && !l->more && i < names->count; i++) {
		str_copy(first, FILE_NAME_MAX + 1, names->name[i]);
		r = again(l, dir);
		if (!r)
			r = list_name(l, dir, first, len, cursor, depth, e);
		else
			r = is_gone(r) ? -ENOENT : file_err(e, r, "open", l->path);
	}
	return r;
}

/* Some names at a time, the next ones behind the last. */
static int list_dir(struct list *l, int *dir, size_t len, const char *cursor, unsigned depth,
		    struct err *e)
{
	size_t first_len = strcspn(cursor, "/");
	char first[FILE_NAME_MAX + 1] = "";
	bool after = false, cut = true;
	int r = 0;

	if (first_len > FILE_NAME_MAX)
		return err_set(e, EINVAL, "the cursor is not one of ours");
	memcpy(first, cursor, first_len);
	while (!r && !l->more && cut) {
		struct names names = { .above = l->names, .most = (size_t)l->left + 2 };

		l->names = &names;
		r = again(l, dir);
		if (!r)
			r = names_read(l, &names, *dir, first, after);
		if (r == -ENOMEM)
			err_set(e, ENOMEM, "out of memory");
		else if (r == -EACCES && depth)
			r = 0;
		else if (r < 0)
			r = file_err(e, is_gone(r) ? -ENOENT : r, "read", l->path);
		else
			r = list_names(l, dir, len, cursor, first, depth, e);
		cut = names.cut;
		after = true;
		cursor = "";
		l->names = names.above;
		names_drop(l, &names);
	}
	return r;
}

int file_list(struct file_job *j, struct err *e)
{
	struct list l = { .j = j, .left = j->req.limit };
	struct stat st;
	_cleanup_close_ int dir = file_open(AT_FDCWD, j->req.path, O_RDONLY, &st, e);
	size_t len = strlen(j->req.path);
	int r;

	if (dir < 0)
		return dir;
	if (!S_ISDIR(st.st_mode))
		return file_err(e, ENOTDIR, "list", j->req.path);
	str_copy(l.path, sizeof(l.path), j->req.path);
	while (len && l.path[len - 1] == '/')
		l.path[--len] = '\0';
	l.base = len + 1;
	if (!len) /* "/" */
		l.path[len++] = '/';
	l.top = dir;
	r = list_dir(&l, &dir, len, j->req.to, 0, e);
	return r < 0 ? r : l.more ? FILE_MORE : 0;
}
