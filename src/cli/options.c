/* The option tables of the commands. */
#include "options.h"

const struct opt global_options[] = {
	{ "format", 0, "FORMAT", "text (default) or json: the server's objects", "text json" },
	{ "project", 0, "NAME", "the project; default: that of the token" },
	{ "workspace", 0, "NAME", "the workspace" },
	{ "context", 0, "NAME", "which context of the configuration file" },
	{ "url", 0, "URL", "where the API is: http://host:port or unix:///path" },
	{ "help", 'h', NULL, "show help" },
	{ 0 },
};

const struct opt tool_options[] = {
	{ "version", 'V', NULL, "print the version of this tool" },
	{ 0 },
};

/* What a sandbox is made of: `create`, and `run` which makes one for the moment. */
#define SHAPE_OPTIONS                                                                              \
	{ "resources", 'r', "CxM", "cpus and GiB of memory: 1x2, 2x4 (default), 3x6 … 12x24" },    \
		{ "cpus", 0, "N", "cpus, instead of --resources" },                                \
		{ "memory", 'm', "SIZE", "memory in MiB, or with a unit: 512M, 4G" },              \
		{ "disk", 0, "SIZE", "disk in GiB, or with a unit: 20G (default 50)" },            \
		{ "pids", 0, "N", "processes and threads (default 4096)" },                        \
	{                                                                                          \
		"isolation", 0, "KIND", "what keeps it in: namespace (default)"                    \
	}

/* How a command is run: `exec` and `run`. */
#define RUN_OPTIONS                                                                                \
	{ "user", 'u', "USER", "run as this user; default: that of the image" },                   \
		{ "cwd", 'w', "DIR", "work directory" },                                           \
		{ "env", 'e', "KEY=VALUE", "set a variable", NULL, true },                         \
		{ "timeout", 0, "SECONDS", "end it after this long (default: 60; none with -t)" }, \
		{ "stdin", 'i', NULL, "pass standard input on also from a terminal" },             \
		{ "tty", 't', NULL, "give it a terminal" },                                        \
		{ "command", 'c', "SCRIPT", "run SCRIPT in the shell, instead of COMMAND" },       \
		{ "shell", 0, NULL, "COMMAND is one string for the shell" },                       \
	{                                                                                          \
		"runtime", 0, "NAME",                                                              \
			"what reads SCRIPT: bash (default), python, javascript, typescript",       \
			"bash python javascript typescript"                                        \
	}

const struct opt create_options[] = {
	{ "name", 'n', "NAME", "its name, instead of the argument" },
	{ "identifier", 0, "ID", "its handle in paths and host names; default: from the name" },
	{ "os", 0, "IMAGE", "image to start from (default debian:12); also --image" },
	{ "image", 0, "IMAGE", "the same" },
	SHAPE_OPTIONS,
	{ "tag", 't', "TAG", "a tag", NULL, true },
	{ "wait", 0, "STATE", "answer when it is: running", "running" },
	{ "wait-timeout", 0, "SECONDS", "but at the latest after this long (default 60)" },
	{ 0 },
};

#define LIST_OPTIONS                                                                               \
	{ "status", 's', "STATUS", "only those in this state: running, stopped …" },               \
		{ "tag", 't', "TAG", "only those with this tag" },                                 \
		{ "limit", 'n', "N", "at most this many" },                                        \
	{                                                                                          \
		"quiet", 'q', NULL, "ids only"                                                     \
	}

const struct opt list_options[] = {
	LIST_OPTIONS,
	{ 0 },
};

const struct opt ls_options[] = {
	{ "long", 'l', NULL, "mode, owner, group, size, time and target too" },
	{ "recursive", 'R', NULL, "what lies below too, with paths" },
	{ "null", '0', NULL, "end names with a NUL" },
	LIST_OPTIONS,
	{ 0 },
};

const struct opt cp_options[] = {
	{ "recursive", 'r', NULL, "nothing more: directories are always copied whole" },
	{ "user", 'u', "USER", "whose the copy in the sandbox is; default: the image's user" },
	{ "quiet", 'q', NULL, "no progress" },
	{ 0 },
};

const struct opt grace_options[] = {
	{ "grace", 'g', "SECONDS", "how long processes may take to end (default 10)" },
	{ 0 },
};

const struct opt wait_options[] = {
	{ "state", 's', "STATUS", "running (default), stopped, failed" },
	{ "timeout", 't', "SECONDS", "give up after this long (default: never)" },
	{ 0 },
};

const struct opt exec_options[] = {
	RUN_OPTIONS,
	{ "detach", 'd', NULL, "do not wait: print the id; input with -i only" },
	{ 0 },
};

const struct opt shell_options[] = {
	{ "user", 'u', "USER", "log in as this user; default: that of the image" },
	{ "cwd", 'w', "DIR", "work directory; default: that of the image" },
	{ "attach", 'a', "COMMAND_ID", "attach to a shell that runs" },
	{ "detach-keys", 0, "KEYS", "keys that leave it running: ctrl-p,ctrl-q (default: none)" },
	{ 0 },
};

const struct opt run_options[] = {
	SHAPE_OPTIONS,
	RUN_OPTIONS,
	{ "keep", 'k', NULL, "leave the sandbox; its id is printed on standard error" },
	{ 0 },
};

const struct opt command_list_options[] = {
	{ "limit", 'n', "N", "at most this many (default 100)" },
	{ "quiet", 'q', NULL, "ids only" },
	{ 0 },
};

const struct opt command_status_options[] = {
	{ "wait", 0, "SECONDS", "wait for its end, at most this long" },
	{ 0 },
};

const struct opt command_logs_options[] = {
	{ "follow", 'f', NULL, "go on until the command ends" },
	{ "stream", 0, "NAME", "only stdout or only stderr", "stdout stderr" },
	{ 0 },
};

const struct opt command_stdin_options[] = {
	{ "eof", 0, NULL, "its standard input ends with ours" },
	{ 0 },
};

const struct opt command_kill_options[] = {
	{ "signal", 's', "SIGNAL", "the first signal: TERM (default), INT, KILL …" },
	{ "grace", 'g', "SECONDS", "how long after it what is left is killed (default 10)" },
	{ 0 },
};

const struct opt config_options[] = {
	{ "reveal", 0, NULL, "with get token: print it, although it is a secret" },
	{ 0 },
};

const struct opt image_import_options[] = {
	{ "user", 'u', "USER", "default user of sandboxes made from it" },
	{ "work-dir", 'w', "DIR", "their work directory" },
	{ 0 },
};
