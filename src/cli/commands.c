/*
 * The command table. A new command is a row here, an option table and a function in a file of its
 * own; help, completion and the man page follow.
 */
#include "cli.h"

const char *const group_titles[GROUP_COUNT] = {
	[GROUP_SANDBOX] = "Sandboxes",
	[GROUP_COMMAND] = "Commands in a sandbox",
	[GROUP_IMAGE] = "Images",
	[GROUP_TOOL] = "This tool",
};

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

static const struct opt create_options[] = {
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

static const struct opt list_options[] = {
	{ "status", 's', "STATUS", "only those in this state: running, stopped …" },
	{ "tag", 't', "TAG", "only those with this tag" },
	{ "limit", 'n', "N", "at most this many" },
	{ "quiet", 'q', NULL, "ids only" },
	{ 0 },
};

static const struct opt grace_options[] = {
	{ "grace", 'g', "SECONDS", "how long processes may take to end (default 10)" },
	{ 0 },
};

static const struct opt wait_options[] = {
	{ "state", 's', "STATUS", "running (default), stopped, failed" },
	{ "timeout", 't', "SECONDS", "give up after this long (default: never)" },
	{ 0 },
};

static const struct opt exec_options[] = {
	RUN_OPTIONS,
	{ "detach", 'd', NULL, "do not wait: print the command's id and leave it running" },
	{ 0 },
};

static const struct opt run_options[] = {
	SHAPE_OPTIONS,
	RUN_OPTIONS,
	{ "keep", 'k', NULL, "leave the sandbox; its id is printed on standard error" },
	{ 0 },
};

static const struct opt command_list_options[] = {
	{ "limit", 'n', "N", "at most this many (default 100)" },
	{ "quiet", 'q', NULL, "ids only" },
	{ 0 },
};

static const struct opt command_status_options[] = {
	{ "wait", 0, "SECONDS", "wait for its end, at most this long" },
	{ 0 },
};

static const struct opt command_logs_options[] = {
	{ "follow", 'f', NULL, "go on until the command ends" },
	{ "stream", 0, "NAME", "only stdout or only stderr", "stdout stderr" },
	{ 0 },
};

static const struct opt command_kill_options[] = {
	{ "signal", 's', "SIGNAL", "the first signal: TERM (default), INT, KILL …" },
	{ "grace", 'g', "SECONDS", "how long after it what is left is killed (default 10)" },
	{ 0 },
};

static const struct opt config_options[] = {
	{ "reveal", 0, NULL, "with get token: print it, although it is a secret" },
	{ 0 },
};

static const struct opt image_import_options[] = {
	{ "user", 'u', "USER", "default user of sandboxes made from it" },
	{ "work-dir", 'w', "DIR", "their work directory" },
	{ 0 },
};

const struct command commands[] = {
	{ .name = "create",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX | BASIC,
	  .synopsis = "NAME",
	  .max_args = 1,
	  .options = create_options,
	  .run = cmd_create,
	  .summary = "make a sandbox",
	  .details =
		  "Prints its id. Only what is given is sent; the server's defaults fill the rest.",
	  .examples =
		  "a sandbox with the defaults\tskerry create hello\n"
		  "4 cpus, 8 GiB, another image\t"
		  "skerry create ci --resources 4x8 --image debian:12-slim\n"
		  "its id in a variable\tid=$(skerry create job-1 --tag batch --wait running)" },
	{ .name = "list",
	  .alias = "ls",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX | BASIC,
	  .synopsis = "",
	  .options = list_options,
	  .run = cmd_list,
	  .summary = "list sandboxes",
	  .details = "On a terminal a table with a header; elsewhere one sandbox a line, tab "
		     "separated:\n"
		     "identifier, status, set-up status, image, resources, date, id.",
	  .examples = "those that run\tskerry list --status running\n"
		      "stop all with a tag\tskerry list -q --tag batch | xargs -r skerry stop" },
	{ .name = "get",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX,
	  .complete = "sandbox",
	  .synopsis = "SANDBOX",
	  .min_args = 1,
	  .max_args = 1,
	  .run = cmd_get,
	  .summary = "show one sandbox",
	  .examples =
		  "what it is and uses\tskerry get hello\n"
		  "one field, for a script\tskerry get hello --format json | jq -r .create_date" },
	{ .name = "status",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX,
	  .complete = "sandbox",
	  .synopsis = "SANDBOX",
	  .min_args = 1,
	  .max_args = 1,
	  .run = cmd_status,
	  .summary = "show the states of a sandbox: machine and set-up",
	  .examples = "is it up?\tskerry status hello" },
	{ .name = "start",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX | BASIC,
	  .complete = "sandbox*",
	  .synopsis = "SANDBOX...",
	  .min_args = 1,
	  .max_args = -1,
	  .run = cmd_start,
	  .summary = "start stopped sandboxes",
	  .examples = "start two\tskerry start hello ci" },
	{ .name = "stop",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX | BASIC,
	  .complete = "sandbox*",
	  .synopsis = "SANDBOX...",
	  .min_args = 1,
	  .max_args = -1,
	  .options = grace_options,
	  .run = cmd_stop,
	  .summary = "stop sandboxes; their disks stay",
	  .examples = "in order\tskerry stop hello\n"
		      "at once\tskerry stop hello --grace 0" },
	{ .name = "restart",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX,
	  .complete = "sandbox*",
	  .synopsis = "SANDBOX...",
	  .min_args = 1,
	  .max_args = -1,
	  .options = grace_options,
	  .run = cmd_restart,
	  .summary = "stop and start sandboxes",
	  .examples = "restart\tskerry restart hello" },
	{ .name = "destroy",
	  .alias = "rm",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX | BASIC,
	  .complete = "sandbox*",
	  .synopsis = "SANDBOX...",
	  .min_args = 1,
	  .max_args = -1,
	  .run = cmd_destroy,
	  .summary = "delete sandboxes with their disks, in any state",
	  .details = "There is no question and no way back.",
	  .examples = "delete one\tskerry destroy hello\n"
		      "delete all with a tag\tskerry list -q --tag batch | xargs -r skerry rm" },
	{ .name = "wait",
	  .group = GROUP_SANDBOX,
	  .flags = SANDBOX,
	  .complete = "sandbox",
	  .synopsis = "SANDBOX",
	  .min_args = 1,
	  .max_args = 1,
	  .options = wait_options,
	  .run = cmd_wait,
	  .summary = "wait until a sandbox is in a state",
	  .details = "Fails when the sandbox is FAILED, gone, or the time has passed.",
	  .examples = "until it runs\tskerry wait hello --timeout 30\n"
		      "until it has stopped\tskerry wait hello --state stopped" },
	{ .name = "exec",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX | OWN_EXIT | BASIC,
	  .complete = "sandbox",
	  .synopsis = "SANDBOX [--] COMMAND [ARG...]",
	  .min_args = 1,
	  .max_args = -1,
	  .rest_after = 1,
	  .options = exec_options,
	  .run = cmd_exec,
	  .summary = "run a command in a sandbox",
	  .details = "The words of COMMAND reach the program as they are, without a shell; -c "
		     "SCRIPT or\n"
		     "--shell runs a string in the shell, --runtime in another interpreter. "
		     "Options end\n"
		     "where COMMAND begins.\n"
		     "\n"
		     "Output appears when the command has ended, byte for byte. The first and the "
		     "last MiB\n"
		     "of each stream are kept. Without --timeout the server ends it after 60 s; "
		     "for longer\n"
		     "work use -d. Leaving (Ctrl-C) does not end the command.\n"
		     "\n"
		     "Exit code: the command's own; 137 after a time-out, 128+n after signal n, "
		     "127 when the\n"
		     "program does not exist, 126 when it cannot be executed, 125 when skerry "
		     "itself failed\n"
		     "or nobody knows how the command ended.",
	  .examples = "a program with its arguments\tskerry exec hello -- ls -la /workspace\n"
		      "a shell script\tskerry exec hello -c 'cd /workspace && make 2>&1 | tail'\n"
		      "in the background; then its output\t"
		      "id=$(skerry exec hello -d -- make); skerry command logs hello $id --follow\n"
		      "a Python program from here\t"
		      "skerry exec hello -i -- python3 - < program.py" },
	{ .name = "run",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX | OWN_EXIT | BASIC,
	  .complete = "image",
	  .synopsis = "IMAGE [--] COMMAND [ARG...]",
	  .min_args = 1,
	  .max_args = -1,
	  .rest_after = 1,
	  .options = run_options,
	  .run = cmd_run,
	  .summary = "run a command in a new sandbox, which is destroyed afterwards",
	  .details =
		  "The sandbox is destroyed in every case: when the command ends, when something\n"
		  "fails, on Ctrl-C; --keep leaves it. Exit code as for exec.",
	  .examples = "once, on a clean machine\tskerry run debian:12 -- uname -a\n"
		      "a test, keeping what is left\t"
		      "skerry run debian:12 --keep --resources 4x8 -c 'git clone … && make test'" },
	{ .noun = "command",
	  .name = "list",
	  .alias = "ls",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX,
	  .complete = "sandbox",
	  .synopsis = "SANDBOX",
	  .min_args = 1,
	  .max_args = 1,
	  .options = command_list_options,
	  .run = cmd_command_list,
	  .summary = "list the commands of a sandbox, newest first",
	  .examples = "the last ten\tskerry command list hello --limit 10" },
	{ .noun = "command",
	  .name = "status",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX,
	  .complete = "sandbox command",
	  .synopsis = "SANDBOX COMMAND_ID",
	  .min_args = 2,
	  .max_args = 2,
	  .options = command_status_options,
	  .run = cmd_command_status,
	  .summary = "show a command, or wait for its end",
	  .examples = "how did it end?\tskerry command status hello cm…\n"
		      "wait for its end, at most 10 minutes\t"
		      "skerry command status hello cm… --wait 600" },
	{ .noun = "command",
	  .name = "logs",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX | BASIC,
	  .complete = "sandbox command",
	  .synopsis = "SANDBOX COMMAND_ID",
	  .min_args = 2,
	  .max_args = 2,
	  .options = command_logs_options,
	  .run = cmd_command_logs,
	  .summary = "print what a command wrote",
	  .details = "Its standard output goes to ours, its standard error to ours, byte for byte.",
	  .examples = "what it wrote so far\tskerry command logs hello cm…\n"
		      "until its end\tskerry command logs hello cm… --follow" },
	{ .noun = "command",
	  .name = "kill",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX,
	  .complete = "sandbox command",
	  .synopsis = "SANDBOX COMMAND_ID",
	  .min_args = 2,
	  .max_args = 2,
	  .options = command_kill_options,
	  .run = cmd_command_kill,
	  .summary = "end a command and all it started",
	  .examples = "in order\tskerry command kill hello cm…\n"
		      "at once\tskerry command kill hello cm… --signal KILL" },
	{ .noun = "image",
	  .name = "list",
	  .alias = "ls",
	  .group = GROUP_IMAGE,
	  .synopsis = "",
	  .run = cmd_image_list,
	  .summary = "list the images of the host",
	  .examples = "what there is\tskerry image list" },
	{ .noun = "image",
	  .name = "import",
	  .group = GROUP_IMAGE,
	  .complete = "image file",
	  .synopsis = "NAME [FILE]",
	  .min_args = 1,
	  .max_args = 2,
	  .options = image_import_options,
	  .run = cmd_image_import,
	  .summary = "make an image from a tar of a root file system",
	  .details = "Without FILE, or with -, the tar is read from standard input. It is "
		     "streamed, not kept\n"
		     "in memory.",
	  .examples =
		  "from a container\tdocker export box | skerry image import box:1\n"
		  "from a file\tskerry image import trixie rootfs.tar --user dev --work-dir /src" },
	{ .noun = "image",
	  .name = "rm",
	  .alias = "remove",
	  .group = GROUP_IMAGE,
	  .complete = "image*",
	  .synopsis = "NAME...",
	  .min_args = 1,
	  .max_args = -1,
	  .run = cmd_image_rm,
	  .summary = "remove images; sandboxes made from them live on",
	  .examples = "remove one\tskerry image rm box:1" },
	{ .name = "doctor",
	  .group = GROUP_TOOL,
	  .flags = OFFLINE | BASIC,
	  .synopsis = "",
	  .run = cmd_doctor,
	  .summary = "check this host, the configuration and the API",
	  .details = "Works without a daemon. Each line says ok, warn or fail, and what to do. "
		     "Exit code 1\n"
		     "when something fails. The host is looked at when the API is on this machine.",
	  .examples = "all checks\tskerry doctor\n"
		      "what failed, for a script\t"
		      "skerry doctor --format json | jq '.checks[] | select(.status==\"fail\")'" },
	{ .name = "config",
	  .group = GROUP_TOOL,
	  .flags = OFFLINE,
	  .complete = "config key",
	  .synopsis = "[get KEY | set KEY [VALUE]]",
	  .max_args = 3,
	  .options = config_options,
	  .run = cmd_config,
	  .summary = "show the settings in force, print one, or set one",
	  .details = "KEY is current, url, token, project or workspace. get prints the value in "
		     "force and\n"
		     "nothing else. set changes the context in force (--context); a VALUE of - "
		     "is read from\n"
		     "standard input, which keeps a token out of the list of processes; without "
		     "VALUE the\n"
		     "setting is removed.\n"
		     "\n"
		     "The token is a secret: who has it can do all you can. It is printed by\n"
		     "`skerry config get token --reveal` only.",
	  .examples = "what counts, and from where\tskerry config\n"
		      "the token in a variable, for curl\t"
		      "token=$(skerry config get token --reveal)\n"
		      "another host, in a context of its own\t"
		      "skerry config set url http://127.0.0.1:7070 --context work\n"
		      "a token\tskerry config set token - < token.txt" },
	{ .name = "version",
	  .group = GROUP_TOOL,
	  .flags = OFFLINE,
	  .synopsis = "",
	  .run = cmd_version,
	  .summary = "show the version of this tool and of the API",
	  .examples = "both\tskerry version" },
	{ .name = "completion",
	  .group = GROUP_TOOL,
	  .flags = OFFLINE,
	  .complete = "shell",
	  .synopsis = "SHELL",
	  .min_args = 1,
	  .max_args = 1,
	  .run = cmd_completion,
	  .summary = "print a completion script for bash, zsh or fish",
	  .examples = "bash, for this session\tsource <(skerry completion bash)\n"
		      "fish, for good\tskerry completion fish > "
		      "~/.config/fish/completions/skerry.fish" },
	{ .name = "help",
	  .group = GROUP_TOOL,
	  .flags = OFFLINE,
	  .complete = "help",
	  .synopsis = "[COMMAND]",
	  .max_args = 3,
	  .run = cmd_help,
	  .summary = "show help",
	  .examples = "about one command\tskerry help exec\n"
		      "of two words\tskerry help command logs" },
	{ .name = "__complete",
	  .flags = OFFLINE | HIDDEN,
	  .synopsis = "WORD...",
	  .max_args = -1,
	  .run = cmd_complete,
	  .summary = "candidates for the last word" },
	{ .name = "__man",
	  .flags = OFFLINE | HIDDEN,
	  .synopsis = "FILE",
	  .min_args = 1,
	  .max_args = 1,
	  .run = cmd_man,
	  .summary = "fill the man page's template" },
	{ 0 },
};
