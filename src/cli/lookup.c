#include "lookup.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

const struct noun nouns[] = {
	{ "sandbox", "sb" },
	{ "command", "cmd" },
	{ "image", "images" },
	{ 0 },
};

const char *noun_find(const char *word)
{
	for (const struct noun *n = nouns; n->name; n++) {
		if (str_eq(word, n->name) || str_eq(word, n->alias))
			return n->name;
	}
	return NULL;
}

static const struct command *find(const char *noun, const char *name, bool sandbox)
{
	for (const struct command *cmd = commands; cmd->name; cmd++) {
		if (!str_eq(cmd->noun, noun) || (sandbox && !(cmd->flags & SANDBOX)))
			continue;
		if (str_eq(cmd->name, name) || (cmd->alias && str_eq(cmd->alias, name)))
			return cmd;
	}
	return NULL;
}

const struct command *command_find(int argc, char **argv, int *ret_words)
{
	bool sandbox = argc && str_eq(noun_find(argv[0]), "sandbox");
	int at = sandbox ? 1 : 0;
	const char *noun = at < argc ? noun_find(argv[at]) : NULL;

	if (noun) {
		*ret_words = at + 2;
		return at + 1 < argc ? find(noun, argv[at + 1], sandbox) : NULL;
	}
	*ret_words = at + 1;
	return at < argc ? find(NULL, argv[at], sandbox) : NULL;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours between two short words. */
static size_t distance(const char *a, const char *b)
{
	enum { WORD_MAX = 32 };
	size_t d[WORD_MAX + 1][WORD_MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return WORD_MAX;
	for (size_t i = 0; i <= n; i++) {
		for (size_t j = 0; j <= m; j++) {
			if (!i || !j) {
				d[i][j] = i + j;
				continue;
			}
			d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1,
					d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	}
	return d[n][m];
}

static void nearer(const char *word, const char *candidate, size_t *best, const char **ret)
{
	size_t d = candidate ? distance(word, candidate) : *best;

	if (d < *best) {
		*best = d;
		*ret = candidate;
	}
}

/* The verb of `noun` (or a command or a noun, for NULL) nearest to `word`: a third of its letters
 * may be wrong. */
static const char *nearest(const char *noun, const char *word)
{
	size_t best = strlen(word) / 3 + 2;
	const char *found = NULL;

	for (const struct command *cmd = commands; cmd->name; cmd++) {
		if (cmd->flags & HIDDEN || !str_eq(cmd->noun, noun))
			continue;
		nearer(word, cmd->name, &best, &found);
		nearer(word, cmd->alias, &best, &found);
	}
	for (const struct noun *n = nouns; n->name && !noun; n++)
		nearer(word, n->name, &best, &found);
	return found;
}

/* Words that other tools have, or that ours will have. */
static const struct {
	const char *noun, *words, *hint;
} foreign[] = {
	{ NULL, "logs log tail", "did you mean: skerry command logs SANDBOX COMMAND_ID" },
	{ NULL, "show inspect info describe", "did you mean: skerry get" },
	{ NULL, "delete del remove", "did you mean: skerry destroy" },
	{ NULL, "kill",
	  "did you mean: skerry command kill SANDBOX COMMAND_ID, or skerry destroy SANDBOX" },
	{ NULL, "ps", "did you mean: skerry list, or skerry command list SANDBOX" },
	{ NULL, "new", "did you mean: skerry create" },
	{ NULL, "ssh sh console login", "did you mean: skerry shell SANDBOX" },
	{ NULL, "attach", "did you mean: skerry shell SANDBOX --attach COMMAND_ID" },
	{ NULL, "cp push pull files", "files are not there yet; see: skerry help exec" },
	{ NULL, "pause resume snapshot snapshots clone app endpoint update recreate top yaml apply",
	  "this is not there yet; what is: skerry --help" },
	{ "command", "get show inspect wait", "did you mean: skerry command status" },
	{ "command", "rm stop terminate destroy delete", "did you mean: skerry command kill" },
	{ "command", "run exec create", "did you mean: skerry exec" },
	{ "image", "delete destroy", "did you mean: skerry image rm" },
	{ "image", "load add create", "did you mean: skerry image import" },
};

static const char *foreign_hint(const char *noun, const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
		if (str_eq(noun, foreign[i].noun) && word_in(foreign[i].words, word))
			return foreign[i].hint;
	}
	return NULL;
}

int command_unknown(int argc, char **argv, struct err *e)
{
	int at = argc && str_eq(noun_find(argv[0]), "sandbox") ? 1 : 0;
	const char *noun = at < argc ? noun_find(argv[at]) : NULL;
	const char *word = noun        ? (at + 1 < argc ? argv[at + 1] : NULL)
			   : at < argc ? argv[at]
				       : NULL;
	const char *near = word ? nearest(noun, word) : NULL;

	if (!word)
		return usage(e, "which command of '%s'?", argv[0]);
	usage(e, "'%s%s%s' is not a command", noun ? noun : "", noun ? " " : "", word);
	if (foreign_hint(noun, word))
		err_hint(e, "%s", foreign_hint(noun, word));
	else if (near)
		err_hint(e, "did you mean: skerry %s%s%s", noun ? noun : "", noun ? " " : "", near);
	else
		err_hint(e, "see: skerry --help");
	return -e->code;
}
