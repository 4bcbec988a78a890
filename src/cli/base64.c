#include "base64.h"

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
