#pragma once
/*
 * Which commands somebody pumps right now, and who reads their output meanwhile. Whoever pumps one
 * writes its end, so the lifecycle and the reconciliation leave those alone; a client can wait for
 * an end without asking the database in a circle. Callable from any thread.
 *
 * A viewer is told when there may be more in the files, and when the command is no longer live: then
 * files and record are final. One that `holds` keeps the command from running ahead of it by more
 * than the agent's window, but only while it goes on reading: after LIVE_PATIENCE_MS without a byte
 * taken the command goes on without it, until it has caught up. What it missed then is a gap of the
 * kept output.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { LIVE_PATIENCE_MS = 10000 };

int live_add(const char *id);
void live_remove(const char *id); /* wakes those who wait */
bool live_has(const char *id);
/* Until this command is gone from here, or the time has passed. */
void live_wait(const char *id, int ms);

struct live_viewer {
	char id[ID_SIZE];
	int event; /* eventfd, for poll */
	bool holds, released, ended;
	uint64_t at[2];
	uint64_t moved_ns; /* when it last took a byte, or had all */
	struct live_viewer *next;
};

#define LIVE_VIEWER_INIT                                                                           \
	{                                                                                          \
		.event = -1                                                                        \
	}

/* `at`: bytes of stdout and stderr it has. For a command that is not live it has ended at once. */
int live_view(struct live_viewer *v, const char *id, const uint64_t at[2], bool holds,
	      struct err *e);
void live_view_end(struct live_viewer *v); /* accepts one that never began */
/* Takes note of what was told. False once the command is not live any more. */
bool live_more(struct live_viewer *v);
/* It has passed on what lies before `at`. */
void live_passed(struct live_viewer *v, const uint64_t at[2]);

/* Its end is wanted: from now on neither viewers nor the client of its pump hold it. */
void live_hurry(const char *id);
bool live_hurried(const char *id);

/* The pump's side. */
struct live_hold {
	bool held;         /* somebody is behind: acknowledge no more than … */
	uint64_t limit[2]; /* … these offsets … */
	uint64_t until_ns; /* … and ask again then */
};
/* There are so many bytes in the files now. */
void live_output(const char *id, const uint64_t total[2], uint64_t now_ns, struct live_hold *ret);
/* Who is to be woken (an eventfd) when a viewer that holds has moved on. Without one `until_ns` is
 * near, and the pump asks again. */
void live_wake_by(const char *id, int wake_fd);
