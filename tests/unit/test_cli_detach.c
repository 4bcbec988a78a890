/* Keys that leave a terminal: which sequences are found, and that nothing else is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h needs them first */
#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"

#include "detach.h"

static void lists_are_understood(void **state)
{
	static const struct {
		const char *text, *keys;
	} good[] = {
		{ "ctrl-p,ctrl-q", "\x10\x11" },
		{ "ctrl-P", "\x10" },
		{ "ctrl-]", "\x1d" },
		{ "a", "a" },
		{ "a,b", "ab" },
		{ ",", "," },
		{ "ctrl-a,d", "\x01"
			      "d" },
	};
	static const char *const bad[] = { "ctrl-", "ctrl-1", "F1",
					   "ab",    "a,ab",   "a,b,c,d,e,f,g,h,i" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct detach d = { 0 };
		struct err e = ERR_INIT;

		assert_int_equal(detach_parse(&d, good[i].text, &e), 0);
		assert_int_equal(d.n, strlen(good[i].keys));
		assert_memory_equal(d.keys, good[i].keys, d.n);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct detach d = { 0 };
		struct err e = ERR_INIT;

		assert_true(detach_parse(&d, bad[i], &e) < 0);
		assert_non_null(strstr(e.text, bad[i]));
	}
}

/* Feeds `typed` in pieces of `step` bytes; what came out, and whether the sequence was found. */
static bool feed(const char *list, const char *typed, size_t step, char *out)
{
	struct detach d = { 0 };
	struct err e = ERR_INIT;
	size_t len = strlen(typed), n = 0;

	assert_int_equal(detach_parse(&d, list, &e), 0);
	*out = '\0';
	for (size_t at = 0; at < len; at += step) {
		size_t piece = len - at < step ? len - at : step, got = 0;
		bool found = detach_feed(&d, typed + at, piece, out + n, &got);

		assert_true(got <= piece + DETACH_MAX);
		n += got;
		out[n] = '\0';
		if (found)
			return true;
	}
	return false;
}

static void sequences_are_found(void **state)
{
	static const struct {
		const char *list, *typed, *out;
		bool found;
	} rows[] = {
		{ NULL, "anything", "anything", false },
		{ "x", "abxc", "ab", true },
		{ "a,b", "ab", "", true },
		{ "a,b", "aab", "a", true },
		{ "a,b", "acab", "ac", true },
		{ "a,b", "a", "", false }, /* held back */
		{ "a,b", "acb", "acb", false },
		{ "a,b,a,c", "ababac", "ab", true },
		{ "a,a,b", "aaaab", "aa", true },
		{ "a,a,b", "aacaab", "aac", true },
		{ "a,b,a,c", "abaabac", "aba", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (size_t step = 1; step <= 8; step++) {
			char out[64];

			assert_int_equal(feed(rows[i].list, rows[i].typed, step, out),
					 rows[i].found);
			assert_string_equal(out, rows[i].out);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_understood),
		cmocka_unit_test(sequences_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
