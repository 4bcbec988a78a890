#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h needs them first */
#include <cmocka.h>
#include <errno.h>
#include <locale.h>
#include <string.h>

#include "base/cleanup.h"

#include "api.h"
#include "out.h"

static void escapes(void **state)
{
	static const struct {
		const char *in;
		size_t len;
		const char *out;
	} rows[] = {
		{ "plain é 日本 😀", 0, "plain é 日本 😀" },
		{ "\x1b[31mred", 0, "\\x1b[31mred" },
		{ "a\tb\nc\rd\ae\bf\vg\fh", 0, "a\\tb\\nc\\rd\\ae\\bf\\vg\\fh" },
		{ "\x7f", 0, "\\x7f" },
		{ "\xc2\x9b"
		  "31m",
		  0, "\\u009b31m" }, /* CSI in one character */
		{ "\xe2\x80\xae"
		  "x",
		  0, "\\u202ex" }, /* right to left */
		{ "\xe2\x81\xa6", 0, "\\u2066" },
		{ "\xff\xfe", 0, "\\xff\\xfe" },
		{ "\xc3", 0, "\\xc3" },                   /* cut */
		{ "\xed\xa0\x80", 0, "\\xed\\xa0\\x80" }, /* a surrogate */
		{ "\xc0\x9b", 0, "\\xc0\\x9b" },          /* ESC, overlong */
		{ "\0z", 2, "\\x00z" },
		{ "", 0, "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1024);

		out_escape(&b, rows[i].in, rows[i].len ? rows[i].len : strlen(rows[i].in));
		assert_string_equal(buf_str(&b), rows[i].out);
	}
}

/* Whatever the bytes: nothing below a space, no DEL, no C1, valid UTF-8. */
static void escapes_everything(void **state)
{
	(void)state;
	for (unsigned a = 0; a < 256; a++) {
		for (unsigned c = 0; c < 256; c++) {
			const char in[2] = { (char)a, (char)c };
			_cleanup_buf_ struct buf b = BUF_INIT(64);

			out_escape(&b, in, 2);
			for (size_t i = 0; i < b.len; i++) {
				unsigned char x = (unsigned char)b.data[i];

				assert_true(x >= ' ' && x != 0x7f);
				assert_false(x == 0xc2 && (unsigned char)b.data[i + 1] < 0xa0);
			}
		}
	}
}

static void widths(void **state)
{
	(void)state;
	assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
	assert_int_equal(out_width("abc"), 3);
	assert_int_equal(out_width("é"), 1);
	assert_int_equal(out_width("日本"), 4);
	assert_int_equal(out_width("e\xcc\x81"), 1); /* a combining accent */
	assert_int_equal(out_width(""), 0);
}

static void json_keeps_its_meaning(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	(void)state;
	out_escape_json(&b, "{\n  \"a\": \"\xc2\x9b\x7f é \xe2\x80\xae\"\n}");
	assert_string_equal(buf_str(&b), "{\n  \"a\": \"\\u009b\\u007f é \\u202e\"\n}");
}

static void paths(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "hello", "hello" },
		{ "a/b", "a%2Fb" },
		{ "..", ".." },
		{ "%2e%2e", "%252e%252e" },
		{ "a b?c#d", "a%20b%3Fc%23d" },
		{ "é", "%C3%A9" },
		{ "\xff\n", "%FF%0A" },
		{ "A-Z_~.", "A-Z_~." },
		{ "a&b=c+d", "a%26b%3Dc%2Bd" },
		{ "debian:12", "debian%3A12" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1024);

		api_encode(&b, rows[i].in);
		assert_string_equal(buf_str(&b), rows[i].out);
	}
}

static void names_that_are_none(void **state)
{
	static const char *const bad[] = { "", ".", ".." };
	struct cli c = { .conf.workspace.text = (char[]){ "w s" } };
	_cleanup_buf_ struct buf path = BUF_INIT(1024);
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(api_path(&c, &path, &e, "sandboxes", bad[i], NULL), -EINVAL);
	assert_int_equal(api_path(&c, &path, &e, "sandboxes", "a/b", "exec", NULL), 0);
	assert_string_equal(buf_str(&path), "/workspaces/w%20s/sandboxes/a%2Fb/exec");
	c.conf.project.text = (char[]){ "p&q" };
	assert_int_equal(api_path(&c, &path, &e, "sandboxes", NULL), 0);
	api_query(&path, "wait", "running");
	api_query(&path, "absent", NULL);
	assert_string_equal(buf_str(&path),
			    "/workspaces/w%20s/sandboxes?project_name=p%26q&wait=running");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(escapes), cmocka_unit_test(escapes_everything),
		cmocka_unit_test(widths),  cmocka_unit_test(json_keeps_its_meaning),
		cmocka_unit_test(paths),   cmocka_unit_test(names_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
