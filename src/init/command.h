#pragma once
/*
 * The commands of a sandbox: started, watched, limited, ended, and remembered until forgotten.
 *
 *   STARTING  the child has not executed its program yet
 *   RUNNING
 *   DRAINING  its own process ended; what was written so far is read, DRAIN_MS at most
 *   ENDED     the outcome is final; processes it left behind may live on in its leaf
 *
 * A command belongs to this module from command_run to its end. At most one client is attached to
 * it; a client is embedded in its connection and is told what changed by its functions. While none
 * is attached the command never waits for a reader; a standard input that was not ended stays open
 * for the next client.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/agent.h"

struct command;

struct command_client {
	struct command *command; /* NULL: not attached */
	/* There may be something new to send: started, output, stdin taken, the end. */
	void (*changed)(struct command_client *c);
	/* No longer attached. `fail` says why the command did not start, NULL: another took over. */
	void (*detached)(struct command_client *c, const struct agent_fail *fail);
};

/* Waits for the tree of a command to be gone. */
struct command_waiter {
	struct command *command; /* NULL: not waiting */
	struct command_waiter *next;
	void (*gone)(struct command_waiter *w);
};

/* Writes to standard input of a command that another client may be attached to; embedded in its
 * connection. */
struct command_writer {
	struct command *command; /* NULL: not writing */
	struct command_writer *next;
	enum writer_end { WRITER_ENDED, WRITER_CLOSED } why; /* nothing is taken any more */
	bool waits;
	void (*room)(struct command_writer *w); /* more may be given */
};

void command_init(void);

int command_run(struct command_client *client, const struct agent_run *run, struct err *e);
int command_attach(struct command_client *client, const struct agent_attach *a, struct err *e);
void command_detach(struct command_client *client); /* accepts one that is not attached */

/* What a client can send now. */
bool command_started(const struct command *c, struct agent_started *ret);
/* The data stays valid until the next call into this module. False: nothing now. */
bool command_next_output(struct command *c, struct agent_output *ret);
/* True at the end, once all output was sent. */
bool command_exit(const struct command *c, struct agent_exit *ret);
int command_ack(struct command *c, const struct agent_ack *a); /* -EPROTO for what was not sent */

/* Takes all that the window allows; dropped when nobody reads it. -EPROTO above the window, or
 * another negative errno. */
int command_stdin(struct command *c, const void *data, size_t len);
void command_stdin_eof(struct command *c);
/* True when an acknowledgement is due; it counts as sent then. */
bool command_next_stdin_ack(struct command *c, uint64_t *ret_taken);

int command_input(struct command_writer *w, const char *id, struct err *e);
/* False: the command has enough that it has not taken; `room` tells when more may be given. */
bool command_input_room(struct command_writer *w);
/* Dropped when nobody reads it; refused once the command or its input has ended. */
int command_input_add(struct command_writer *w, const void *data, size_t len, struct err *e);
void command_input_eof(struct command_writer *w);
void command_input_cancel(struct command_writer *w); /* accepts one that is not writing */

int command_resize(const struct agent_resize *s, struct err *e);
int command_signal(const struct agent_signal *s, struct err *e);
int command_terminate(struct command_waiter *w, const struct agent_signal *s, struct err *e);
void command_wait_cancel(struct command_waiter *w); /* accepts one that is not waiting */
/* One that left processes goes with the last of them, and can be terminated until then. */
int command_forget(const char *id, struct err *e);
void command_list(void (*each)(void *arg, const struct agent_command *c), void *arg);

/* A child of PID 1 was reaped. */
void command_reaped(pid_t pid, int status);

/* From now on nothing is started, and every end is REASON_KILLED. Sends `sig` to every tree, the
 * last started first, and calls `each` for every process that got it. */
void command_stop_all(int sig, void (*each)(void *arg, pid_t pid), void *arg);
bool command_any_running(void);
