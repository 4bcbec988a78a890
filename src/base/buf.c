#include "base/buf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

enum { FIRST_SIZE = 256 };

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max };
}

void buf_release(struct buf *b)
{
	free(b->data);
	buf_init(b, b->max);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = 0;
	if (b->data)
		b->data[0] = '\0';
}

void *buf_reserve(struct buf *b, size_t len)
{
	size_t cap = b->cap ? b->cap : FIRST_SIZE;
	char *data;

	if (b->failed)
		return NULL;
	if (len > b->max || b->len > b->max - len) {
		b->failed = -EMSGSIZE;
		return NULL;
	}
	if (b->data && b->cap - b->len > len)
		return b->data + b->len;
	while (cap - b->len <= len) {
		if (cap > SIZE_MAX / 2) {
			b->failed = -ENOMEM;
			return NULL;
		}
		cap *= 2;
	}
	data = realloc(b->data, cap);
	if (!data) {
		b->failed = -ENOMEM;
		return NULL;
	}
	b->data = data;
	b->cap = cap;
	return b->data + b->len;
}

void buf_commit(struct buf *b, size_t len)
{
	b->len += len;
	b->data[b->len] = '\0';
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	void *room = buf_reserve(b, len);

	if (!room)
		return b->failed;
	if (len)
		memcpy(room, data, len);
	buf_commit(b, len);
	return 0;
}

int buf_adds(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	char *room;
	int n;

	if (b->failed)
		return b->failed;
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return b->failed = -EINVAL;
	room = buf_reserve(b, (size_t)n);
	if (!room)
		return b->failed;
	vsnprintf(room, (size_t)n + 1, fmt, ap);
	buf_commit(b, (size_t)n);
	return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vaddf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_consume(struct buf *b, size_t len)
{
	if (!b->data)
		return;
	if (len > b->len)
		len = b->len;
	memmove(b->data, b->data + len, b->len - len);
	b->len -= len;
	b->data[b->len] = '\0';
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_detach(struct buf *b)
{
	char *data;

	if (b->failed || !buf_reserve(b, 0))
		return NULL;
	b->data[b->len] = '\0';
	data = b->data;
	buf_init(b, b->max);
	return data;
}
