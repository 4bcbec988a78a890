#pragma once
/*
 * What the fuzz programs share.
 */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every byte, so that the sanitizer sees one that is not there. */
static inline void fuzz_touch(const void *data, size_t len)
{
	const volatile unsigned char *p = data;
	unsigned sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += p[i];
	(void)sum;
}
