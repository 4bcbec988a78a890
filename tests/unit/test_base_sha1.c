#include <stdio.h>
#include <string.h>

#include "base/sha1.h"

#include "unit.h"

static void check(const char *data, size_t len, const char *want)
{
	unsigned char digest[20];
	char text[41];

	sha1(data, len, digest);
	for (int i = 0; i < 20; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(text, want);
}

/* RFC 3174, and FIPS 180's lengths around a block. */
static void test_vectors(void **state)
{
	static char million[1000000];

	(void)state;
	check("", 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
	check("abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
	check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
	      "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
	memset(million, 'a', sizeof(million));
	check(million, sizeof(million), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
	check(million, 55, "c1c8bbdc22796e28c0e15163d20899b65621d65a");
	check(million, 63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5");
	check(million, 64, "0098ba824b5c16427bd7a1122a5a442a25ec644d");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
