#pragma once
/*
 * The keeper's event loop: one epoll, sources with a callback, one timer per source. Single thread.
 */
#include <stdint.h>

struct source {
	int fd; /* owned by whoever made the source */
	void (*ready)(struct source *s, uint32_t events);
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0 = none: then `late` is called once */
	void (*late)(struct source *s);
	struct source *next, **link;
};

int loop_init(void);
int loop_add(struct source *s, uint32_t events); /* 0 or a negative errno */
void loop_remove(struct source *s);              /* safe to call from its own callback */
/* Runs until loop_stop; 0 or a negative errno. */
int loop_run(void);
void loop_stop(void);
