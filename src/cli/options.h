#pragma once
/* The option tables, for commands.c only. */
#include "cli.h"

extern const struct opt create_options[];
extern const struct opt list_options[];
extern const struct opt ls_options[];
extern const struct opt cp_options[];
extern const struct opt grace_options[];
extern const struct opt wait_options[];
extern const struct opt exec_options[];
extern const struct opt shell_options[];
extern const struct opt run_options[];
extern const struct opt command_list_options[];
extern const struct opt command_status_options[];
extern const struct opt command_logs_options[];
extern const struct opt command_stdin_options[];
extern const struct opt command_kill_options[];
extern const struct opt config_options[];
extern const struct opt image_import_options[];
