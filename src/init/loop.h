#pragma once
/*
 * The event loop of PID 1: descriptors and timers, one thread, one event at a time.
 *
 * One event is fetched per turn, so a handler may close any source and free any object: nothing
 * that is still queued can name it. Sources and timers are embedded in the objects that own them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

/* A watched descriptor, owned by the source. Not in use: fd -1. */
struct source {
	int fd;
	uint32_t events;
	void (*ready)(struct source *s, uint32_t events);
};

#define SOURCE_NONE                                                                                \
	{                                                                                          \
		.fd = -1                                                                           \
	}

/* Fires once at `at` (CLOCK_MONOTONIC, nanoseconds). */
struct timer {
	uint64_t at;
	void (*fire)(struct timer *t);
	struct timer *next;
	bool armed;
};

int loop_init(void); /* 0 or a negative errno */
void loop_run(void); /* until loop_quit */
void loop_quit(void);

/* Takes over `fd` (made non-blocking); on failure it is closed. 0 or a negative errno. */
int source_open(struct source *s, int fd, uint32_t events,
		void (*ready)(struct source *s, uint32_t events));
/* 0: not even a hang-up is told, which nothing else can silence. */
void source_want(struct source *s, uint32_t events);
void source_close(struct source *s); /* accepts one that is not in use */

void timer_set(struct timer *t, uint64_t at, void (*fire)(struct timer *t));
void timer_cancel(struct timer *t);
