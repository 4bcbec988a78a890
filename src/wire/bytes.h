#pragma once
/*
 * Little-endian fields in a byte string.
 *
 * Decoding is sticky: after the first field that does not fit, `bad` is set and every later field
 * reads as zero, so a decoder is straight-line code with one check at its end. Text travels as
 * u32 length, bytes, NUL (the NUL is counted): a decoded string points into the input, is
 * terminated and holds no other NUL.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct dec {
	const unsigned char *p;
	size_t left;
	bool bad;
	bool no_memory; /* why it is bad: no fault of the peer */
};

void dec_init(struct dec *d, const void *data, size_t len);
uint8_t dec_u8(struct dec *d);
uint32_t dec_u32(struct dec *d);
uint64_t dec_u64(struct dec *d);
/* A string of at most `max` bytes without its NUL; "" once bad. */
const char *dec_str(struct dec *d, size_t max);
/* A list of at most `most` strings as a NULL-terminated array for the caller to free (the strings
 * stay in the input); NULL once bad. */
char **dec_strv(struct dec *d, size_t most, size_t max_each);
/* The rest of the input as bytes. */
const void *dec_rest(struct dec *d, size_t *ret_len);
/* True when everything was read and nothing was bad. */
bool dec_done(const struct dec *d);

/* Failure is the buffer's: check `b->failed` at the end. */
void enc_u8(struct buf *b, uint8_t v);
void enc_u32(struct buf *b, uint32_t v);
void enc_u64(struct buf *b, uint64_t v);
void enc_str(struct buf *b, const char *s);            /* NULL is sent as "" */
void enc_strv(struct buf *b, const char *const *list); /* NULL is an empty list */
