#pragma once
/*
 * Bytes for the standard input of a command that somebody else pumps: one INPUT connection to the
 * agent. One thread drives it. What the sandbox does not take stays here, bounded by the caller: it
 * adds more only while command_input_pending() is low.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#include "daemon/sandbox/command_conn.h"

struct command_input {
	struct agent_conn conn;
	bool ending; /* nothing is added any more */
	bool shut;   /* told to the agent */
};

void command_input_init(struct command_input *in);
void command_input_release(struct command_input *in); /* what is pending is dropped */

/* Connects; what is wrong with the command is told by the first turns. */
int command_input_open(struct command_input *in, const char *sandbox, const char *id,
		       struct err *e);
bool command_input_is_open(const struct command_input *in);

int command_input_add(struct command_input *in, const void *data, size_t len, struct err *e);
/* The end of input, said without an end of what comes: for a terminal. */
void command_input_eof(struct command_input *in);
/* No more comes; `eof`: the command's standard input ends with it. */
void command_input_end(struct command_input *in, bool eof);
size_t command_input_pending(const struct command_input *in); /* bytes */

short command_input_events(const struct command_input *in); /* for poll on conn.fd */
/* 0, 1 once it was ended and the sandbox has everything, or a negative errno. Does not wait. */
int command_input_turn(struct command_input *in, short revents, struct err *e);
/* Turns until at most `pending` bytes are left (0 after command_input_end: until the sandbox has
 * everything), or the deadline (CLOCK_MONOTONIC). -ECONNABORTED: the client of `client_fd` (-1:
 * none) hung up. */
int command_input_wait(struct command_input *in, size_t pending, int client_fd,
		       uint64_t deadline_ns, struct err *e);
