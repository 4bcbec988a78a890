#pragma once
/* A set of names in watched directories, for as long as one batch of events lasts. Bounded: what is
 * added beyond is not in it. */
#include <stdbool.h>
#include <stddef.h>

enum {
	WATCH_NAMES_MOST = 64 * 1024,
	WATCH_NAMES_BUCKETS = 8 * 1024,
};

struct watch_name;

struct watch_names {
	struct watch_name *bucket[WATCH_NAMES_BUCKETS];
	size_t count;
};

/* True when it was not in it. */
bool watch_names_add(struct watch_names *s, int wd, const char *name);
/* True when it was in it. */
bool watch_names_drop(struct watch_names *s, int wd, const char *name);
void watch_names_clear(struct watch_names *s);
