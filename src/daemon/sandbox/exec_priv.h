#pragma once
/* For the exec_* files only. */
#include "sandbox/command.h"

/* Writes the end of a command that the watch thread pumped; for command_background. */
void exec_background_done(void *arg, const char *sandbox, const char *id,
			  const struct command_result *result);
