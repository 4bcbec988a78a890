#pragma once
/*
 * Commands and their records: what a request asks for becomes a run of the agent, what came of it
 * becomes a row. command.h does the talking; here are the defaults, the database and the rule that
 * a command's outcome is written exactly by whoever pumps it.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandbox/command.h"
#include "sandbox/live.h"
#include "sandbox/sandbox.h"
#include "store/tables.h"

enum { EXEC_TIMEOUT_MS = 60 * 1000, EXEC_BACKSTOP_MS = 5000, EXEC_YEAR_S = 31536000 };

struct exec_request {
	const char *command, *runtime, *cwd, *user;
	const char *input; /* the field `stdin` */
	json_t *args, *env;
	uint64_t timeout_ms; /* 0: none */
	bool kill_on_disconnect;
	bool stdin_open; /* more than `input` may come, by exec_input */
	bool keep_awake;
	/* a terminal of its own of this size, 0 for none */
	uint32_t cols, rows;
	const char *term; /* TERM of the terminal; NULL: the agent's default */
	bool shell;       /* the user's login shell, instead of command and args */
};

struct exec_context {
	const struct sandbox_row *sandbox;
	const struct project_row *project;
	const struct actor *actor;
	int client_fd; /* -1: none */
};

enum { TERMINAL_COLS = 80, TERMINAL_ROWS = 24 };

struct exec_outcome {
	struct command_row row;
	bool timed_out;
	char warning[256];
};

/* Runs to the end. -ECONNABORTED: the client left, the command goes on behind. */
int exec_run(const struct exec_request *in, const struct exec_context *c, struct exec_outcome *ret,
	     struct err *e);
/* Starts and returns. */
int exec_spawn(const struct exec_request *in, const struct exec_context *c,
	       const struct idempotency_ref *once, struct command_row *ret, struct err *e);

/* The same for who pumps it and reads its output as it comes. `*ret_live` goes to exec_stream_end
 * once it has ended, or to exec_stream_leave. `warning` "" for none. */
int exec_stream(const struct exec_request *in, const struct exec_context *c,
		struct command **ret_live, struct command_row *ret, char warning[256],
		struct err *e);
void exec_stream_end(struct command *live, struct command_row *row,
		     const struct command_result *result);
void exec_stream_leave(struct command *live);

int exec_get(const char *sandbox, const char *id, struct command_row *ret, struct err *e);
/* Until it has ended, the deadline passes or the client hangs up. */
int exec_wait(const char *sandbox, const char *id, uint64_t deadline_ns, int client_fd,
	      struct command_row *ret, struct err *e);
int exec_terminate(const struct sandbox_row *sandbox, const char *id, int signal, uint32_t grace_ms,
		   const struct actor *a, struct command_row *ret, struct err *e);

/* To the foreground process group. -EBUSY for a command that has ended. */
int exec_signal(const struct sandbox_row *sandbox, const char *id, int signal,
		const struct actor *a, struct err *e);
/* -EBUSY for a command that has ended, -EINVAL for one without a terminal. */
int exec_resize(const struct sandbox_row *sandbox, const char *id, uint32_t cols, uint32_t rows,
		struct err *e);
struct command_input;
/* Opens `ret`, for a command that runs; errors of its turns go through exec_input_err. */
int exec_input(const struct sandbox_row *sandbox, const char *id, struct command_input *ret,
	       struct err *e);
/* What the agent said about a command, as an error of the API. */
int exec_input_err(const struct sandbox_row *sandbox, const char *id, struct err *e);

/* After a restart: takes up what still runs, closes what does not. */
int exec_adopt(const char *sandbox, struct err *e);
/* Every running command of a machine that is gone is LOST, but those somebody pumps. */
int exec_lose_all(const char *sandbox, struct err *e);
/* The janitor's part: old records and their output. */
int exec_prune(struct err *e);

extern const char *const runtime_names[];
