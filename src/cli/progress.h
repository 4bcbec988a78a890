#pragma once
/*
 * How far a copy is: one line on standard error, redrawn, and only where that is a terminal.
 */
#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool shown;
	const char *name;
	int64_t total; /* bytes, -1 unknown */
	int64_t done;
	uint64_t began_ns, drawn_ns;
};

/* `quiet`: never shown. */
void progress_init(struct progress *p, const char *name, int64_t total, bool quiet);
void progress_add(struct progress *p, int64_t bytes);
void progress_end(struct progress *p); /* the line is gone */
