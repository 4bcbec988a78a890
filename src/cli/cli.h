#pragma once
/*
 * The command line tool: one row a command, one file a command.
 *
 * The table in commands.c drives dispatch, help, completion and the synopsis of the man page. A
 * command's function gets the settings in force, a client that can send requests (it does not know
 * how they travel) and its arguments, decoded by its own option table. It returns its exit code, or
 * a negative errno with `e` set: then main() prints the error in the format asked for.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage, 128+n ended by signal n. Commands marked OWN_EXIT
 * hand on the exit code of what ran in the sandbox; for them every failure of ours is 125, but 126
 * and 127 where the program cannot be executed or does not exist, as in shells.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#include "args.h"
#include "conf.h"

enum { EXIT_FAILED = 1, EXIT_BAD_USAGE = 2, EXIT_OURS = 125, EXIT_SIGNAL = 128 };

/* Words of `struct err.reason` that are ours; those of the API are passed on as they come. */
#define REASON_USAGE       "usage"
#define REASON_CONNECTION  "connection_failed"
#define REASON_INTERRUPTED "interrupted"
#define REASON_ANSWER      "bad_answer"
#define REASON_CONFIG      "bad_config"
#define REASON_OUTPUT      "output_failed"

struct client;

struct cli {
	struct conf conf;
	struct client *client; /* NULL for commands marked OFFLINE until they open it */
	bool json;             /* --format json */
	char reason[64];       /* the API's word for the last error; err.reason points here */
	int signal;            /* what interrupted us, see signals.h */
};

enum command_flags {
	OWN_EXIT = 1, /* the exit code is that of a command in the sandbox */
	OFFLINE = 2,  /* main() neither demands a usable configuration nor opens a client */
	SANDBOX = 4,  /* also as `skerry sandbox …` */
	BASIC = 16,   /* in the short help */
	HIDDEN = 8,   /* for our own scripts: not in help, completion, man page */
};

enum command_group {
	GROUP_SANDBOX,
	GROUP_COMMAND,
	GROUP_FILE,
	GROUP_IMAGE,
	GROUP_TOOL,
	GROUP_COUNT
};

struct command {
	const char *noun; /* "command" in `skerry command list`, or NULL */
	const char *name;
	const char *alias; /* or NULL */
	enum command_group group;
	const char *synopsis;      /* the arguments, "" for none */
	const struct opt *options; /* ends with a row without a name, or NULL */
	int min_args, max_args;    /* max_args -1: any number */
	int rest_after; /* > 0: after this many arguments options end, all else is taken as is */
	unsigned flags;
	const char *complete; /* kinds of its arguments: "sandbox command", see complete.c */
	int (*run)(struct cli *c, const struct args *a, struct err *e);
	const char *summary;  /* one line, lower case */
	const char *details;  /* paragraphs, or NULL */
	const char *examples; /* lines "what it does\tthe command line" */
};

extern const struct command commands[]; /* ends with a row without a name */
extern const char *const group_titles[GROUP_COUNT];
extern const struct opt global_options[];
extern const struct opt tool_options[]; /* before the command only */

/* One function a command; the files are named after them. */
int cmd_create(struct cli *c, const struct args *a, struct err *e);
int cmd_list(struct cli *c, const struct args *a, struct err *e);
int cmd_cp(struct cli *c, const struct args *a, struct err *e);
int cmd_ls(struct cli *c, const struct args *a, struct err *e);
int cmd_get(struct cli *c, const struct args *a, struct err *e);
int cmd_status(struct cli *c, const struct args *a, struct err *e);
int cmd_start(struct cli *c, const struct args *a, struct err *e);
int cmd_stop(struct cli *c, const struct args *a, struct err *e);
int cmd_restart(struct cli *c, const struct args *a, struct err *e);
int cmd_destroy(struct cli *c, const struct args *a, struct err *e);
int cmd_exec(struct cli *c, const struct args *a, struct err *e);
int cmd_shell(struct cli *c, const struct args *a, struct err *e);
int cmd_run(struct cli *c, const struct args *a, struct err *e);
int cmd_wait(struct cli *c, const struct args *a, struct err *e);
int cmd_command_list(struct cli *c, const struct args *a, struct err *e);
int cmd_command_status(struct cli *c, const struct args *a, struct err *e);
int cmd_command_logs(struct cli *c, const struct args *a, struct err *e);
int cmd_command_signal(struct cli *c, const struct args *a, struct err *e);
int cmd_command_stdin(struct cli *c, const struct args *a, struct err *e);
int cmd_command_kill(struct cli *c, const struct args *a, struct err *e);
int cmd_image_list(struct cli *c, const struct args *a, struct err *e);
int cmd_image_import(struct cli *c, const struct args *a, struct err *e);
int cmd_image_rm(struct cli *c, const struct args *a, struct err *e);
int cmd_doctor(struct cli *c, const struct args *a, struct err *e);
int cmd_config(struct cli *c, const struct args *a, struct err *e);
int cmd_version(struct cli *c, const struct args *a, struct err *e);
int cmd_help(struct cli *c, const struct args *a, struct err *e);
int cmd_completion(struct cli *c, const struct args *a, struct err *e);
int cmd_complete(struct cli *c, const struct args *a, struct err *e);
int cmd_man(struct cli *c, const struct args *a, struct err *e);

void version_print(const struct cli *c); /* this tool's own, without asking the API */

/* The row for the words at `argv`, its number of words in `ret_words`; NULL when there is none. */
const struct command *command_find(int argc, char **argv, int *ret_words);
/* Says what was not understood, with the nearest command where one is near. */
int command_unknown(int argc, char **argv, struct err *e);
