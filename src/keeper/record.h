#pragma once
/*
 * One record per live sandbox in <run_dir>/keeper, written before its PID 1 may go on: what a
 * keeper that starts later needs to adopt it. Fixed structs of this program's own.
 */
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct record {
	uint32_t magic, size;
	char id[ID_SIZE + 1];
	char boot_id[37];
	int32_t pid;
	uint64_t start_time; /* clock ticks since boot, field 22 of /proc/<pid>/stat */
	uint32_t slot, enforced;
};

int record_init(const char *run_dir, struct err *e);
const char *record_boot_id(void);
uint64_t record_start_time(int pid); /* 0: no such process */

/* The wait status of an ended process that is not our child, where the kernel tells it (Linux 6.15),
 * or a negative errno. */
int record_exit_status(int pidfd);

int record_write(struct record *r, struct err *e);
void record_remove(const char *id);
/* Calls `each` for every record of this boot whose process is still the one it names; removes the
 * others, after `dead` was called for them. */
int record_each(void (*each)(const struct record *r), void (*dead)(const struct record *r),
		struct err *e);
