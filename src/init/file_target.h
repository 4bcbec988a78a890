#pragma once
/*
 * Where an upload goes: a new file beside the one it replaces, which takes its place at the end, or
 * the file itself where it cannot be replaced (a mount point, a file with several names).
 */
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "wire/files.h"

#include "init/file_nameless.h"

struct target {
	int dir;                      /* O_PATH of the directory it stands in */
	char leaf[FILE_NAME_MAX + 1]; /* there, links followed */
	bool exists, in_place;
	struct stat was;      /* exists: what stands there */
	struct nameless file; /* written to */
};

void target_init(struct target *t);
void target_release(struct target *t);

/* Finds it; nothing is made but, with `parents`, the directories it is below. */
int target_find(struct target *t, const char *path, bool parents, uid_t uid, gid_t gid,
		struct err *e);
/* Opens `fd`. */
int target_open(struct target *t, const char *path, struct err *e);
/* Synced, with its owner and mode, under its name, which is durable as well. `size`: bytes written. */
int target_finish(struct target *t, const char *path, uid_t uid, gid_t gid, mode_t mode,
		  uint64_t size, struct err *e);
