#include "base/sha1.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "base/banned.h"

enum { BLOCK = 64 };

static uint32_t rotate(uint32_t x, unsigned n)
{
	return x << n | x >> (32 - n);
}

static void take_block(uint32_t h[5], const unsigned char block[BLOCK])
{
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

	memcpy(w, block, BLOCK);
	for (unsigned i = 0; i < 16; i++)
		w[i] = be32toh(w[i]);
	for (unsigned i = 16; i < 80; i++)
		w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (unsigned i = 0; i < 80; i++) {
		uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
			     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
			     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
				      : (b ^ c ^ d) + 0xca62c1d6;
		uint32_t next = rotate(a, 5) + f + e + w[i];

		e = d;
		d = c;
		c = rotate(b, 30);
		b = a;
		a = next;
	}
	h[0] += a;
	h[1] += b;
	h[2] += c;
	h[3] += d;
	h[4] += e;
}

void sha1(const void *data, size_t len, unsigned char out[20])
{
	uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	unsigned char last[2 * BLOCK] = { 0 };
	const unsigned char *p = data;
	size_t rest = len % BLOCK, tail = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;
	const uint64_t bits = htobe64((uint64_t)len * 8);

	for (size_t i = 0; i < len / BLOCK; i++)
		take_block(h, p + i * BLOCK);
	if (rest)
		memcpy(last, p + (len - rest), rest);
	last[rest] = 0x80;
	memcpy(last + tail - sizeof(bits), &bits, sizeof(bits));
	for (size_t i = 0; i < tail; i += BLOCK)
		take_block(h, last + i);
	for (unsigned i = 0; i < 5; i++)
		h[i] = htobe32(h[i]);
	memcpy(out, h, 20);
}
