#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "cli.h"
#include "client.h"
#include "help.h"
#include "open.h"
#include "out.h"

/* Errors of parsing are to come in the format asked for, too. */
static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && !str_eq(argv[i], "--"); i++) {
		if (str_eq(argv[i], "--format=json"))
			return true;
		if (str_eq(argv[i], "--format") && i + 1 < argc && str_eq(argv[i + 1], "json"))
			return true;
	}
	return false;
}

static int check_count(const struct command *cmd, const struct args *a, struct err *e)
{
	if (a->n_pos < cmd->min_args)
		return usage(e, "too few arguments, expected: %s", cmd->synopsis);
	if (cmd->max_args >= 0 && a->n_pos > cmd->max_args)
		return usage(e, "unexpected argument '%s'", a->pos[cmd->max_args]);
	return 0;
}

static int run(struct cli *c, const struct command *cmd, const struct args *a, struct err *e)
{
	int r, flushed;

	if (args_has(a, "help")) {
		help_command(cmd);
		return out_flush(e);
	}
	r = check_count(cmd, a, e);
	if (!r && !(cmd->flags & OFFLINE))
		r = client_open(c, a, e);
	if (!r)
		r = cmd->run(c, a, e);
	if (r < 0)
		return r;
	flushed = out_flush(e);
	return flushed < 0 ? flushed : r;
}

/* What the API says of a program that could not be begun, and what shells make of it. */
static const struct {
	const char *reason;
	int code;
} not_begun[] = {
	{ "command_not_executable", 126 },
	{ "command_not_found", 127 },
};

/* What the shell sees of a failure. */
static int exit_code(const struct cli *c, const struct command *cmd, const struct err *e)
{
	if (c->signal)
		return EXIT_SIGNAL + c->signal;
	for (size_t i = 0; i < ARRAY_SIZE(not_begun) && cmd && cmd->flags & OWN_EXIT; i++) {
		if (e->code == EINVAL && str_eq(e->reason, not_begun[i].reason))
			return not_begun[i].code;
	}
	if (cmd && cmd->flags & OWN_EXIT)
		return EXIT_OURS;
	return str_eq(e->reason, REASON_USAGE) ? EXIT_BAD_USAGE : EXIT_FAILED;
}

static int fail(struct cli *c, const struct command *cmd, struct err *e)
{
	if (str_eq(e->reason, REASON_USAGE) && !*e->hint)
		err_hint(e, "see: skerry %s%s%s%s--help", cmd && cmd->noun ? cmd->noun : "",
			 cmd && cmd->noun ? " " : "", cmd ? cmd->name : "", cmd ? " " : "");
	/* nobody reads any more: no news to those who left */
	if (!(str_eq(e->reason, REASON_OUTPUT) && e->code == EPIPE))
		out_error(c->json, e);
	return exit_code(c, cmd, e);
}

/* `skerry` and options only. */
static int alone(struct cli *c, const struct args *a, struct err *e)
{
	c->json = str_eq(args_get(a, "format"), "json");
	if (args_has(a, "help")) {
		help_all();
	} else if (args_has(a, "version")) {
		version_print(c);
	} else if (c->json) {
		return usage(e, "which command?");
	} else {
		help_short(stderr);
		return EXIT_BAD_USAGE;
	}
	return out_flush(e);
}

static int dispatch(struct cli *c, const struct command **ret_cmd, struct args *a, int argc,
		    char **argv, struct err *e)
{
	int words, n = args_parse(a, tool_options, global_options, 0, true, argc - 1, argv + 1, e);

	if (n < 0)
		return n;
	argc -= n + 1;
	argv += n + 1;
	if (!argc || args_has(a, "version"))
		return alone(c, a, e);
	*ret_cmd = command_find(argc, argv, &words);
	if (!*ret_cmd) {
		if (help_noun(argc, argv))
			return out_flush(e);
		return command_unknown(argc, argv, e);
	}
	n = args_parse(a, (*ret_cmd)->options, global_options, (*ret_cmd)->rest_after, false,
		       argc - words, argv + words, e);
	if (n < 0)
		return n;
	c->json = str_eq(args_get(a, "format"), "json");
	return run(c, *ret_cmd, a, e);
}

/* Closed standard streams stay unusable: a file or connection of ours must not become one. */
static void hold_standard_streams(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			_exit(EXIT_FAILED);
	}
}

int main(int argc, char **argv)
{
	struct cli c = { .json = wants_json(argc, argv) };
	const struct command *cmd = NULL;
	_cleanup_args_ struct args a = { 0 };
	struct err e = ERR_INIT;
	int r;

	hold_standard_streams();
	/* widths of characters; the texts themselves are UTF-8 everywhere */
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		setlocale(LC_CTYPE, "");
	signal(SIGPIPE, SIG_IGN);
	r = dispatch(&c, &cmd, &a, argc, argv, &e);
	if (r < 0)
		r = fail(&c, cmd, &e);
	client_free(c.client);
	conf_release(&c.conf);
	return r;
}
