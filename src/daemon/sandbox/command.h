#pragma once
/*
 * Live commands: the daemon's side of the agent protocol and the output kept on the host.
 *
 * A command is started by a handler's thread, which pumps its connection while the client waits;
 * it is handed to the watch thread when it is to run in the background or when the client leaves.
 * Exactly one thread pumps a command at a time. Output goes to two files below
 * <state_dir>/commands/<sandbox>/ as it comes: the first and the last COMMAND_KEEP bytes of each
 * stream are kept, what falls out between is counted. The record in the store is the caller's to
 * write: this module tells the outcome, it does not know the database.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "wire/agent.h"

enum { COMMAND_KEEP = 1024 * 1024 }; /* bytes of head, and of tail, of each stream */

/* One stream's kept output. While the command runs the tail may have somewhat more than
 * COMMAND_KEEP bytes. */
struct output_view {
	uint64_t total;   /* bytes the command wrote */
	uint64_t head;    /* the first `head` bytes are kept … */
	uint64_t tail_at; /* … and those from offset `tail_at` to `total`; tail_at >= head */
};

/* What a command's end was; `reason` REASON_LOST when nobody knows. */
struct command_result {
	struct agent_exit exit;
	bool exit_known; /* false: REASON_LOST, no code */
};

struct command; /* a live one */

struct command_spec {
	const char *sandbox;    /* id */
	struct agent_run run;   /* run.id is the record's id */
	const void *stdin_data; /* the whole of its standard input, unless stdin_open */
	size_t stdin_len;
	bool stdin_open; /* more comes by command_input.h; stdin_data is empty then */
};

enum command_step {
	COMMAND_RUNNING,     /* the deadline passed, it runs on */
	COMMAND_ENDED,       /* `result` is set */
	COMMAND_CLIENT_GONE, /* the client's descriptor hung up */
};

/* Connects, sends HELLO and RUN, waits for STARTED. On refusal by the agent `e` carries reason,
 * field and text of its FAIL. `ret_started` strings are valid until the next call on `c`. */
int command_start(const struct command_spec *spec, struct command **ret,
		  struct agent_started *ret_started, struct err *e);

/* Attaches again to a command that an earlier process of ours started. -ESRCH: the agent does not
 * know it. */
int command_attach(const char *sandbox, const char *id, struct command **ret, struct err *e);

/* Pumps until the command ends, `deadline_ns` (CLOCK_MONOTONIC, UINT64_MAX = never) passes or
 * `client_fd` (-1 = none) hangs up for good. */
enum command_step command_pump(struct command *c, uint64_t deadline_ns, int client_fd,
			       struct command_result *ret);

/* The same for who waits for other things too: poll for command_events() on command_fd() until
 * command_wake_ns(), then command_turn(), which does not wait; from command_ended() on `ret` is
 * final. What is not read holds the command up, by the agent's window. */
int command_fd(const struct command *c); /* -1 while there is no connection */
short command_events(const struct command *c);
uint64_t command_wake_ns(const struct command *c); /* CLOCK_MONOTONIC; UINT64_MAX: never */
void command_turn(struct command *c, short revents, uint64_t now_ns);
bool command_ended(const struct command *c, struct command_result *ret);
/* Is handed all output as it comes, once it is in the files, with its offset in the stream (1, 2);
 * a gap is what was dropped. NULL: nobody. */
typedef void command_sink(void *arg, int stream, uint64_t offset, const void *data, size_t len);
void command_set_sink(struct command *c, command_sink *sink, void *arg);

/* Hands the command to the watch thread, which calls `done` at its end and frees it. */
void command_background(struct command *c,
			void (*done)(void *arg, const char *sandbox, const char *id,
				     const struct command_result *result),
			void *arg);

/* Closes the connection (the command runs on in the sandbox) and the files. */
void command_free(struct command *c);

/* One-shot operations. */
/* To the foreground process group: of its terminal, or its own. */
int command_signal(const char *sandbox, const char *id, uint32_t signal, struct err *e);
int command_resize(const char *sandbox, const char *id, uint16_t cols, uint16_t rows,
		   struct err *e);
/* Returns when the whole tree is gone. -ESRCH: nothing was left. */
int command_terminate(const char *sandbox, const char *id, uint32_t signal, uint32_t grace_ms,
		      struct err *e);
/* The agent may drop its record of an ended command. */
int command_forget(const char *sandbox, const char *id, struct err *e);
/* Every command the agent knows. */
int command_list(const char *sandbox, void (*each)(void *arg, const struct agent_command *c),
		 void *arg, struct err *e);
/* Asks PID 1 to end everything in order; returns when it has agreed. */
int agent_stop(const char *sandbox, uint32_t grace_ms, struct err *e);

/* Kept output. `stream` 1 or 2. Reading is allowed while the command runs. */
int output_stat(const char *sandbox, const char *id, int stream, struct output_view *ret,
		struct err *e);
/* Copies bytes from `offset` of the stream; the count (short at the gap and at the end). */
ssize_t output_read(const char *sandbox, const char *id, int stream, uint64_t offset, void *data,
		    size_t len, struct err *e);
/* The same for who asks again and again: the file is opened once, as soon as there is one. */
struct output_reader {
	char sandbox[ID_SIZE], id[ID_SIZE];
	int stream;
	int fd; /* -1: nothing kept yet */
};
void output_reader_init(struct output_reader *r, const char *sandbox, const char *id, int stream);
void output_reader_release(struct output_reader *r);
int output_reader_stat(struct output_reader *r, struct output_view *ret, struct err *e);
ssize_t output_reader_read(struct output_reader *r, uint64_t offset, void *data, size_t len,
			   struct err *e);
/* Removes the files of one command, or of all of a sandbox (id NULL). */
int output_remove(const char *sandbox, const char *id, struct err *e);

struct backend;
/* Starts the watch thread. `dir` is <state_dir>/commands, made when missing. Call once. */
int command_init(const struct backend *backend, const char *dir, struct err *e);
/* Ends the watch thread; running commands go on in their sandboxes. */
void command_shutdown(void);
