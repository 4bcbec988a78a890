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

/* Two that changed places with one outside are told as the other's coming and this one's going: what
 * stands there now is told anew. */
static int went_out(struct watch *w, struct watch_move *m)
{
	struct watch_dir *d = watch_tree_by_wd(&w->tree, m->wd);
	struct event there = { 0 };
	bool unseen = m->unseen;
	int r;

	str_copy(there.name, sizeof(there.name), m->name);
	went(w, m);
	if (!d || unseen)
		return 0;
	r = watch_finds(w, d, there.name, &there.dir);
	w->lost |= r < 0;
	if (r <= 0)
		return 0;
	r = come(w, d, &there);
	watch_names_add(&w->found, d->wd, there.name);
	return r < 0 ? r : watch_drain(w);
}

int watch_expire(struct watch *w, uint64_t now_ns)
{
	int r = 0;

	while (!r && w->moves && w->move[0].until_ns <= now_ns)
		r = went_out(w, &w->move[0]);
	return r;
}

void watch_forget_moves(struct watch *w)
{
	while (w->moves)
		drop_move(w, &w->move[w->moves - 1]);
	w->pairs = 0;
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
	int r = 0;

	watch_names_drop(&w->modified, d->wd, v->name);
	watch_names_drop(&w->found, d->wd, v->name);
	if (w->moves == WATCH_MOVES)
		r = went_out(w, &w->move[0]); /* perhaps with `d` in it */
	m = &w->move[w->moves++];
	*m = (struct watch_move){
		.cookie = v->about.cookie,
		.wd = v->about.wd,
		.dir = v->dir,
		.until_ns = clock_mono_ns() + WATCH_MOVE_MS * NS_PER_MS,
	};
	str_copy(m->name, sizeof(m->name), v->name);
	return r;
}

static struct watch_move *first_half(struct watch *w, uint32_t cookie)
{
	for (unsigned i = 0; i < w->moves; i++) {
		if (w->move[i].cookie == cookie)
			return &w->move[i];
	}
	return NULL;
}

/* The directory of a move takes its new place, with all below it. */
static int take_along(struct watch *w, const struct watch_move *m, struct watch_dir *d,
		      const char *name)
{
	struct watch_dir *from = watch_tree_by_wd(&w->tree, m->wd);
	struct watch_dir *moved = from ? watch_tree_find(&w->tree, from, m->name) : NULL;
	struct watch_dir *there = watch_tree_find(&w->tree, d, name);

	if (!moved && !there)
		return watch_cover(w, d, name);
	/* two that changed places cannot be told from one that took the other's; nor is it known what was
	 * told of one that is elsewhere again */
	if (there || !watch_tree_move(&w->tree, moved, d, name) ||
	    (!moved->missed && !watch_in_place(w, moved))) {
		w->lost = true;
		return 0;
	}
	return watch_cover_missed(w, moved);
}

/* Its mirror image was told: so two have changed places, unless one went and came back. */
static bool is_mirrored(const struct watch *w, const struct watch_move *m, const struct event *v)
{
	for (unsigned i = 0; i < WATCH_PAIRS && i < w->pairs; i++) {
		const struct watch_pair *p = &w->pair[i];

		/* of two directories the tree knows */
		if (!(p->dir && v->dir) && p->from_wd == v->about.wd && p->to_wd == m->wd &&
		    str_eq(p->from, v->name) && str_eq(p->to, m->name))
			return true;
	}
	return false;
}

static void keep_pair(struct watch *w, const struct watch_move *m, const struct event *v)
{
	struct watch_pair *p = &w->pair[w->pairs++ % WATCH_PAIRS];

	p->from_wd = m->wd;
	p->to_wd = v->about.wd;
	p->dir = v->dir;
	str_copy(p->from, sizeof(p->from), m->name);
	str_copy(p->to, sizeof(p->to), v->name);
}

/* The other one has been told to be where this one comes from. */
static int come_mirrored(struct watch *w, struct watch_move *m, struct watch_dir *left,
			 struct watch_dir *d, const struct event *v)
{
	bool dir;
	int r = watch_finds(w, left, m->name, &dir);

	w->lost |= r < 0;
	if (!r) {
		went(w, m);
	} else {
		if (m->dir)
			watch_tree_remove(&w->tree, watch_tree_find(&w->tree, left, m->name));
		drop_move(w, m);
	}
	d = watch_tree_by_wd(&w->tree, v->about.wd);
	return d ? come(w, d, v) : 0;
}

/* `left`: what it came from. */
static int arrive(struct watch *w, struct watch_move *m, struct watch_dir *left,
		  struct watch_dir *d, const struct event *v)
{
	char text[FILE_PATH_MAX + 1], from_text[FILE_PATH_MAX + 1];
	const char *path = watch_path(w, d, v->name, text);
	const char *from = watch_path(w, left, m->name, from_text);
	bool mirrored = is_mirrored(w, m, v);
	int r;

	keep_pair(w, m, v);
	if (mirrored)
		return come_mirrored(w, m, left, d, v);
	w->blind |= !from || !path;
	if (!from || !path || watch_names_drop(&w->found, d->wd, v->name)) {
		went(w, m); /* it was told already, or cannot be named */
		d = watch_tree_by_wd(&w->tree, v->about.wd);
		return from || !d ? 0 : come(w, d, v);
	}
	watch_tell(w, CHANGE_MOVED, v->dir, path, from);
	r = v->dir ? take_along(w, m, d, v->name) : 0;
	drop_move(w, m);
	return r;
}

static int on_modified(struct watch *w, struct watch_dir *d, const struct event *v)
{
	if (watch_names_add(&w->modified, d->wd, v->name))
		tell(w, CHANGE_MODIFIED, d, v);
	return 0;
}

static int on_to(struct watch *w, struct watch_dir *d, const struct event *v)
{
	struct watch_move *m;
	struct watch_dir *left;

	settle(w, d->wd, v->name);
	m = first_half(w, v->about.cookie);
	if (m && m->unseen) { /* it took the place of one that was there */
		drop_move(w, m);
		return on_modified(w, d, v);
	}
	watch_names_drop(&w->modified, d->wd, v->name);
	left = m ? watch_tree_by_wd(&w->tree, m->wd) : NULL;
	if (left)
		return arrive(w, m, left, d, v);
	if (m)
		drop_move(w, m);
	return come(w, d, v);
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
	bool dir;

	/* a file without a name has one of the kernel's in events */
	if (nameless_is_kernels(v->name) && !watch_finds(w, d, v->name, &dir))
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
	int r;

	if (!(v->about.mask & IN_MOVED_FROM))
		return 0;
	r = on_from(w, d, v);
	w->move[w->moves - 1].unseen = true;
	return r;
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
