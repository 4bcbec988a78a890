#pragma once
/*
 * Environment, argument list and program of a command, in its own process, as its user and in its
 * work directory. Memory is never given back: exec or exit follows.
 */
#include "base/err.h"
#include "wire/agent.h"

#include "init/user.h"

struct environment {
	char **env;
	const char *path;  /* its PATH */
	const char *shell; /* the user's */
};

int environment_make(const struct agent_run *run, const struct user *u, struct environment *ret,
		     struct err *e);

/* Executes the program of the runtime; comes back only with `e` set. */
int environment_exec(const struct environment *env, const struct agent_run *run, struct err *e);
