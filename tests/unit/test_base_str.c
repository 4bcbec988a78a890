/*
 * Strings, numbers, identifiers, errors, dates.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#include "unit.h"

static void test_u64(void **state)
{
	static const struct {
		const char *s;
		uint64_t min, max, want;
		int code;
	} rows[] = {
		{ "0", 0, UINT64_MAX, 0, 0 },
		{ "007", 0, 10, 7, 0 },
		{ "18446744073709551615", 0, UINT64_MAX, UINT64_MAX, 0 },
		{ "18446744073709551616", 0, UINT64_MAX, 0, -ERANGE },
		{ "18446744073709551620", 0, UINT64_MAX, 0, -ERANGE },
		{ "99999999999999999999999", 0, UINT64_MAX, 0, -ERANGE },
		{ "99999999999999999999999x", 0, UINT64_MAX, 0, -EINVAL },
		{ "5", 5, 5, 5, 0 },
		{ "4", 5, 6, 0, -ERANGE },
		{ "7", 5, 6, 0, -ERANGE },
		{ "", 0, 1, 0, -EINVAL },
		{ "-1", 0, UINT64_MAX, 0, -EINVAL },
		{ "+1", 0, UINT64_MAX, 0, -EINVAL },
		{ " 1", 0, UINT64_MAX, 0, -EINVAL },
		{ "1 ", 0, UINT64_MAX, 0, -EINVAL },
		{ "1\n", 0, UINT64_MAX, 0, -EINVAL },
		{ "0x1", 0, UINT64_MAX, 0, -EINVAL },
		{ "1e3", 0, UINT64_MAX, 0, -EINVAL },
		{ "1.5", 0, UINT64_MAX, 0, -EINVAL },
		{ "NaN", 0, UINT64_MAX, 0, -EINVAL },
		{ "\xd9\xa1", 0, UINT64_MAX, 0, -EINVAL }, /* a digit of another script */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t got = 12345;
		int r = str_u64(rows[i].s, rows[i].min, rows[i].max, &got);

		if (r != rows[i].code || got != (r < 0 ? 12345 : rows[i].want))
			fail_msg("'%s': %d, %llu", rows[i].s, r, (unsigned long long)got);
	}
}

static void test_copy(void **state)
{
	char out[4] = "zzz";

	(void)state;
	assert_true(str_copy(out, sizeof(out), "abc"));
	assert_string_equal(out, "abc");
	assert_false(str_copy(out, sizeof(out), "abcd"));
	assert_string_equal(out, "");
	assert_true(str_copy(out, 1, ""));
	assert_false(str_copy(out, 0, ""));
	assert_true(str_eq(NULL, NULL));
	assert_false(str_eq(NULL, ""));
	assert_true(str_ends("abc", "bc") && str_ends("abc", "") && !str_ends("c", "bc"));
	assert_true(str_starts("abc", "ab") && !str_starts("a", "ab"));
}

static void test_utf8(void **state)
{
	static const struct {
		const char *s;
		size_t len;
		bool valid;
	} rows[] = {
		{ "", 0, true },
		{ "a\0b", 3, true },
		{ "\x7f", 1, true },
		{ "\x80", 1, false },
		{ "\xbf", 1, false },
		{ "\xc0\x80", 2, false }, /* overlong */
		{ "\xc1\xbf", 2, false },
		{ "\xc2\x80", 2, true },
		{ "\xdf\xbf", 2, true },
		{ "\xc2", 1, false },
		{ "\xc2\x41", 2, false },
		{ "\xe0\x80\x80", 3, false },
		{ "\xe0\x9f\xbf", 3, false },
		{ "\xe0\xa0\x80", 3, true },
		{ "\xe2\x82", 2, false },
		{ "\xe2\x82\xac", 3, true },
		{ "\xed\x9f\xbf", 3, true },
		{ "\xed\xa0\x80", 3, false }, /* surrogates */
		{ "\xed\xbf\xbf", 3, false },
		{ "\xee\x80\x80", 3, true },
		{ "\xef\xbf\xbf", 3, true },
		{ "\xf0\x80\x80\x80", 4, false },
		{ "\xf0\x8f\xbf\xbf", 4, false },
		{ "\xf0\x90\x80\x80", 4, true },
		{ "\xf0\x9f\x98", 3, false },
		{ "\xf4\x8f\xbf\xbf", 4, true },
		{ "\xf4\x90\x80\x80", 4, false },
		{ "\xf5\x80\x80\x80", 4, false },
		{ "\xf8\x88\x80\x80\x80", 5, false },
		{ "\xfe", 1, false },
		{ "\xff", 1, false },
		{ "a\xe2\x82\xac\xff", 5, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (utf8_valid(rows[i].s, rows[i].len) != rows[i].valid)
			fail_msg("row %zu", i);
	}
}

static void test_ids(void **state)
{
	static const char *const bad[] = {
		"",
		"sb",
		"sbaaaaaaaaaaaaaaaaaaa",   /* one short */
		"sbaaaaaaaaaaaaaaaaaaaaa", /* one long */
		"sbaaaaaaaaaaaaaaaaaaa1",
		"sbaaaaaaaaaaaaaaaaaaa0",
		"sbaaaaaaaaaaaaaaaaaaa8",
		"sbaaaaaaaaaaaaaaaaaaaA",
		"SBaaaaaaaaaaaaaaaaaaaa",
		"s2aaaaaaaaaaaaaaaaaaaa",
		"sbaaaaaaaaaaaaaaaaaa/a",
		"sbaaaaaaaaaaaaaaaaaa..",
		"sbaaaaaaaaaaaaaaaaaaa\n",
		"sbaaaaaaaaaaaaaaaaaa\xc3\xa9",
	};
	char a[ID_SIZE], b[ID_SIZE];

	(void)state;
	assert_true(id_valid("sbaaaaaaaaaaaaaaaaa267", "sb"));
	assert_false(id_valid("sbaaaaaaaaaaaaaaaaa267", "sn"));
	assert_true(id_valid("sbaaaaaaaaaaaaaaaaa267", NULL));
	assert_false(id_valid(NULL, NULL));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (id_valid(bad[i], NULL))
			fail_msg("'%s'", bad[i]);
	}
	assert_int_equal(id_make("cm", a), 0);
	assert_int_equal(id_make("cm", b), 0);
	assert_true(id_valid(a, "cm") && id_valid(b, "cm"));
	assert_string_not_equal(a, b);
}

static void test_hex(void **state)
{
	char out[9];

	(void)state;
	hex_encode("\x00\x9f\xff\x10", 4, out);
	assert_string_equal(out, "009fff10");
	hex_encode("", 0, out);
	assert_string_equal(out, "");
}

static void test_err(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	errno = 77;
	assert_int_equal(err_set(&e, -ENOENT, "open '%s': %m", "x"), -ENOENT);
	assert_int_equal(errno, 77);
	assert_int_equal(e.code, ENOENT);
	assert_string_equal(e.text, "open 'x': No such file or directory");
	assert_null(e.reason);
	assert_int_equal(err_field(&e, "apps[%d]", 2), -ENOENT);
	assert_int_equal(err_hint(&e, "do %s", "this"), -ENOENT);
	assert_int_equal(err_wrap(&e, "start %s", "it"), -ENOENT);
	assert_string_equal(e.text, "start it: open 'x': No such file or directory");
	assert_string_equal(e.field, "apps[2]");
	assert_string_equal(e.hint, "do this");
	assert_int_equal(err_reason(&e, EBUSY, "busy", "no"), -EBUSY);
	assert_string_equal(e.reason, "busy");
	assert_string_equal(e.field, ""); /* a new error begins anew */
}

static void test_err_null(void **state)
{
	(void)state;
	assert_int_equal(err_set(NULL, ENOENT, "x"), -ENOENT);
	assert_true(err_wrap(NULL, "x") < 0);
	assert_true(err_field(NULL, "x") < 0);
	assert_true(err_hint(NULL, "x") < 0);
	errno = 0; /* whatever happened between, a failure stays one */
	assert_true(err_wrap(NULL, "x") < 0);
}

/* Cut where it does not fit, the text is still valid UTF-8 and the outer part is there. */
static void test_err_cut(void **state)
{
	char name[600];
	struct err e;

	(void)state;
	for (size_t i = 0; i + 3 < sizeof(name); i += 3)
		memcpy(name + i, "\xe2\x82\xac", 3);
	name[597] = '\0';
	for (int shift = 0; shift < 4; shift++) {
		err_set(&e, EINVAL, "%.*s%s", shift, "abcd", name);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		assert_true(strlen(e.text) > sizeof(e.text) - 5);
		err_wrap(&e, "outer%.*s", shift, "abcd");
		assert_true(str_starts(e.text, "outer"));
		assert_true(utf8_valid(e.text, strlen(e.text)));
		assert_true(strlen(e.text) > sizeof(e.text) - 5);
		err_wrap(&e, "%.*s%s", shift, "abcd", name);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		err_field(&e, "%.*s%s", shift, "abcd", name);
		assert_true(utf8_valid(e.field, strlen(e.field)));
		err_hint(&e, "%.*s%s", shift, "abcd", name);
		assert_true(utf8_valid(e.hint, strlen(e.hint)));
	}
}

static void test_clock(void **state)
{
	static const struct {
		int64_t ms;
		const char *want;
	} rows[] = {
		{ 0, "1970-01-01T00:00:00.000Z" },
		{ 1, "1970-01-01T00:00:00.001Z" },
		{ -1, "1969-12-31T23:59:59.999Z" },
		{ -1000, "1969-12-31T23:59:59.000Z" },
		{ 1709210096789, "2024-02-29T12:34:56.789Z" },
		{ 253402300799999, "9999-12-31T23:59:59.999Z" },
	};
	static const int64_t odd[] = { INT64_MAX, INT64_MIN, 253402300800000, -62135596800001 };
	char out[CLOCK_TEXT_SIZE];
	uint64_t now;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		clock_text(rows[i].ms, out);
		assert_string_equal(out, rows[i].want);
	}
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		memset(out, 'z', sizeof(out));
		clock_text(odd[i], out);
		assert_non_null(memchr(out, '\0', sizeof(out)));
		assert_non_null(strchr(out, 'T'));
	}
	now = clock_mono_ns();
	assert_true(clock_mono_ns() >= now);
	assert_int_equal(clock_left_ms(UINT64_MAX), -1);
	assert_int_equal(clock_left_ms(UINT64_MAX - 1), INT_MAX);
	assert_int_equal(clock_left_ms(0), 0);
	assert_int_equal(clock_left_ms(now), 0);
	assert_true(clock_left_ms(clock_mono_ns() + 1) <= 1);
	assert_int_equal(clock_left_ms(clock_mono_ns() + 3600 * NS_PER_SEC), 3600000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_u64),      cmocka_unit_test(test_copy),
		cmocka_unit_test(test_utf8),     cmocka_unit_test(test_ids),
		cmocka_unit_test(test_hex),      cmocka_unit_test(test_err),
		cmocka_unit_test(test_err_null), cmocka_unit_test(test_err_cut),
		cmocka_unit_test(test_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
