/*
 * Buffers: the ceiling holds to the byte, failure sticks, memory that runs out is an error.
 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

#include "failing_alloc.h"
#include "unit.h"

static void test_ceiling(void **state)
{
	static const size_t ceilings[] = { 0, 1, 255, 256, 257, 511, 512, 1000 };
	char bytes[1001];

	(void)state;
	memset(bytes, 'x', sizeof(bytes));
	for (size_t i = 0; i < ARRAY_SIZE(ceilings); i++) {
		size_t max = ceilings[i];
		_cleanup_buf_ struct buf b = BUF_INIT(max);

		assert_int_equal(buf_add(&b, bytes, max), 0);
		assert_int_equal(b.len, max);
		assert_int_equal(b.data[max], '\0');
		assert_int_equal(buf_add(&b, bytes, 0), 0);
		assert_int_equal(buf_addc(&b, 'y'), -EMSGSIZE);
		assert_int_equal(b.len, max);
		buf_clear(&b);
		assert_int_equal(buf_add(&b, bytes, max + 1), -EMSGSIZE);
		assert_int_equal(b.len, 0);
	}
}

static void test_sticky(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4);

	(void)state;
	assert_int_equal(buf_adds(&b, "abc"), 0);
	assert_int_equal(buf_adds(&b, "de"), -EMSGSIZE);
	assert_int_equal(buf_addc(&b, 'd'), -EMSGSIZE);
	assert_int_equal(buf_addf(&b, "%s", ""), -EMSGSIZE);
	assert_null(buf_reserve(&b, 0));
	assert_string_equal(buf_str(&b), "abc");
	assert_null(buf_detach(&b));
	buf_clear(&b);
	assert_int_equal(b.failed, 0);
	assert_int_equal(buf_adds(&b, "wxyz"), 0);
	assert_string_equal(buf_str(&b), "wxyz");
}

static void test_lengths_overflow(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SIZE_MAX);

	(void)state;
	assert_int_equal(buf_adds(&b, "abc"), 0);
	assert_null(buf_reserve(&b, SIZE_MAX));
	assert_int_equal(b.failed, -EMSGSIZE);
	buf_clear(&b);
	assert_int_equal(buf_adds(&b, "abc"), 0);
	assert_null(buf_reserve(&b, SIZE_MAX - 3));
	assert_int_equal(b.failed, -ENOMEM);
	buf_clear(&b);
	assert_null(buf_reserve(&b, SIZE_MAX / 2 + 2));
	assert_int_equal(b.failed, -ENOMEM);
}

static void test_format(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000);

	(void)state;
	assert_int_equal(buf_addf(&b, "%s-%d", "a", 5), 0);
	assert_int_equal(buf_addf(&b, "%0500d", 7), 0);
	assert_int_equal(b.len, 503);
	assert_int_equal(b.data[502], '7');
	assert_int_equal(buf_addf(&b, "%0498d", 7), -EMSGSIZE);
	assert_int_equal(b.len, 503);
}

static void test_consume(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);

	(void)state;
	buf_consume(&b, 5);
	assert_int_equal(b.len, 0);
	buf_adds(&b, "abcdef");
	buf_consume(&b, 0);
	assert_string_equal(buf_str(&b), "abcdef");
	buf_consume(&b, 4);
	assert_string_equal(buf_str(&b), "ef");
	buf_consume(&b, 100);
	assert_string_equal(buf_str(&b), "");
	assert_int_equal(b.len, 0);
}

static void test_detach(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	_cleanup_free_ char *empty = NULL, *text = NULL;

	(void)state;
	assert_string_equal(buf_str(&b), "");
	empty = buf_detach(&b);
	assert_string_equal(empty, "");
	buf_adds(&b, "text");
	text = buf_detach(&b);
	assert_string_equal(text, "text");
	assert_null(b.data);
	assert_int_equal(b.max, 100);
	assert_int_equal(buf_adds(&b, "again"), 0);
}

static void test_no_memory(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	char *text;

	(void)state;
	failing_alloc_after(0);
	assert_int_equal(buf_adds(&b, "a"), -ENOMEM);
	failing_alloc_after(-1);
	assert_int_equal(buf_adds(&b, "a"), -ENOMEM); /* it sticks */
	assert_string_equal(buf_str(&b), "");
	buf_clear(&b);
	failing_alloc_after(0);
	assert_null(buf_detach(&b));
	failing_alloc_after(-1);
	buf_clear(&b);
	assert_int_equal(buf_adds(&b, "kept"), 0);
	failing_alloc_after(0);
	assert_int_equal(buf_addf(&b, "%01000d", 1), -ENOMEM);
	assert_string_equal(buf_str(&b), "kept"); /* what was there stays */
	failing_alloc_after(-1);
	buf_clear(&b);
	text = buf_detach(&b);
	assert_non_null(text);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ceiling),          cmocka_unit_test(test_sticky),
		cmocka_unit_test(test_lengths_overflow), cmocka_unit_test(test_format),
		cmocka_unit_test(test_consume),          cmocka_unit_test(test_detach),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
