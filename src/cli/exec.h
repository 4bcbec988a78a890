#pragma once
/*
 * Running a command and telling its outcome: shared by `exec` and `run`.
 */
#include "api.h"

/* The body of the request, from the options and the words after the first argument. `form` is what
 * stands before the command, for an error of usage. */
int exec_body(const struct args *a, const char *form, json_t **ret, struct err *e);

/* POST …/exec: waits, writes the command's bytes and what there is to say about them. Returns the
 * exit code to end with, or a negative errno. */
int exec_call(struct cli *c, const char *sandbox, const json_t *body, struct err *e);
