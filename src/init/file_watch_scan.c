#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include "init/file_nameless.h"
#include "init/file_path.h"
#include "init/file_walk.h"
#include "init/file_watch_priv.h"

enum { DRAIN_EVERY = 32 }; /* directories */

static const uint32_t gone_mask = IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
static const uint32_t all_mask = IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE |
				 IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;

/* By way of the working directory: a path could lead elsewhere by now. */
int watch_add(struct watch *w, int fd, bool all)
{
	const uint32_t mask =
		(all ? all_mask : gone_mask) | IN_ONLYDIR | IN_EXCL_UNLINK | IN_MASK_ADD;
	int wd;

	if (fchdir(fd) < 0)
		return -errno;
	wd = inotify_add_watch(w->inotify, ".", mask);
	wd = wd < 0 ? -errno : wd;
	(void)!chdir("/");
	return wd;
}

const char *watch_path(struct watch *w, const struct watch_dir *d, const char *name,
		       char ret[FILE_PATH_MAX + 1])
{
	char *at = ret + FILE_PATH_MAX;
	size_t len = d ? strlen(name) : 0, base = strlen(w->base);

	*at = '\0';
	if (!d)
		return base ? w->base : "/";
	if (len + 1 > FILE_PATH_MAX)
		return NULL;
	at -= len;
	memcpy(at, name, len);
	*--at = '/';
	at = watch_dir_path(d, at, (size_t)(at - ret));
	if (!at || (size_t)(at - ret) < base)
		return NULL;
	at -= base;
	memcpy(at, w->base, base);
	return at;
}

static int open_place(const struct watch *w, const struct watch_dir *d)
{
	char path[FILE_PATH_MAX + 1], *at = path + FILE_PATH_MAX;
	size_t len = strlen(w->leaf);

	*at = '\0';
	at = watch_dir_path(d, at, FILE_PATH_MAX);
	if (!at || (size_t)(at - path) < len)
		return -ENAMETOOLONG;
	at -= len;
	memcpy(at, w->leaf, len);
	return file_openat(w->above, at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

/* What is watched as `d`, if it is at its place: -ESTALE where another is. It is known by the watch, of
 * which a directory has one: numbers of inodes are used again. */
static int open_known(struct watch *w, const struct watch_dir *d)
{
	_cleanup_close_ int fd = open_place(w, d);
	int wd = fd < 0 ? fd : watch_add(w, fd, true);

	if (fd < 0)
		return fd;
	if (wd >= 0 && wd == d->wd)
		return take_fd(&fd);
	if (wd >= 0 && wd != w->above_wd && !watch_tree_by_wd(&w->tree, wd))
		inotify_rm_watch(w->inotify, wd);
	return -ESTALE;
}

/* In its parent, which is the one that is watched: a path may lead to others by now. */
static int open_dir(struct watch *w, const struct watch_dir *d)
{
	_cleanup_close_ int at = d->parent ? open_known(w, d->parent) : -1;

	if (!d->parent)
		return open_place(w, d);
	if (at < 0)
		return at;
	return file_openat(at, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

int watch_finds(struct watch *w, const struct watch_dir *d, const char *name, bool *ret_dir)
{
	_cleanup_close_ int at = open_known(w, d);
	struct stat st;

	if (at < 0)
		return at;
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	*ret_dir = S_ISDIR(st.st_mode);
	return 1;
}

bool watch_in_place(struct watch *w, const struct watch_dir *d)
{
	_cleanup_close_ int fd = open_known(w, d);

	return fd >= 0;
}

/* What cannot be watched: it went, it is not ours to see, or there is no room for it. */
static void without(struct watch *w, struct watch_dir *d, int code)
{
	bool gone = code == -ENOENT || code == -ENOTDIR || code == -ELOOP || code == -ESTALE;

	if (!gone && code != -EACCES)
		w->blind = true;
	if (!d->parent) {
		w->ended |= gone;
	} else if (gone) {
		watch_tree_strip(&w->tree, d);
		watch_tree_set_missed(&w->tree, d, true);
		w->missed_ns = clock_mono_ns();
	} else {
		watch_tree_remove(&w->tree, d);
	}
}

static bool is_dir(int fd, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static void push(struct watch *w, struct watch_dir *d)
{
	d->round = w->round;
	d->queued = true;
	d->todo = w->todo;
	w->todo = d;
}

static void see(struct watch *w, struct watch_dir *d, const char *name, bool dir, bool tell)
{
	char text[FILE_PATH_MAX + 1];
	const char *path = watch_path(w, d, name, text);
	struct watch_dir *c;

	if (!path) {
		w->blind = true;
		return;
	}
	if (tell && !nameless_is_temporary(name)) {
		watch_names_add(&w->found, d->wd, name);
		watch_tell(w, CHANGE_CREATED, dir, path, "");
	}
	if (!dir)
		return;
	c = watch_tree_find(&w->tree, d, name);
	if (!c)
		c = watch_tree_add(&w->tree, d, name);
	if (c)
		push(w, c);
	else
		w->blind = true;
}

/* One that is known elsewhere has come from there: it is told anew, and its watch is one that says
 * nothing of the time before. */
static int watch_anew(struct watch *w, struct watch_dir *had, int fd)
{
	char text[FILE_PATH_MAX + 1];
	const char *path = watch_path(w, had->parent, had->name, text);

	if (path)
		watch_tell(w, CHANGE_DELETED, true, path, "");
	else
		w->blind = true;
	watch_tree_remove(&w->tree, had);
	return watch_add(w, fd, true);
}

/* The watch comes first: what is made during the scan is seen by one of them. */
static void scan(struct watch *w, struct watch_dir *d, bool tell)
{
	_cleanup_dir_ DIR *list = NULL;
	struct watch_dir *had;
	const struct dirent *entry;
	int fd = open_dir(w, d), wd;

	if (fd < 0) {
		without(w, d, fd);
		return;
	}
	list = fdopendir(fd);
	if (!list) {
		close(fd);
		without(w, d, -ENOMEM);
		return;
	}
	watch_tree_set_missed(&w->tree, d, false);
	if (d->parent && file_of_kernel(fd))
		return;
	wd = watch_add(w, fd, true);
	if (wd < 0) {
		without(w, d, wd);
		return;
	}
	had = watch_tree_by_wd(&w->tree, wd);
	if (had && had != d && watch_dir_within(d, had)) {
		w->lost |= tell;
		watch_tree_remove(&w->tree, d); /* mounted below itself */
		return;
	}
	if (tell && had && had != d) {
		w->lost |= watch_dir_queued(had);
		if (!w->lost)
			wd = watch_anew(w, had, fd);
		if (wd < 0) {
			without(w, d, wd);
			return;
		}
	}
	watch_tree_set_wd(&w->tree, d, wd);
	while ((entry = readdir(list))) {
		if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, ".."))
			see(w, d, entry->d_name, is_dir(fd, entry), tell);
	}
}

static int scan_all(struct watch *w, bool tell)
{
	int r = 0;

	for (unsigned n = 1; w->todo && !r; n++) {
		struct watch_dir *d = w->todo;

		w->todo = d->todo;
		d->todo = NULL;
		d->queued = false;
		scan(w, d, tell);
		r = n % DRAIN_EVERY == 0 || !w->todo ? watch_drain(w) : 0;
	}
	return r;
}

int watch_cover(struct watch *w, struct watch_dir *d, const char *name)
{
	struct watch_dir *c = watch_tree_add(&w->tree, d, name);

	if (!c) {
		w->blind = true;
		return 0;
	}
	push(w, c);
	return scan_all(w, true);
}

static void push_missed(struct watch *w, struct watch_dir *d)
{
	if (d->missed)
		push(w, d);
	for (struct watch_dir *c = d->child; c; c = c->next)
		push_missed(w, c);
}

int watch_cover_missed(struct watch *w, struct watch_dir *d)
{
	if (w->tree.missed)
		push_missed(w, d);
	return scan_all(w, true);
}

int watch_look(struct watch *w)
{
	struct stat st;
	int r;

	w->blind = false;
	w->round++;
	if (w->file) {
		w->ended |= fstatat(w->above, w->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0;
		return 0;
	}
	if (!w->tree.root && !watch_tree_add(&w->tree, NULL, ""))
		return 0;
	push(w, w->tree.root);
	r = scan_all(w, false);
	if (!r)
		watch_tree_sweep(&w->tree, w->tree.root, w->round);
	return r;
}
