#include <string.h>
#include <sys/inotify.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/str.h"

#include "init/file_nameless.h"
#include "init/file_watch_priv.h"

struct event {
	char name[FILE_NAME_MAX + 1];
	bool dir;
	struct inotify_event about; /* without the name that follows it */
};

static void tell(struct watch *w, enum file_change change, const struct watch_dir *d,
		 const struct event *v)
{
	char text[FILE_PATH_MAX + 1];
	const char *path = watch_path(w, d, v->name, text);

	if (path)
		watch_tell(w, change, v->dir, path, "");
	else
		w->blind = true; /* it cannot be named */
}

/* -- moves --------------------------------------------------------------------------------------- */

static void drop_move(struct watch *w, struct watch_move *m)
{
	w->moves--;
	memmove(m, m + 1, (size_t)(w->move + w->moves - m) * sizeof(*m));
}

/* It went out of the tree. */
static void went(struct watch *w, struct watch_move *m)
{
	struct watch_dir *d = watch_tree_by_wd(&w->tree, m->wd);
	char text[FILE_PATH_MAX + 1];
	const char *path = d ? watch_path(w, d, m->name, text) : NULL;

	/* by what is above it now; with that gone, it is gone too */
	if (m->unseen)
		; /* it was told to nobody */
	else if (path)
		watch_tell(w, CHANGE_DELETED, m->dir, path, "");
	else if (d)
		w->blind = true;
	if (d && m->dir)
		watch_tree_remove(&w->tree, watch_tree_find(&w->tree, d, m->name));
	drop_move(w, m);
}

void watch_expire(struct watch *w, uint64_t now_ns)
{
	while (w->moves && w->move[0].until_ns <= now_ns)
		went(w, &w->move[0]);
}

void watch_forget_moves(struct watch *w)
{
	while (w->moves)
		drop_move(w, &w->move[w->moves - 1]);
}

/* Something new stands where a move began: that has come to nothing, or ended out of sight. */
static void settle(struct watch *w, int wd, const char *name)
{
	for (unsigned i = 0; i < w->moves; i++) {
		if (w->move[i].wd == wd && str_eq(w->move[i].name, name)) {
			went(w, &w->move[i]);
			return;
		}
	}
}

static int on_from(struct watch *w, struct watch_dir *d, const struct event *v)
{
	struct watch_move *m;

	watch_names_drop(&w->modified, d->wd, v->name);
	watch_names_drop(&w->found, d->wd, v->name);
	if (w->moves == WATCH_MOVES)
		went(w, &w->move[0]);
	m = &w->move[w->moves++];
	*m = (struct watch_move){
		.cookie = v->about.cookie,
		.wd = d->wd,
		.dir = v->dir,
		.until_ns = clock_mono_ns() + WATCH_MOVE_MS * NS_PER_MS,
	};
	str_copy(m->name, sizeof(m->name), v->name);
	return 0;
}

static struct watch_move *first_half(struct watch *w, uint32_t cookie)
{
	for (unsigned i = 0; i < w->moves; i++) {
		if (w->move[i].cookie == cookie)
			return &w->move[i];
	}
	return NULL;
}

static int come(struct watch *w, struct watch_dir *d, const struct event *v)
{
	bool found = watch_names_drop(&w->found, d->wd, v->name);
	struct watch_dir *known = watch_tree_find(&w->tree, d, v->name);

	if (!found)
		tell(w, CHANGE_CREATED, d, v);
	if (!v->dir || (known && found))
		return 0;
	/* one that a walk saw before this event: what is in it was told to be gone with what was here */
	watch_tree_remove(&w->tree, known);
	return watch_cover(w, d, v->name);
}

/* The directory of a move takes its new place, with all below it. */
static int take_along(struct watch *w, const struct watch_move *m, struct watch_dir *d,
		      const char *name)
{
	struct watch_dir *from = watch_tree_by_wd(&w->tree, m->wd);
	struct watch_dir *moved = from ? watch_tree_find(&w->tree, from, m->name) : NULL;
	struct watch_dir *there = watch_tree_find(&w->tree, d, name);

	/* one that was not found below it is there now, and not known */
	w->lost |= w->missed;
	if (!moved && !there)
		return watch_cover(w, d, name);
	/* two that changed places cannot be told from one that took the other's; nor is it known what was
	 * told of one that is elsewhere again */
	if (there || !watch_tree_move(&w->tree, moved, d, name) || !watch_in_place(w, moved))
		w->lost = true;
	return 0;
}

static int on_modified(struct watch *w, struct watch_dir *d, const struct event *v)
{
	if (watch_names_add(&w->modified, d->wd, v->name))
		tell(w, CHANGE_MODIFIED, d, v);
	return 0;
}

static int on_to(struct watch *w, struct watch_dir *d, const struct event *v)
{
	char text[FILE_PATH_MAX + 1], from_text[FILE_PATH_MAX + 1];
	const char *path = watch_path(w, d, v->name, text), *from;
	struct watch_dir *left;
	struct watch_move *m;
	int r;

	settle(w, d->wd, v->name);
	m = first_half(w, v->about.cookie);
	if (m && m->unseen) { /* it took the place of one that was there */
		drop_move(w, m);
		return on_modified(w, d, v);
	}
	left = m ? watch_tree_by_wd(&w->tree, m->wd) : NULL;
	from = left ? watch_path(w, left, m->name, from_text) : NULL;
	watch_names_drop(&w->modified, d->wd, v->name);
	if (!from || !path || watch_names_drop(&w->found, d->wd, v->name)) {
		/* it came from elsewhere, or was told already */
		if (m) {
			went(w, m);
			if (from)
				return 0;
		}
		return come(w, d, v);
	}
	watch_tell(w, CHANGE_MOVED, v->dir, path, from);
	r = v->dir ? take_along(w, m, d, v->name) : 0;
	drop_move(w, m);
	return r;
}

/* -- other events -------------------------------------------------------------------------------- */

static int on_create(struct watch *w, struct watch_dir *d, const struct event *v)
{
	settle(w, d->wd, v->name);
	watch_names_drop(&w->modified, d->wd, v->name);
	return come(w, d, v);
}

static int on_attributes(struct watch *w, struct watch_dir *d, const struct event *v)
{
	/* a file without a name has one of the kernel's in events */
	if (nameless_is_kernels(v->name) && !watch_is_there(w, d, v->name))
		return 0;
	tell(w, CHANGE_ATTRIBUTES, d, v);
	return 0;
}

static int on_delete(struct watch *w, struct watch_dir *d, const struct event *v)
{
	watch_names_drop(&w->modified, d->wd, v->name);
	watch_names_drop(&w->found, d->wd, v->name);
	tell(w, CHANGE_DELETED, d, v);
	if (v->dir)
		watch_tree_remove(&w->tree, watch_tree_find(&w->tree, d, v->name));
	return 0;
}

static const struct {
	uint32_t bit;
	int (*on)(struct watch *w, struct watch_dir *d, const struct event *v);
} handlers[] = {
	{ IN_CREATE, on_create },     { IN_MODIFY, on_modified }, { IN_CLOSE_WRITE, on_modified },
	{ IN_ATTRIB, on_attributes }, { IN_DELETE, on_delete },   { IN_MOVED_FROM, on_from },
	{ IN_MOVED_TO, on_to },
};

/* Of a file that has not got its name yet. */
static int on_temporary(struct watch *w, struct watch_dir *d, const struct event *v)
{
	if (!(v->about.mask & IN_MOVED_FROM))
		return 0;
	on_from(w, d, v);
	w->move[w->moves - 1].unseen = true;
	return 0;
}

/* What is watched as its directory sees it: all of a file's changes, of a directory its own. */
static void on_above(struct watch *w, const struct event *v)
{
	const uint32_t over = IN_DELETE | IN_MOVED_FROM | (w->file ? 0 : IN_MOVED_TO);
	const uint32_t mask = v->about.mask;
	char text[FILE_PATH_MAX + 1];
	const char *path = watch_path(w, NULL, NULL, text);

	if (!str_eq(v->name, w->leaf)) {
		w->ended |= !v->name[0] && (mask & (IN_IGNORED | IN_UNMOUNT)) != 0;
		return;
	}
	if (mask & over) {
		watch_tell(w, CHANGE_DELETED, v->dir, path, "");
		w->ended = true;
	} else if (mask & IN_ATTRIB) {
		watch_tell(w, CHANGE_ATTRIBUTES, v->dir, path, "");
	} else if (w->file && watch_names_add(&w->modified, w->above_wd, w->leaf)) {
		watch_tell(w, CHANGE_MODIFIED, false, path, "");
	}
}

/* Of a watched directory itself. */
static void on_self(struct watch *w, struct watch_dir *d, const struct event *v)
{
	char text[FILE_PATH_MAX + 1];
	const uint32_t over = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED;

	if (!d->parent && v->about.mask & over)
		w->ended = true;
	else if (!d->parent && v->about.mask & IN_ATTRIB && w->above_wd < 0)
		watch_tell(w, CHANGE_ATTRIBUTES, true, watch_path(w, NULL, NULL, text), "");
	else if (v->about.mask & IN_UNMOUNT)
		w->lost = true; /* what it covered is there again */
	else if (v->about.mask & IN_IGNORED)
		watch_tree_set_wd(&w->tree, d, -1);
}

static int on_event(struct watch *w, const struct event *v)
{
	struct watch_dir *d;

	if (v->about.mask & IN_Q_OVERFLOW) {
		w->lost = true;
		return 0;
	}
	if (w->above_wd >= 0 && v->about.wd == w->above_wd)
		on_above(w, v);
	d = watch_tree_by_wd(&w->tree, v->about.wd);
	if (!d || w->ended)
		return 0;
	if (!v->name[0]) {
		on_self(w, d, v);
		return 0;
	}
	if (nameless_is_temporary(v->name))
		return on_temporary(w, d, v);
	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		if (v->about.mask & handlers[i].bit)
			return handlers[i].on(w, d, v);
	}
	return 0;
}

/* Those that come while a directory is scanned are part of the batch: so what the scan found is told
 * once. */
int watch_events(struct watch *w)
{
	size_t at = 0;
	int r = 0;

	while (!r && !w->lost && !w->ended && at + sizeof(struct inotify_event) <= w->raw.len) {
		struct event v = { 0 };

		memcpy(&v.about, w->raw.data + at, sizeof(v.about));
		at += sizeof(v.about);
		if (v.about.len)
			str_copy(v.name, sizeof(v.name), w->raw.data + at);
		at += v.about.len;
		v.dir = v.about.mask & IN_ISDIR;
		r = on_event(w, &v);
	}
	buf_clear(&w->raw);
	watch_names_clear(&w->modified);
	watch_names_clear(&w->found);
	return r;
}
