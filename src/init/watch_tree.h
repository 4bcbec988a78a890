#pragma once
/*
 * The directories a watch covers, as a tree by their names and as a table by their watch
 * descriptors. It is what the events said so far, and may be behind what the disk has.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WATCH_DIRS_MOST = 1024 * 1024,
	WATCH_BUCKETS = 32 * 1024,
};

struct watch_dir {
	struct watch_dir *parent; /* NULL: the root */
	struct watch_dir *child;  /* the first one */
	struct watch_dir *next, **at;
	struct watch_dir *same_wd, *same_name; /* in the tables */
	struct watch_dir *todo;                /* to be scanned after this one */
	int wd;                                /* -1: none */
	uint32_t round;                        /* the scan that saw it last */
	bool queued;                           /* to be scanned */
	bool missed;                           /* it was not in its place for that */
	char *name;
};

struct watch_tree {
	int inotify; /* not the tree's */
	size_t count, missed;
	struct watch_dir *root;
	struct watch_dir *by_wd[WATCH_BUCKETS];
	struct watch_dir *by_name[WATCH_BUCKETS];
};

/* NULL when out of memory or beyond the bound. */
struct watch_dir *watch_tree_add(struct watch_tree *t, struct watch_dir *parent, const char *name);
/* It and all below, with their watches. NULL is fine. */
void watch_tree_remove(struct watch_tree *t, struct watch_dir *d);
/* It stays without a watch, and with nothing below. */
void watch_tree_strip(struct watch_tree *t, struct watch_dir *d);
void watch_tree_set_missed(struct watch_tree *t, struct watch_dir *d, bool missed);
/* To another place, which is free. False where that lies below it, or without memory. */
bool watch_tree_move(struct watch_tree *t, struct watch_dir *d, struct watch_dir *parent,
		     const char *name);
/* All below `d` that the scan `round` did not see. */
void watch_tree_sweep(struct watch_tree *t, struct watch_dir *d, uint32_t round);

struct watch_dir *watch_tree_find(const struct watch_tree *t, const struct watch_dir *parent,
				  const char *name);
struct watch_dir *watch_tree_by_wd(const struct watch_tree *t, int wd);
/* Whoever had it has none afterwards; the one that `d` had is given up. -1: the kernel took it. */
void watch_tree_set_wd(struct watch_tree *t, struct watch_dir *d, int wd);
bool watch_dir_within(const struct watch_dir *d, const struct watch_dir *above);
/* It, or one below it. */
bool watch_dir_queued(const struct watch_dir *d);

/* Writes "/a/b" of it ("" for the root), ending before `end`; its start, or NULL where it is longer
 * than `size`. */
char *watch_dir_path(const struct watch_dir *d, char *end, size_t size);
