/* The command table: every row is complete, and what its examples show is understood. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h needs them first */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "fields.h"
#include "json.h"
#include "lookup.h"

static void rows_are_complete(void **state)
{
	(void)state;
	for (const struct command *cmd = commands; cmd->name; cmd++) {
		assert_non_null(cmd->run);
		assert_non_null(cmd->summary);
		assert_non_null(cmd->synopsis);
		assert_true(cmd->max_args < 0 || cmd->min_args <= cmd->max_args);
		assert_int_equal(*cmd->synopsis == '\0', cmd->max_args == 0);
		if (!(cmd->flags & HIDDEN))
			assert_non_null(cmd->examples);
		if (cmd->noun)
			assert_non_null(noun_find(cmd->noun));
	}
}

/* No two options of a command share a name or a letter, the global ones included. */
static void options_are_distinct(void **state)
{
	(void)state;
	for (const struct command *cmd = commands; cmd->name; cmd++) {
		const struct opt *tables[] = { cmd->options, global_options };

		for (const struct opt *o = cmd->options; o && o->name; o++) {
			int names = 0, letters = 0;

			assert_true(!o->choices || o->arg);
			for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
				for (const struct opt *p = tables[i]; p->name; p++) {
					names += str_eq(p->name, o->name);
					letters += o->letter && p->letter == o->letter;
				}
			}
			assert_int_equal(names, 1);
			assert_true(letters <= 1);
		}
	}
}

/* The words of the last `skerry …` of an example line, as a shell would split them. */
static bool example_words(const char *line, size_t len, wordexp_t *w)
{
	_cleanup_free_ char *text = strndup(line, len);
	char *at = text, *last = NULL;

	while ((at = strstr(at, "skerry ")))
		last = at++;
	if (!last)
		return false;
	last[strcspn(last, "|;)")] = '\0';
	for (char *p = last; *p; p++) {
		if (strchr("<>&$(){}", *p))
			*p = '_';
	}
	return wordexp(last, w, WRDE_NOCMD) == 0;
}

static void check_example(const char *line, size_t len)
{
	_cleanup_args_ struct args a = { 0 };
	const struct command *cmd;
	struct err e = ERR_INIT;
	wordexp_t w;
	int words = 0, n;

	if (!example_words(line, len, &w)) /* a quote was cut at a pipe inside it */
		return;
	cmd = command_find((int)w.we_wordc - 1, w.we_wordv + 1, &words);
	assert_non_null(cmd);
	n = args_parse(&a, cmd->options, global_options, cmd->rest_after, false,
		       (int)w.we_wordc - 1 - words, w.we_wordv + 1 + words, &e);
	if (n < 0)
		print_error("%.*s: %s\n", (int)len, line, e.text);
	assert_true(n >= 0);
	wordfree(&w);
}

static void examples_are_understood(void **state)
{
	(void)state;
	for (const struct command *cmd = commands; cmd->name; cmd++) {
		for (const char *p = cmd->examples; p && *p;) {
			size_t what = strcspn(p, "\t"), line;

			assert_int_equal(p[what], '\t');
			p += what + 1;
			line = strcspn(p, "\n");
			check_example(p, line);
			p += line + (p[line] == '\n');
		}
	}
}

static const struct command *find(const char *line, int *ret_words)
{
	char *words[8] = { 0 }, text[128];
	int n = 0;

	str_copy(text, sizeof(text), line);
	for (char *p = text; *p && n < 8; n++) {
		words[n] = p;
		p += strcspn(p, " ");
		if (*p)
			*p++ = '\0';
	}
	return command_find(n, words, ret_words);
}

static void lookups(void **state)
{
	static const struct {
		const char *line, *noun, *name;
		int words;
	} good[] = {
		{ "create x", NULL, "create", 1 },
		{ "ls", NULL, "ls", 1 },
		{ "sb rm x", NULL, "destroy", 2 },
		{ "sandbox create", NULL, "create", 2 },
		{ "command logs a b", "command", "logs", 2 },
		{ "cmd ls a", "command", "list", 2 },
		{ "sb command kill a b", "command", "kill", 3 },
		{ "image import x", "image", "import", 2 },
	};
	static const char *const bad[] = {
		"",        "nope",         "sb",    "sb doctor",   "sb image list",
		"command", "command nope", "image", "sb sb create"
	};
	int words;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		const struct command *cmd = find(good[i].line, &words);

		assert_non_null(cmd);
		assert_true(str_eq(cmd->noun, good[i].noun));
		assert_string_equal(cmd->name, good[i].name);
		assert_int_equal(words, good[i].words);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_null(find(bad[i], &words));
}

static void suggestions(void **state)
{
	static const struct {
		const char *words[2];
		const char *hint;
	} rows[] = {
		{ { "craete" }, "did you mean: skerry create" },
		{ { "lst" }, "did you mean: skerry list" },
		{ { "comand" }, "did you mean: skerry command" },
		{ { "command", "log" }, "did you mean: skerry command logs" },
		{ { "sb", "destory" }, "did you mean: skerry destroy" },
		{ { "zzzzzzzzzzzz" }, "see: skerry --help" },
		{ { "logs" }, "did you mean: skerry command logs SANDBOX COMMAND_ID" },
		{ { "show" }, "did you mean: skerry get" },
		{ { "sb", "delete" }, "did you mean: skerry destroy" },
		{ { "command", "get" }, "did you mean: skerry command status" },
		{ { "ssh" }, "did you mean: skerry shell SANDBOX" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(
			command_unknown(rows[i].words[1] ? 2 : 1, (char **)rows[i].words, &e),
			-EINVAL);
		assert_string_equal(e.hint, rows[i].hint);
	}
}

static const struct opt field_options[] = {
	{ "memory", 0, "SIZE", "" },
	{ "disk", 0, "SIZE", "" },
	{ "cpus", 0, "N", "" },
	{ "tag", 0, "T", "", NULL, true },
	{ "line", 0, "L", "", NULL, true },
	{ "word", 0, "W", "" },
	{ "off", 0, NULL, "" },
	{ 0 },
};

static const struct field fields[] = {
	{ "memory", "memory_mb", FIELD_MIB }, { "disk", "disk_gb", FIELD_GIB },
	{ "cpus", "cpus", FIELD_NUMBER },     { "tag", "tags", FIELD_LIST },
	{ "line", "lines", FIELD_LINES },     { "word", "word", FIELD_UPPER },
	{ "off", "on", FIELD_FALSE },         { 0 },
};

/* What the options become, as compact JSON; "" for an error. */
static void fill(char **argv, char *out, size_t size)
{
	_cleanup_args_ struct args a = { 0 };
	_cleanup_json_ json_t *body = json_object();
	_cleanup_free_ char *text = NULL;
	struct err e = ERR_INIT;
	int argc = 0;

	while (argv[argc])
		argc++;
	out[0] = '\0';
	if (args_parse(&a, field_options, NULL, 0, false, argc, argv, &e) < 0 ||
	    fields_fill(&a, fields, body, &e) < 0)
		return;
	text = json_dumps(body, JSON_COMPACT);
	str_copy(out, size, text);
}

static void fields_of_requests(void **state)
{
	static const struct {
		const char *argv[8];
		const char *json;
	} rows[] = {
		{ { NULL }, "{}" },
		{ { "--memory", "512" }, "{\"memory_mb\":512}" },
		{ { "--memory=4G" }, "{\"memory_mb\":4096}" },
		{ { "--memory=1.5GiB" }, "{\"memory_mb\":1536}" },
		{ { "--memory=2048K" }, "{\"memory_mb\":2}" },
		{ { "--memory=1K" }, "" },
		{ { "--memory=0" }, "" },
		{ { "--memory=-1" }, "" },
		{ { "--memory=G" }, "" },
		{ { "--memory=1X" }, "" },
		{ { "--memory=nan" }, "" },
		{ { "--memory=1e9" }, "" },
		{ { "--disk=20" }, "{\"disk_gb\":20}" },
		{ { "--disk=2T" }, "{\"disk_gb\":2048}" },
		{ { "--disk=512M" }, "" },
		{ { "--cpus=1.5" }, "{\"cpus\":1.5}" },
		{ { "--cpus=2" }, "{\"cpus\":2}" },
		{ { "--tag=a", "--tag=", "--tag=b" }, "{\"tags\":[\"a\",\"\",\"b\"]}" },
		{ { "--tag=\xff" }, "" },
		{ { "--line=a", "--line=b c" }, "{\"lines\":\"a\\nb c\"}" },
		{ { "--word=python" }, "{\"word\":\"PYTHON\"}" },
		{ { "--off" }, "{\"on\":false}" },
	};
	char out[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		fill((char **)rows[i].argv, out, sizeof(out));
		assert_string_equal(out, rows[i].json);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_complete),
		cmocka_unit_test(options_are_distinct),
		cmocka_unit_test(examples_are_understood),
		cmocka_unit_test(lookups),
		cmocka_unit_test(suggestions),
		cmocka_unit_test(fields_of_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
