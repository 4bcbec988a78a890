#pragma once
/*
 * Running a command and telling its outcome: shared by `exec`, `run` and `shell`.
 */
#include "api.h"

/* The body of the request, from the options and the words after the first argument. `form` is what
 * stands before the command, for an error of usage. */
int exec_body(const struct args *a, const char *form, json_t **ret, struct err *e);

/* Reads our standard input to its end: a request carries it as one text. */
int exec_put_stdin(json_t *body, struct err *e);

/* What the options `--tty` and `--stdin` cannot mean here. */
int exec_check(struct cli *c, const struct args *a, struct err *e);

/* Runs it to its end, its streams being ours, or with --format json the answer printed. Returns the
 * exit code to end with, or a negative errno. Signals are held from then on. */
int exec_call(struct cli *c, const struct args *a, const char *sandbox, json_t *body,
	      struct err *e);

/* Says what there is to say about an end. Returns the exit code, or a negative errno. */
int exec_outcome(const json_t *record, const char *sandbox, struct err *e);
