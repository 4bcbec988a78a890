#include "init/outbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

enum { CHUNK_MIN = 512, CHUNK_MAX = 64 * 1024 };

struct chunk {
	struct chunk *next;
	uint64_t offset; /* of data[start] */
	uint32_t start, len, cap;
	char data[];
};

static size_t memory;

size_t outbuf_memory(void)
{
	return memory;
}

size_t outbuf_held(const struct outbuf *b)
{
	return b->head.bytes + b->tail.bytes;
}

void outbuf_init(struct outbuf *b, uint64_t keep)
{
	*b = (struct outbuf){ .keep = keep };
}

/* Removes up to `len` bytes from the front; the count. */
static size_t list_pop(struct chunk_list *l, uint64_t len)
{
	size_t popped = 0;

	while (l->first && len) {
		struct chunk *c = l->first;
		uint32_t n = c->len < len ? c->len : (uint32_t)len;

		c->start += n;
		c->offset += n;
		c->len -= n;
		popped += n;
		len -= n;
		if (c->len)
			break;
		l->first = c->next;
		if (!l->first)
			l->last = NULL;
		memory -= sizeof(*c) + c->cap;
		free(c);
	}
	l->bytes -= popped;
	return popped;
}

void outbuf_release(struct outbuf *b)
{
	list_pop(&b->head, UINT64_MAX);
	list_pop(&b->tail, UINT64_MAX);
}

/* A stream that runs ahead of its reader gets larger chunks, so that what many small writes made goes
 * out in few frames. */
static struct chunk *list_grow(struct chunk_list *l, uint64_t offset, size_t len)
{
	uint32_t cap = l->last && l->last->cap < CHUNK_MAX ? 2 * l->last->cap : CHUNK_MIN;
	struct chunk *c;

	if (l->last && l->last->cap == CHUNK_MAX)
		cap = CHUNK_MAX;
	while (cap < len && cap < CHUNK_MAX)
		cap *= 2;
	c = malloc(sizeof(*c) + cap);
	if (!c)
		return NULL;
	*c = (struct chunk){ .offset = offset, .cap = cap };
	memory += sizeof(*c) + cap;
	if (l->last)
		l->last->next = c;
	else
		l->first = c;
	l->last = c;
	return c;
}

/* The count appended: short when memory ran out. */
static size_t list_append(struct chunk_list *l, uint64_t offset, const char *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		struct chunk *c = l->last;
		size_t room, n;

		/* a chunk holds consecutive bytes: after a gap a new one begins */
		if (!c || c->offset + c->len != offset + done || c->start + c->len == c->cap)
			c = list_grow(l, offset + done, len - done);
		if (!c)
			break;
		room = c->cap - c->start - c->len;
		n = len - done < room ? len - done : room;
		memcpy(c->data + c->start + c->len, data + done, n);
		c->len += (uint32_t)n;
		done += n;
	}
	l->bytes += done;
	return done;
}

static void trim_tail(struct outbuf *b)
{
	if (b->limited && b->tail.bytes > b->keep)
		b->dropped += list_pop(&b->tail, b->tail.bytes - b->keep);
}

void outbuf_append(struct outbuf *b, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		bool head = b->total < b->keep;
		size_t n = len, done;

		if (head && n > b->keep - b->total)
			n = b->keep - b->total;
		done = list_append(head ? &b->head : &b->tail, b->total, p, n);
		b->dropped += n - done;
		b->total += n;
		p += n;
		len -= n;
	}
	trim_tail(b);
}

void *outbuf_room(struct outbuf *b, size_t *ret_len)
{
	bool head = b->total < b->keep;
	struct chunk_list *l = head ? &b->head : &b->tail;
	struct chunk *c = l->last;
	size_t room;

	/* a stream that fills the largest chunks is given one in advance */
	if (c && c->cap == CHUNK_MAX && c->start + c->len == c->cap)
		c = list_grow(l, b->total, CHUNK_MAX);
	if (!c || c->offset + c->len != b->total)
		return NULL;
	room = c->cap - c->start - c->len;
	*ret_len = head && room > b->keep - b->total ? (size_t)(b->keep - b->total) : room;
	return *ret_len ? c->data + c->start + c->len : NULL;
}

void outbuf_commit(struct outbuf *b, size_t len)
{
	struct chunk_list *l = b->total < b->keep ? &b->head : &b->tail;

	l->last->len += (uint32_t)len;
	l->bytes += len;
	b->total += len;
	trim_tail(b);
}

static const struct chunk *find_unsent(const struct chunk_list *l, uint64_t sent)
{
	const struct chunk *c = l->first;

	while (c && c->offset + c->len <= sent)
		c = c->next;
	return c;
}

size_t outbuf_peek(const struct outbuf *b, size_t most, uint64_t *ret_offset, const void **ret)
{
	const struct chunk *c = find_unsent(&b->head, b->sent);
	size_t skip, n;

	if (!c)
		c = find_unsent(&b->tail, b->sent);
	if (!c || !most)
		return 0;
	skip = c->offset < b->sent ? b->sent - c->offset : 0;
	n = c->len - skip;
	*ret_offset = c->offset + skip;
	*ret = c->data + c->start + skip;
	return n < most ? n : most;
}

void outbuf_sent(struct outbuf *b, uint64_t offset, size_t len)
{
	b->sent = offset + len;
	b->unacked += len;
}

static size_t pop_below(struct chunk_list *l, uint64_t offset)
{
	size_t popped = 0;

	while (l->first && l->first->offset < offset)
		popped += list_pop(l, offset - l->first->offset < l->first->len
					      ? offset - l->first->offset
					      : l->first->len);
	return popped;
}

int outbuf_ack(struct outbuf *b, uint64_t offset)
{
	if (offset > b->sent)
		return -EINVAL;
	b->unacked -= pop_below(&b->head, offset);
	b->unacked -= pop_below(&b->tail, offset);
	return 0;
}

int outbuf_attach(struct outbuf *b, uint64_t offset)
{
	if (offset > b->total)
		return -EINVAL;
	pop_below(&b->head, offset);
	pop_below(&b->tail, offset);
	b->sent = offset;
	b->unacked = 0;
	b->limited = false;
	return 0;
}

void outbuf_detach(struct outbuf *b)
{
	b->limited = true;
	b->sent = 0;
	b->unacked = 0;
	trim_tail(b);
}

size_t outbuf_drop_tail(struct outbuf *b)
{
	size_t n = list_pop(&b->tail, UINT64_MAX);

	b->dropped += n;
	return n;
}

size_t outbuf_drop_head(struct outbuf *b)
{
	size_t n = list_pop(&b->head, UINT64_MAX);

	b->dropped += n;
	return n;
}
