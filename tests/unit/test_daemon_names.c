/* Identifiers, host names, image names, signals. */
#include <signal.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

#include "sandbox/identifier.h"
#include "unit.h"

static char long_name[300];

static void test_identifiers(void **state)
{
	static const char *const good[] = { "a", "A-b_c", "_x_", "0", "a--b", "Snapshot", "yaml2" };
	static const char *const bad[] = { "",
					   "-a",
					   "a-",
					   "a.b",
					   "a/b",
					   "..",
					   "\xc3\xa9",
					   "a b",
					   "snapshots",
					   "SnapShots",
					   "yaml",
					   "YAML",
					   "sbaaaaaaaaaaaaaaaaaaaa",
					   "cmabcdefghij234567abcd" };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(identifier_valid(good[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(identifier_valid(bad[i]));
	memset(long_name, 'a', 64);
	assert_false(identifier_valid(long_name));
	long_name[63] = '\0';
	assert_true(identifier_valid(long_name));
}

static void test_derive(void **state)
{
	static const struct {
		const char *name, *identifier;
	} rows[] = {
		{ "plain", "plain" },
		{ "Two Words", "Two-Words" },
		{ "a.b.c", "a-b-c" },
		{ "  x  ", "x" },
		{ "-x-", "x" },
		{ "\xe6\x97\xa5\xe6\x9c\xac", "" },
		{ "caf\xc3\xa9 1", "caf-1" },
		{ "yaml", "yaml-1" },
		{ "snapshots", "snapshots-1" },
		{ "sbaaaaaaaaaaaaaaaaaaaa", "sbaaaaaaaaaaaaaaaaaaaa-1" },
		{ "a/../b", "a-b" },
	};
	char out[IDENTIFIER_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		identifier_derive(rows[i].name, out);
		assert_string_equal(out, rows[i].identifier);
		assert_true(!*out || identifier_valid(out));
	}
	memset(long_name, 'b', 255);
	long_name[255] = '\0';
	identifier_derive(long_name, out);
	assert_int_equal(strlen(out), 63);
	long_name[62] = ' ';
	identifier_derive(long_name, out);
	assert_int_equal(strlen(out), 62);
}

static void test_numbers(void **state)
{
	char full[IDENTIFIER_MAX + 1], out[IDENTIFIER_MAX + 1];

	(void)state;
	memset(full, 'c', 63);
	full[63] = '\0';
	full[60] = '-';
	identifier_number(full, 2, out);
	assert_true(identifier_valid(out));
	assert_true(str_ends(out, "c-2"));
	identifier_number(full, 1234, out);
	assert_true(identifier_valid(out));
	assert_int_equal(strlen(out), 63);
}

static void test_hostname(void **state)
{
	char out[IDENTIFIER_MAX + 1];

	(void)state;
	identifier_hostname("My_Box-1", out);
	assert_string_equal(out, "my-box-1");
	identifier_hostname("_a_", out);
	assert_true(out[0] != '-' && out[2] != '-');
}

static void test_images(void **state)
{
	static const char *const good[] = { "debian:12", "a", "a.b_c-d:V1.0-x", "ubuntu:24.04" };
	static const char *const bad[] = { "",   ":",   "a:", "a:b:c", "A",
					   ".a", "a/b", "..", "a b",   "-a" };
	struct err e;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(image_name_check(good[i], &e), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_true(image_name_check(bad[i], &e) < 0);
	memset(long_name, 'a', 129);
	long_name[129] = '\0';
	assert_true(image_name_check(long_name, &e) < 0);
	long_name[128] = '\0';
	assert_int_equal(image_name_check(long_name, &e), 0);
}

static void test_signals(void **state)
{
	char text[24];

	(void)state;
	assert_int_equal(signal_number("SIGKILL"), SIGKILL);
	assert_int_equal(signal_number("TERM"), SIGTERM);
	assert_int_equal(signal_number("SIGNOPE"), 0);
	assert_int_equal(signal_number("9"), 0);
	assert_int_equal(signal_number(""), 0);
	signal_text(SIGSEGV, text);
	assert_string_equal(text, "SIGSEGV");
	signal_text(SIGRTMIN + 2, text);
	assert_string_equal(text, "SIGRTMIN+2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identifiers), cmocka_unit_test(test_derive),
		cmocka_unit_test(test_numbers),     cmocka_unit_test(test_hostname),
		cmocka_unit_test(test_images),      cmocka_unit_test(test_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
