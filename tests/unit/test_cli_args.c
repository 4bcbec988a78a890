#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h needs them first */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

#include "cli.h"

static const struct opt own[] = {
	{ "user", 'u', "USER", "" },
	{ "env", 'e', "KEY=VALUE", "", NULL, true },
	{ "detach", 'd', NULL, "" },
	{ "stdin", 'i', NULL, "" },
	{ "runtime", 0, "NAME", "", "bash python" },
	{ "number", 0, "N", "" },
	{ 0 },
};

/* Parses words up to NULL. */
static int parse(struct args *a, int rest_after, struct err *e, const char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return args_parse(a, own, global_options, rest_after, false, argc, (char **)argv, e);
}

#define PARSE(a, rest, e, ...) parse(a, rest, e, (const char *[]){ __VA_ARGS__, NULL })

static void every_form(void **state)
{
	_cleanup_args_ struct args a = { 0 };
	struct err e = ERR_INIT;
	size_t at = 0;

	(void)state;
	assert_int_equal(PARSE(&a, 0, &e, "one", "-di", "-uroot", "--env", "A=1", "--env=B=2",
			       "two", "-e", "C=", "--", "-x"),
			 11);
	assert_int_equal(a.n_pos, 3);
	assert_string_equal(a.pos[0], "one");
	assert_string_equal(a.pos[1], "two");
	assert_string_equal(a.pos[2], "-x");
	assert_true(args_has(&a, "detach"));
	assert_true(args_has(&a, "stdin"));
	assert_false(args_has(&a, "runtime"));
	assert_true(a.dashes);
	assert_string_equal(args_get(&a, "user"), "root");
	assert_string_equal(args_next(&a, "env", &at), "A=1");
	assert_string_equal(args_next(&a, "env", &at), "B=2");
	assert_string_equal(args_next(&a, "env", &at), "C=");
	assert_null(args_next(&a, "env", &at));
}

static void the_last_one_counts(void **state)
{
	_cleanup_args_ struct args a = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	PARSE(&a, 0, &e, "-u", "a", "-u", "b");
	assert_string_equal(args_get(&a, "user"), "b");
}

/* The options of the program that is run are its own. */
static void rest_is_taken_as_it_is(void **state)
{
	_cleanup_args_ struct args a = { 0 }, b = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_true(PARSE(&a, 1, &e, "sb", "-u", "x", "ls", "-u", "--nope", "--", "-d") > 0);
	assert_int_equal(a.n_pos, 6);
	assert_string_equal(a.pos[1], "ls");
	assert_string_equal(a.pos[2], "-u");
	assert_string_equal(a.pos[4], "--");
	assert_string_equal(args_get(&a, "user"), "x");
	assert_false(args_has(&a, "detach"));
	assert_true(PARSE(&b, 1, &e, "sb", "--", "-u", "--help") > 0);
	assert_int_equal(b.n_pos, 3);
	assert_false(args_has(&b, "help"));
}

static void refused(void **state)
{
	static const char *lines[][4] = {
		{ "--nope" },
		{ "-z" },
		{ "--user" },
		{ "-e" },
		{ "--detach=yes" },
		{ "-dz" },
		{ "--runtime", "c" },
		{ "--runtime=" },
		{ "--format", "xml" },
		{ "--use", "x" },
		{ "--"
		  "user2=x" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_args_ struct args a = { 0 };
		struct err e = ERR_INIT;

		assert_int_equal(parse(&a, 0, &e, lines[i]), -EINVAL);
		assert_string_equal(e.reason, REASON_USAGE);
		assert_true(*e.text);
	}
}

static void numbers(void **state)
{
	static const char *const good[] = { "0", "1", "2.5", "100" };
	static const char *const bad[] = { "",   "-1",  "1e18",  "nan", "inf", "0x10", " 1",
					   "1 ", "101", "1.2.3", "+1",  ".",   "ten" };
	double value = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_args_ struct args a = { 0 };
		struct err e = ERR_INIT;

		PARSE(&a, 0, &e, "--number", good[i]);
		assert_int_equal(args_number(&a, "number", 0, 100, &value, &e), 0);
	}
	assert_true(value == 100);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_args_ struct args a = { 0 };
		struct err e = ERR_INIT;

		PARSE(&a, 0, &e, "--number", bad[i]);
		assert_int_equal(args_number(&a, "number", 0, 100, &value, &e), -EINVAL);
		assert_non_null(strstr(e.text, "--number"));
	}
	assert_true(value == 100);
}

static void not_given(void **state)
{
	_cleanup_args_ struct args a = { 0 };
	struct err e = ERR_INIT;
	double value = 7;

	(void)state;
	assert_int_equal(PARSE(&a, 0, &e, "x"), 1);
	assert_int_equal(args_number(&a, "number", 0, 100, &value, &e), 1);
	assert_true(value == 7);
	assert_null(args_get(&a, "user"));
}

static void words(void **state)
{
	(void)state;
	assert_true(word_in("a bc d", "bc"));
	assert_true(word_in("a bc d", "d"));
	assert_false(word_in("a bc d", "b"));
	assert_false(word_in("a bc d", ""));
	assert_false(word_in("", "a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form),
		cmocka_unit_test(the_last_one_counts),
		cmocka_unit_test(rest_is_taken_as_it_is),
		cmocka_unit_test(refused),
		cmocka_unit_test(numbers),
		cmocka_unit_test(not_given),
		cmocka_unit_test(words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
