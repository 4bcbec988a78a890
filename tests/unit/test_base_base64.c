#include <errno.h>
#include <string.h>

#include "base/base64.h"
#include "base/cleanup.h"

#include "unit.h"

/* RFC 4648, section 10, and bytes that are no text. */
static const struct {
	const char *text, *bytes;
	size_t len;
} good[] = {
	{ "", "", 0 },
	{ "Zg==", "f", 1 },
	{ "Zm8=", "fo", 2 },
	{ "Zm9v", "foo", 3 },
	{ "Zm9vYg==", "foob", 4 },
	{ "Zm9vYmE=", "fooba", 5 },
	{ "Zm9vYmFy", "foobar", 6 },
	{ "/+8A", "\xff\xef\0", 3 },
	{ "AP/+", "\0\xff\xfe", 3 },
};

static void test_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_buf_ struct buf text = BUF_INIT(64), bytes = BUF_INIT(64);

		assert_int_equal(base64_encode(&text, good[i].bytes, good[i].len), 0);
		assert_string_equal(buf_str(&text), good[i].text);
		assert_int_equal(base64_decode(&bytes, good[i].text, strlen(good[i].text)), 0);
		assert_int_equal(bytes.len, good[i].len);
		assert_memory_equal(buf_str(&bytes), good[i].bytes, good[i].len);
	}
}

static void test_what_is_not_base64(void **state)
{
	static const char *const bad[] = { "Z",        "Zg",   "Zg=",   "====",
					   "Zg==Zg==", "Z g=", "Zm9\n", "Z===" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64);

		assert_int_equal(base64_decode(&b, bad[i], strlen(bad[i])), -EINVAL);
	}
}

static void test_ceiling(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(7);

	(void)state;
	assert_int_equal(base64_encode(&b, "abcdef", 6), -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_ways),
		cmocka_unit_test(test_what_is_not_base64),
		cmocka_unit_test(test_ceiling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
