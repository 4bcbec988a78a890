#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/banned.h"

bool str_eq(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

bool str_starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

bool str_ends(const char *s, const char *suffix)
{
	size_t a = strlen(s), b = strlen(suffix);

	return a >= b && !memcmp(s + a - b, suffix, b);
}

bool str_copy(char *out, size_t size, const char *s)
{
	size_t len = strlen(s);

	if (len >= size) {
		if (size)
			out[0] = '\0';
		return false;
	}
	memcpy(out, s, len + 1);
	return true;
}

int str_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (!*s || s[strspn(s, "0123456789")])
		return -EINVAL;
	for (; *s; s++) {
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
			return -ERANGE;
	}
	if (value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

bool utf8_valid(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	const unsigned char *end = p + len;

	while (p < end) {
		uint32_t c = *p++;
		uint32_t least;
		int more;

		if (c < 0x80)
			continue;
		if (c >= 0xc2 && c < 0xe0) {
			more = 1;
			least = 0x80;
			c &= 0x1f;
		} else if (c >= 0xe0 && c < 0xf0) {
			more = 2;
			least = 0x800;
			c &= 0x0f;
		} else if (c >= 0xf0 && c < 0xf5) {
			more = 3;
			least = 0x10000;
			c &= 0x07;
		} else {
			return false;
		}
		if (end - p < more)
			return false;
		while (more--) {
			if ((*p & 0xc0) != 0x80)
				return false;
			c = c << 6 | (*p++ & 0x3f);
		}
		if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			return false;
	}
	return true;
}

static const char id_alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

bool id_valid(const char *s, const char *kind)
{
	if (!s || strlen(s) != ID_LEN)
		return false;
	if (kind && (s[0] != kind[0] || s[1] != kind[1]))
		return false;
	if (s[0] < 'a' || s[0] > 'z' || s[1] < 'a' || s[1] > 'z')
		return false;
	return strspn(s + 2, id_alphabet) == ID_RANDOM;
}

int id_make(const char *kind, char out[ID_SIZE])
{
	unsigned char random[ID_RANDOM];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -errno;
	out[0] = kind[0];
	out[1] = kind[1];
	for (int i = 0; i < ID_RANDOM; i++)
		out[2 + i] = id_alphabet[random[i] & 31];
	out[ID_LEN] = '\0';
	return 0;
}

void hex_encode(const void *data, size_t len, char *out)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++) {
		*out++ = "0123456789abcdef"[p[i] >> 4];
		*out++ = "0123456789abcdef"[p[i] & 15];
	}
	*out = '\0';
}
