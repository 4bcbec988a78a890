#include "init/watch_tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "base/banned.h"
#include "base/str.h"

static struct watch_dir **wd_bucket(struct watch_tree *t, int wd)
{
	return &t->by_wd[(unsigned)wd % WATCH_BUCKETS];
}

static size_t name_bucket(const struct watch_dir *parent, const char *name)
{
	uint64_t hash = 14695981039346656037u ^ (uintptr_t)parent;

	for (const unsigned char *p = (const unsigned char *)name; *p; p++)
		hash = (hash ^ *p) * 1099511628211u;
	return (size_t)((hash ^ hash >> 32) % WATCH_BUCKETS);
}

static void unlist_wd(struct watch_tree *t, struct watch_dir *d)
{
	struct watch_dir **at;

	if (d->wd < 0)
		return;
	for (at = wd_bucket(t, d->wd); *at != d; at = &(*at)->same_wd)
		;
	*at = d->same_wd;
	d->wd = -1;
}

/* Into its parent's children and the table of names. */
static void enter(struct watch_tree *t, struct watch_dir *d)
{
	struct watch_dir **first = d->parent ? &d->parent->child : &t->root;
	struct watch_dir **bucket = &t->by_name[name_bucket(d->parent, d->name)];

	d->next = *first;
	if (d->next)
		d->next->at = &d->next;
	d->at = first;
	*first = d;
	d->same_name = *bucket;
	*bucket = d;
}

static void leave(struct watch_tree *t, struct watch_dir *d)
{
	struct watch_dir **at = &t->by_name[name_bucket(d->parent, d->name)];

	while (*at != d)
		at = &(*at)->same_name;
	*at = d->same_name;
	*d->at = d->next;
	if (d->next)
		d->next->at = d->at;
}

struct watch_dir *watch_tree_add(struct watch_tree *t, struct watch_dir *parent, const char *name)
{
	struct watch_dir *d = t->count < WATCH_DIRS_MOST ? calloc(1, sizeof(*d)) : NULL;

	if (!d)
		return NULL;
	d->name = strdup(name);
	if (!d->name) {
		free(d);
		return NULL;
	}
	d->wd = -1;
	d->parent = parent;
	enter(t, d);
	t->count++;
	return d;
}

void watch_tree_set_missed(struct watch_tree *t, struct watch_dir *d, bool missed)
{
	t->missed -= d->missed;
	t->missed += missed;
	d->missed = missed;
}

void watch_tree_strip(struct watch_tree *t, struct watch_dir *d)
{
	while (d->child)
		watch_tree_remove(t, d->child);
	if (d->wd >= 0)
		inotify_rm_watch(t->inotify, d->wd);
	unlist_wd(t, d);
}

void watch_tree_remove(struct watch_tree *t, struct watch_dir *d)
{
	if (!d)
		return;
	watch_tree_strip(t, d);
	watch_tree_set_missed(t, d, false);
	leave(t, d);
	t->count--;
	free(d->name);
	free(d);
}

bool watch_dir_within(const struct watch_dir *d, const struct watch_dir *above)
{
	while (d && d != above)
		d = d->parent;
	return d != NULL;
}

bool watch_dir_queued(const struct watch_dir *d)
{
	bool found = d->queued;

	for (const struct watch_dir *c = d->child; c && !found; c = c->next)
		found = watch_dir_queued(c);
	return found;
}

bool watch_tree_move(struct watch_tree *t, struct watch_dir *d, struct watch_dir *parent,
		     const char *name)
{
	char *copy = watch_dir_within(parent, d) ? NULL : strdup(name);

	if (!copy)
		return false;
	leave(t, d);
	free(d->name);
	d->name = copy;
	d->parent = parent;
	enter(t, d);
	return true;
}

void watch_tree_sweep(struct watch_tree *t, struct watch_dir *d, uint32_t round)
{
	for (struct watch_dir *c = d->child, *next; c; c = next) {
		next = c->next;
		if (c->round != round)
			watch_tree_remove(t, c);
		else
			watch_tree_sweep(t, c, round);
	}
}

struct watch_dir *watch_tree_find(const struct watch_tree *t, const struct watch_dir *parent,
				  const char *name)
{
	struct watch_dir *d = t->by_name[name_bucket(parent, name)];

	while (d && (d->parent != parent || !str_eq(d->name, name)))
		d = d->same_name;
	return d;
}

struct watch_dir *watch_tree_by_wd(const struct watch_tree *t, int wd)
{
	struct watch_dir *d = wd < 0 ? NULL : t->by_wd[(unsigned)wd % WATCH_BUCKETS];

	while (d && d->wd != wd)
		d = d->same_wd;
	return d;
}

void watch_tree_set_wd(struct watch_tree *t, struct watch_dir *d, int wd)
{
	struct watch_dir *had = watch_tree_by_wd(t, wd), **bucket;

	if (d->wd == wd && had == d)
		return;
	if (had)
		unlist_wd(t, had);
	if (d->wd >= 0 && wd >= 0)
		inotify_rm_watch(t->inotify, d->wd);
	unlist_wd(t, d);
	if (wd < 0)
		return;
	d->wd = wd;
	bucket = wd_bucket(t, wd);
	d->same_wd = *bucket;
	*bucket = d;
}

char *watch_dir_path(const struct watch_dir *d, char *end, size_t size)
{
	char *at = end;

	for (; d->parent; d = d->parent) {
		size_t len = strlen(d->name);

		if (len + 1 > size - (size_t)(end - at))
			return NULL;
		at -= len;
		memcpy(at, d->name, len);
		*--at = '/';
	}
	return at;
}
