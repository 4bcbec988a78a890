#pragma once
/*
 * A growing byte buffer with a ceiling.
 *
 * A buffer cannot be made without its ceiling, so no input can make it grow without bound. Failure
 * is sticky: after a failed append `failed` holds the negative errno (-ENOMEM, or -EMSGSIZE at the
 * ceiling) and later appends do nothing, so a sequence is checked once at its end.
 * `data` is always NUL-terminated once anything was appended (the NUL is not counted in `len`).
 * One owner; not thread-safe.
 */
#include <stdarg.h>
#include <stddef.h>

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t max; /* ceiling of `len`, in bytes */
	int failed; /* 0 or a negative errno */
};

#define BUF_INIT(ceiling)                                                                          \
	{                                                                                          \
		.max = (ceiling)                                                                   \
	}

#define _cleanup_buf_ _cleanup_(buf_release)

void buf_init(struct buf *b, size_t max);
void buf_release(struct buf *b); /* frees the memory; the buffer is as after buf_init */
void buf_clear(struct buf *b);   /* empties it, keeps the memory, forgets a failure */

int buf_add(struct buf *b, const void *data, size_t len);
int buf_adds(struct buf *b, const char *s);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Makes room for `len` more bytes and returns where to write them, or NULL; then buf_commit. */
void *buf_reserve(struct buf *b, size_t len);
void buf_commit(struct buf *b, size_t len);

/* Drops the first `len` bytes (at most all). */
void buf_consume(struct buf *b, size_t len);

/* The text, "" while empty. Belongs to the buffer. */
const char *buf_str(const struct buf *b);

/* Hands the NUL-terminated memory to the caller (free it), or NULL after a failure or when out of
 * memory. The buffer is empty afterwards. */
char *buf_detach(struct buf *b);
