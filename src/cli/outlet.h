#pragma once
/*
 * Where streams go: our standard output and standard error, byte for byte and in the order in which
 * they came. What a slow reader does not take waits here; the caller adds more only while
 * outlet_pending() is low. Nothing here blocks on pipes and terminals, so that signals are heard.
 */
#include "base/buf.h"

struct outlet_end {
	int fd;
	int own_fd;  /* the same pipe or terminal, opened so that writing never blocks; or -1 */
	size_t step; /* bytes of one write */
};

struct outlet {
	struct buf data; /* pieces, each behind its head */
	size_t at;
	struct outlet_end ends[2];
};

void outlet_init(struct outlet *o);
void outlet_release(struct outlet *o); /* what is pending is dropped */

/* `stream` is STDOUT_FILENO or STDERR_FILENO. 0, or what failed: -EPIPE when nobody reads. */
int outlet_add(struct outlet *o, int stream, const void *data, size_t len);
/* A remark of ours in its place among the streams. */
int outlet_note(struct outlet *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes what can be written. 0, or what failed. */
int outlet_flush(struct outlet *o);
size_t outlet_pending(const struct outlet *o);
int outlet_fd(const struct outlet *o); /* to poll for POLLOUT; -1: nothing is pending */
