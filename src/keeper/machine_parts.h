#pragma once
/*
 * What the files of the machine share: machine.c (objects, queue, verbs, adoption), machine_start.c,
 * machine_limit.c and machine_end.c. Nobody else includes this.
 */
#include <limits.h>

#include "machine.h"

enum { SETTLE_TIMEOUT_MS = 60 * 1000, DISK_TIMEOUT_MS = 10 * 60 * 1000 };

struct machine_context {
	const struct conf *conf;
	int init; /* the skerry-init program */
};
extern struct machine_context machines;

void machine_free(struct machine *m);

/* Takes a source out of the loop and closes its descriptor. */
void machine_close_source(struct source *s);
void machine_agent_path(const char *id, char out[PATH_MAX]);

/* machine_end.c: the callbacks of the pidfd, and what follows from an end. */
void machine_on_end(struct source *s, uint32_t events);
void machine_on_grace_over(struct source *s);
void machine_kill_now(struct machine *m);
void machine_settle(struct machine *m);

/* machine_start.c */
void machine_on_status(struct source *s, uint32_t events);
void machine_release_launch(struct machine *m); /* what only the launch needed */
