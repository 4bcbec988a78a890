#include "base/base64.h"

#include <errno.h>
#include <stdint.h>

#include "base/banned.h"

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(struct buf *out, const char *text, size_t len)
{
	size_t padding = 0;

	if (len % 4)
		return -EINVAL;
	while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < len; i += 4) {
		size_t drop = i + 4 == len ? padding : 0;
		uint32_t group = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = k < 4 - drop ? digit(text[i + k]) : 0;

			if (d < 0)
				return -EINVAL;
			group = group << 6 | (uint32_t)d;
		}
		buf_add(out,
			(unsigned char[]){ group >> 16 & 0xff, group >> 8 & 0xff, group & 0xff },
			3 - drop);
	}
	return out->failed;
}

int base64_encode(struct buf *out, const void *data, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t group = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
				 (n > 2 ? p[i + 2] : 0);
		char text[4] = {
			digits[group >> 18],
			digits[group >> 12 & 63],
			n > 1 ? digits[group >> 6 & 63] : '=',
			n > 2 ? digits[group & 63] : '=',
		};

		buf_add(out, text, sizeof(text));
	}
	return out->failed;
}
