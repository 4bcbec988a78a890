#include "init/watch_names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/str.h"

struct watch_name {
	struct watch_name *next;
	int wd;
	char name[];
};

static struct watch_name **place(struct watch_names *s, int wd, const char *name)
{
	struct watch_name **at;
	uint32_t hash = 2166136261u ^ (uint32_t)wd;

	for (const unsigned char *p = (const unsigned char *)name; *p; p++)
		hash = (hash ^ *p) * 16777619u;
	at = &s->bucket[(hash ^ hash >> 16) % WATCH_NAMES_BUCKETS];
	while (*at && ((*at)->wd != wd || !str_eq((*at)->name, name)))
		at = &(*at)->next;
	return at;
}

bool watch_names_add(struct watch_names *s, int wd, const char *name)
{
	struct watch_name **at = place(s, wd, name), *made;
	size_t len = strlen(name) + 1;

	if (*at)
		return false;
	made = s->count < WATCH_NAMES_MOST ? malloc(sizeof(*made) + len) : NULL;
	if (!made)
		return true;
	*made = (struct watch_name){ .wd = wd };
	memcpy(made->name, name, len);
	*at = made;
	s->count++;
	return true;
}

bool watch_names_drop(struct watch_names *s, int wd, const char *name)
{
	struct watch_name **at = place(s, wd, name), *gone = *at;

	if (!gone)
		return false;
	*at = gone->next;
	free(gone);
	s->count--;
	return true;
}

void watch_names_clear(struct watch_names *s)
{
	for (size_t i = 0; s->count && i < WATCH_NAMES_BUCKETS; i++) {
		while (s->bucket[i]) {
			struct watch_name *gone = s->bucket[i];

			s->bucket[i] = gone->next;
			free(gone);
			s->count--;
		}
	}
}
