#pragma once
/*
 * What the parts of watch share.
 *
 *   file_watch.c         the start, and the loop: events in, messages out, neither waiting
 *   file_watch_scan.c    directories come under watch
 *   file_watch_events.c  from the kernel's events to messages
 *   watch_tree.c         the directories watched
 *   watch_names.c        what one batch of events has told already
 *
 * Where something is lost (the kernel's queue, ours, or what is to be sent is full) all that comes is
 * dropped until there is room again. Then the tree is walked anew, and OVERFLOW is told behind that:
 * what changes later is seen.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#include "init/file_job.h"
#include "init/watch_names.h"
#include "init/watch_tree.h"

enum {
	WATCH_RAW_MOST = 8 * 1024 * 1024, /* bytes of events not looked at yet */
	WATCH_OUT_MOST = 8 * 1024 * 1024, /* bytes of messages not sent yet */
	WATCH_MOVES = 64,
	WATCH_PAIRS = 64,
	WATCH_MOVE_MS = 50,         /* wait for the other half of a move */
	WATCH_PAIR_MS = 100,        /* without events: no exchange is half told */
	WATCH_MISSED_MS = 1000,     /* until an event tells where it is */
	WATCH_SETTLE_MS = 10,       /* what happens within is one batch */
	WATCH_BLIND_MS = 10 * 1000, /* between looks at a tree that cannot be watched whole */
};

/* The first half of a move. */
struct watch_move {
	uint32_t cookie;
	int wd;
	bool dir;
	bool unseen; /* a temporary name: nobody was told of it */
	uint64_t until_ns;
	char name[FILE_NAME_MAX + 1];
};

/* A whole one. */
struct watch_pair {
	int from_wd, to_wd;
	bool dir;
	char from[FILE_NAME_MAX + 1], to[FILE_NAME_MAX + 1];
};

struct watch {
	struct file_job *j;
	int inotify;
	int above;    /* the directory that has what is watched in it; or that itself, `leaf` "." */
	int above_wd; /* -1: no such directory */
	char leaf[FILE_NAME_MAX + 1];
	bool file;                    /* it is no directory */
	char base[FILE_PATH_MAX + 1]; /* its path, "" for "/" */
	struct watch_tree tree;
	struct watch_dir *todo; /* to be scanned */
	uint32_t round;
	struct buf raw;
	size_t sent; /* of `j->out` */
	bool lost, blind, ended;
	uint64_t missed_ns; /* when a directory was last not in its place */
	uint64_t look_ns;   /* no sooner is a tree looked at again for what cannot be watched */
	struct watch_names found, modified;
	struct watch_move move[WATCH_MOVES];
	unsigned moves;
	struct watch_pair pair[WATCH_PAIRS]; /* the last ones, in a ring */
	unsigned pairs;                      /* that were told, ever */
};

/* Takes what the kernel has into `raw`. 0, or -EPIPE when the peer has left. */
int watch_drain(struct watch *w);
void watch_tell(struct watch *w, enum file_change change, bool dir, const char *path,
		const char *from);

/* Watches the directory `fd`: the descriptor, or a negative errno. */
int watch_add(struct watch *w, int fd, bool all);
/* The path of `name` in `d` (NULL: of the root), or NULL where it is too long. */
const char *watch_path(struct watch *w, const struct watch_dir *d, const char *name,
		       char ret[FILE_PATH_MAX + 1]);
/* The directory `name`, new in `d`, and all in it, which is told as created. 0 or -EPIPE. */
int watch_cover(struct watch *w, struct watch_dir *d, const char *name);
/* Those in `d` that were not in place. 0 or -EPIPE. */
int watch_cover_missed(struct watch *w, struct watch_dir *d);
/* `d` is what stands at its place. */
bool watch_in_place(struct watch *w, const struct watch_dir *d);
/* There is a `name` in `d`: 1 or 0, or a negative errno where `d` is not in place. */
int watch_finds(struct watch *w, const struct watch_dir *d, const char *name, bool *ret_dir);
/* The whole tree, told to nobody. 0 or -EPIPE. */
int watch_look(struct watch *w);

/* All of `raw`. 0 or -EPIPE. */
int watch_events(struct watch *w);
/* Moves without a second half until `now_ns`. */
int watch_expire(struct watch *w, uint64_t now_ns);
void watch_forget_moves(struct watch *w);
