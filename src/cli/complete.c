/*
 * __complete: candidates for the last of the words given, "candidate\tdescription" a line, or
 * ":file" where the shell is to offer files. Kinds of arguments stand in the command table:
 * "sandbox", "command", "image" are asked of the API (for a second at most, silence on failure); a
 * trailing "*" repeats the kind.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "api.h"
#include "lookup.h"
#include "open.h"

enum { ASK_MS = 1000, ASK_LIMIT = 200 };

static const char shells[] = "bash zsh fish";
static const char signals[] = "HUP INT QUIT KILL USR1 USR2 TERM CONT STOP TSTP WINCH";

static void offer(const char *cur, const char *candidate, const char *what)
{
	if (candidate && str_starts(candidate, cur))
		printf("%s\t%s\n", candidate, what ? what : "");
}

static void offer_words(const char *cur, const char *before, const char *list, const char *what)
{
	size_t at = 0;

	while (list[at]) {
		size_t len = strcspn(list + at, " ");
		char word[96];

		snprintf(word, sizeof(word), "%s%.*s", before, (int)len, list + at);
		offer(cur, word, what);
		at += len;
		at += strspn(list + at, " ");
	}
}

static void offer_options(const char *cur, const struct opt *o)
{
	for (; o && o->name; o++) {
		char word[64];

		snprintf(word, sizeof(word), "--%s", o->name);
		offer(cur, word, o->help);
	}
}

static void offer_commands(const char *cur, const char *noun, bool sandbox)
{
	for (const struct command *cmd = commands; cmd->name; cmd++) {
		if (!(cmd->flags & HIDDEN) && str_eq(cmd->noun, noun) &&
		    (!sandbox || cmd->flags & SANDBOX))
			offer(cur, cmd->name, cmd->summary);
	}
	for (const struct noun *n = nouns; n->name && !noun; n++) {
		if (!sandbox || str_eq(n->name, "command"))
			offer(cur, n->name, "…");
	}
}

/* Names from the API go to a shell: only what needs no quoting there. */
static bool plain(const char *name)
{
	return name && *name != '-' && *name &&
	       strspn(name,
		      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/") ==
		       strlen(name);
}

static const struct {
	const char *kind, *list, *name, *what;
} asked[] = {
	{ "sandbox", "sandboxes", "identifier", "status" },
	{ "command", "commands", "id", "status" },
	{ "image", "images", "name", NULL },
};

static void offer_asked(struct cli *c, const struct args *given, const char *cur, size_t i)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *answer = NULL;
	struct err e = ERR_INIT;
	const json_t *entry;
	char limit[16];
	size_t k;
	int r;

	if (client_open(c, given, &e) < 0)
		return;
	if (str_eq(asked[i].kind, "command"))
		r = given->n_pos
			    ? api_path(c, &path, &e, "sandboxes", given->pos[0], "commands", NULL)
			    : -1;
	else
		r = api_path(c, &path, &e, asked[i].list, NULL);
	if (r < 0)
		return;
	snprintf(limit, sizeof(limit), "%d", ASK_LIMIT);
	if (!str_eq(asked[i].kind, "image"))
		api_query(&path, "limit", limit);
	if (api_call(c, "GET", &path, NULL, ASK_MS, &answer, &e) < 0)
		return;
	json_array_foreach(json_object_get(answer, asked[i].list), k, entry)
	{
		const char *what = asked[i].what ? json_text(entry, asked[i].what) : NULL;

		if (plain(json_text(entry, asked[i].name)))
			offer(cur, json_text(entry, asked[i].name), plain(what) ? what : NULL);
	}
}

static void offer_kind(struct cli *c, const struct args *given, const char *cur, const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
		if (str_eq(kind, asked[i].kind))
			offer_asked(c, given, cur, i);
	}
	if (str_eq(kind, "file"))
		puts(":file");
	else if (str_eq(kind, "shell"))
		offer_words(cur, "", shells, NULL);
	else if (str_eq(kind, "signal"))
		offer_words(cur, "", signals, NULL);
	else if (str_eq(kind, "config"))
		offer_words(cur, "", "get set", NULL);
	else if (str_eq(kind, "key"))
		offer_words(cur, "", conf_keys, NULL);
	else if (str_eq(kind, "help"))
		offer_commands(cur, NULL, false);
}

/* The kind of the argument at `at`: word number `at`, or the last one where it repeats. */
static void offer_argument(struct cli *c, const struct command *cmd, const struct args *given,
			   const char *cur)
{
	const char *p = cmd->complete ? cmd->complete : "";
	char kind[16];

	if (cmd->rest_after && given->n_pos >= cmd->rest_after) {
		puts(":file");
		return;
	}
	for (int at = given->n_pos; at > 0 && *p; at--) {
		size_t len = strcspn(p, " ");

		if (len && p[len - 1] == '*')
			break;
		p += len;
		p += strspn(p, " ");
	}
	snprintf(kind, sizeof(kind), "%.*s", (int)strcspn(p, " *"), p);
	offer_kind(c, given, cur, kind);
}

static const struct opt *option_of(const char *word, const struct opt *o)
{
	size_t len = strcspn(word, "=");

	for (; o && o->name; o++) {
		if (str_starts(word, "--") && strlen(o->name) == len - 2 &&
		    !memcmp(word + 2, o->name, len - 2))
			return o;
		if (word[0] == '-' && o->letter && word[1] == o->letter && !word[2])
			return o;
	}
	return NULL;
}

static void offer_value(struct cli *c, const struct args *given, const struct opt *o,
			const char *before, const char *cur)
{
	if (o->choices)
		offer_words(cur, before, o->choices, NULL);
	else if ((str_eq(o->name, "image") || str_eq(o->name, "os")) && !*before)
		offer_kind(c, given, cur, "image");
	else if (str_eq(o->name, "signal") && !*before)
		offer_kind(c, given, cur, "signal");
	else if (str_eq(o->name, "attach") && !*before)
		offer_kind(c, given, cur, "command");
}

/* True when `cur` is the value of an option, which then was offered. */
static bool value_offered(struct cli *c, const struct args *given, const struct command *cmd,
			  const char *prev, const char *cur)
{
	const struct opt *own = cmd ? cmd->options : NULL, *o;
	const char *equals = str_starts(cur, "--") ? strchr(cur, '=') : NULL;
	const char *word = equals ? cur : prev;
	char before[64] = "";

	if (!word || (!(o = option_of(word, own)) && !(o = option_of(word, global_options))) ||
	    !o->arg)
		return false;
	if (equals)
		snprintf(before, sizeof(before), "--%s=", o->name);
	offer_value(c, given, o, before, cur);
	return true;
}

int cmd_complete(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_args_ struct args given = { 0 };
	const char *cur = a->n_pos ? a->pos[a->n_pos - 1] : "";
	int before = a->n_pos ? a->n_pos - 1 : 0, words = 0, n;
	const char *prev = before ? a->pos[before - 1] : NULL;
	const struct command *cmd = NULL;

	n = args_parse(&given, tool_options, global_options, 0, true, before, a->pos, e);
	if (n >= 0 && n < before)
		cmd = command_find(before - n, a->pos + n, &words);
	if (cmd) /* an option without its value ends it, which is where we may be */
		args_parse(&given, cmd->options, global_options, cmd->rest_after, false,
			   before - n - words, a->pos + n + words, e);
	if (cmd && cmd->rest_after && given.n_pos > cmd->rest_after) {
		puts(":file"); /* the other program's words */
		return 0;
	}
	if (!given.dashes && value_offered(c, &given, cmd, prev, cur))
		return 0;
	if (*cur == '-' && !given.dashes) {
		offer_options(cur, cmd ? cmd->options : tool_options);
		offer_options(cur, global_options);
	} else if (cmd) {
		offer_argument(c, cmd, &given, cur);
	} else if (n >= 0) {
		bool sandbox = n < before && str_eq(noun_find(a->pos[n]), "sandbox");
		int at = n + (sandbox ? 1 : 0);

		offer_commands(cur, at < before ? noun_find(a->pos[at]) : NULL, sandbox);
	}
	return 0;
}
