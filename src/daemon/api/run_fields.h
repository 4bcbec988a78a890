#pragma once
/* What all ways to run a command have in common: POST exec, POST commands, GET exec. */
#include "api/resources.h"
#include "sandbox/identifier.h"

enum { RUN_ARGS_MAX = 4096, RUN_ENV_MAX = 1024 };

#define RUN_FIELDS                                                                                 \
	FIELD_STR(struct exec_request, command, .min = 1, .about = "a script for the runtime"),    \
		FIELD_ENUM(struct exec_request, runtime, runtime_names, .about = "default BASH"),  \
		FIELD_LIST(struct exec_request, args, .min = 1, .max = RUN_ARGS_MAX,               \
			   .about = "instead of command: a program and its arguments, no shell"),  \
		FIELD_STR(struct exec_request, cwd, .min = 1, .max = 1023, .check = path_check),   \
		FIELD_MAP(struct exec_request, env, .max = RUN_ENV_MAX, .check = env_name_check),  \
		FIELD_STR(struct exec_request, user, .min = 1, .max = 64),                         \
		{ .name = "stdin",                                                                 \
		  .kind = FIELD_KIND_STR,                                                          \
		  .offset = FIELD_AT(struct exec_request, input, const char *) },                  \
		FIELD_BOOL(struct exec_request, stdin_open, .absent = false,                       \
			   .about = "standard input stays open for more"),                         \
		FIELD_BOOL(struct exec_request, keep_awake, .absent = false,                       \
			   .about = "counts as activity while it runs"),                           \
		FIELD_BOOL(struct exec_request, kill_on_disconnect, .absent = false)

/* What no single field tells. */
int run_check(const struct exec_request *in, struct err *e);
