/*
 * The command table. A new command is a row here, an option table in options.c and a function in
 * a file of its own; help, completion and the man page follow.
 */
#include "options.h"

const char *const group_titles[GROUP_COUNT] = {
	[GROUP_SANDBOX] = "Sandboxes",       [GROUP_COMMAND] = "Commands in a sandbox",
	[GROUP_FILE] = "Files in a sandbox", [GROUP_IMAGE] = "Images",
	[GROUP_TOOL] = "This tool",
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
		  "a small one\t"
		  "skerry create ci --cpus 1 --memory 2G --disk 10G\n"
		  "its id in a variable\tid=$(skerry create job-1 --tag batch --wait running)" },
	{ .name = "list",
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
		     "Output appears as it is written, byte for byte. What is piped into skerry "
		     "is passed to\n"
		     "the command; in a loop that reads input of its own add </dev/null. A "
		     "terminal or a\n"
		     "socket is passed with -i only; -it is a program on a terminal. With "
		     "--format json the\n"
		     "answer comes at the end, as one object, and standard input is read with -i "
		     "only, to its\n"
		     "end first.\n"
		     "\n"
		     "Ctrl-C, SIGTERM, SIGHUP and SIGQUIT are passed on to the command; SIGINT or "
		     "SIGTERM twice\n"
		     "within two seconds ends the command and skerry. A connection that breaks is "
		     "taken up again\n"
		     "for 30 s. Without --timeout the server ends the command after 60 s; for "
		     "longer work give\n"
		     "one, or -d, which does not wait. A skerry that is killed hard leaves the "
		     "command running.\n"
		     "\n"
		     "Exit code: the command's own; 137 after a time-out, 128+n after signal n, "
		     "127 when the\n"
		     "program does not exist, 126 when it cannot be executed, 125 when skerry "
		     "itself failed\n"
		     "or nobody knows how the command ended.",
	  .examples =
		  "a program with its arguments\tskerry exec hello -- ls -la /workspace\n"
		  "a shell script\tskerry exec hello -c 'cd /workspace && make 2>&1 | tail'\n"
		  "a Python program from here\tskerry exec hello -- python3 - < program.py\n"
		  "a directory into it\t"
		  "tar c src | skerry exec hello -- tar x -C /workspace\n"
		  "an editor\tskerry exec hello -it -- vi notes.txt\n"
		  "in the background; then its output\t"
		  "id=$(skerry exec hello -d -- make); skerry command logs hello $id --follow" },
	{ .name = "shell",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX | OWN_EXIT | BASIC,
	  .complete = "sandbox",
	  .synopsis = "SANDBOX",
	  .min_args = 1,
	  .max_args = 1,
	  .options = shell_options,
	  .run = cmd_shell,
	  .summary = "open a login shell on a terminal in a sandbox",
	  .details =
		  "Keys, colours and the size of the window are passed through. The exit code is "
		  "the shell's.\n"
		  "A connection that breaks is taken up again for 30 s; after that the shell runs "
		  "on, and\n"
		  "--attach shows it again, with what it wrote last. --detach-keys leaves it "
		  "running when\n"
		  "they are typed. A terminal that is closed ends the shell.",
	  .examples = "a shell\tskerry shell hello\n"
		      "as root, elsewhere\tskerry shell hello --user root --cwd /etc\n"
		      "one that can be left, and taken up again\t"
		      "skerry shell hello --detach-keys ctrl-p,ctrl-q\n"
		      "which are there? take one up\t"
		      "skerry command list hello; skerry shell hello --attach cm…" },
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
		  "fails, on Ctrl-C; --keep leaves it. Streams, signals and exit code as for exec.",
	  .examples = "once, on a clean machine\tskerry run debian:12 -- uname -a\n"
		      "a shell to throw away\tskerry run -it debian:12 -- bash\n"
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
	  .name = "signal",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX,
	  .complete = "sandbox command signal",
	  .synopsis = "SANDBOX COMMAND_ID SIGNAL",
	  .min_args = 3,
	  .max_args = 3,
	  .run = cmd_command_signal,
	  .summary = "send a signal to a command",
	  .details = "It goes to the process group in the foreground, as from a keyboard; `skerry "
		     "command kill`\n"
		     "ends all that the command has started.",
	  .examples = "read the configuration again\tskerry command signal hello cm… HUP" },
	{ .noun = "command",
	  .name = "stdin",
	  .group = GROUP_COMMAND,
	  .flags = SANDBOX,
	  .complete = "sandbox command",
	  .synopsis = "SANDBOX COMMAND_ID",
	  .min_args = 2,
	  .max_args = 2,
	  .options = command_stdin_options,
	  .run = cmd_command_stdin,
	  .summary = "pass our standard input to a command that runs",
	  .details = "Its standard input stays open behind ours unless --eof is given. It must "
		     "have been\n"
		     "started with one: a shell, or the API's stdin_open.",
	  .examples = "a line for a shell\techo make | skerry command stdin hello cm…\n"
		      "a file, which is all\tskerry command stdin hello cm… --eof < data.csv" },
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
	{ .name = "ls",
	  .group = GROUP_FILE,
	  .flags = SANDBOX | BASIC,
	  .synopsis = "[SANDBOX:/PATH]",
	  .max_args = 1,
	  .options = ls_options,
	  .run = cmd_ls,
	  .summary = "list files of a sandbox; without PATH, sandboxes",
	  .details = "One name a line, as the bytes they are; on a terminal what is no text is "
		     "escaped.\n"
		     "Sandboxes are listed as by `skerry list`, with its options.",
	  .examples = "what lies in the work directory\tskerry ls hello:/workspace\n"
		      "all of it, for a script\tskerry ls -R -0 hello:/workspace | xargs -0 -n 1" },
	{ .name = "cp",
	  .group = GROUP_FILE,
	  .flags = SANDBOX | BASIC,
	  .synopsis = "FROM TO",
	  .min_args = 2,
	  .max_args = 2,
	  .options = cp_options,
	  .run = cmd_cp,
	  .summary = "copy files and directories into a sandbox or out of it",
	  .details = "One of the two is SANDBOX:/path, the other a file or directory here; - is "
		     "standard\n"
		     "input or output. A name that is a directory gets the copy below it; DIR/. "
		     "stands for\n"
		     "what is in DIR. What comes out of a sandbox takes its name when it is whole: "
		     "a copy\n"
		     "that breaks off leaves nothing here. Directories that are there are merged "
		     "with what\n"
		     "comes; as - a directory is a tar. Links in a directory are copied as links.",
	  .examples = "in\tskerry cp notes.txt hello:/workspace/\n"
		      "out\tskerry cp hello:/var/log/dpkg.log .\n"
		      "a directory\tskerry cp src hello:/workspace/\n"
		      "through a pipe\tskerry cp hello:/etc/passwd - | wc -l" },
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
