#include "wire/frame.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"

enum { READ_MAX = 4 * FRAME_MAX };

void frame_reader_init(struct frame_reader *r, size_t ceiling)
{
	*r = (struct frame_reader){
		.raw = BUF_INIT(3 * READ_MAX + FRAME_HEAD + FRAME_MAX),
		.whole = BUF_INIT(ceiling),
		.ask = FRAME_MAX,
	};
}

void frame_reader_release(struct frame_reader *r)
{
	buf_release(&r->raw);
	buf_release(&r->whole);
	r->used = 0;
	r->handed = 0;
}

/* Forgets the message that was handed out last. */
static void frame_drop(struct frame_reader *r)
{
	if (r->handed)
		buf_clear(&r->whole);
	r->handed = 0;
}

/* Moves what is left to the front: not once a message, or small frames would cost the square of their
 * number, and not once a read, or each would move half a frame. */
static void frame_compact(struct frame_reader *r)
{
	frame_drop(r);
	if (r->used < r->raw.len && r->used < 2 * r->ask)
		return;
	buf_consume(&r->raw, r->used);
	r->used = 0;
}

ssize_t frame_reader_fill(struct frame_reader *r, int fd)
{
	void *room;
	ssize_t n;

	frame_compact(r);
	room = buf_reserve(&r->raw, r->ask);
	if (!room)
		return r->raw.failed;
	do
		n = read(fd, room, r->ask);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	buf_commit(&r->raw, (size_t)n);
	if ((size_t)n == r->ask && r->ask < READ_MAX)
		r->ask *= 2;
	return n;
}

int frame_reader_feed(struct frame_reader *r, const void *data, size_t len)
{
	frame_compact(r);
	return buf_add(&r->raw, data, len);
}

int frame_reader_next(struct frame_reader *r, struct message *ret)
{
	frame_drop(r);
	for (;;) {
		const char *p = buf_str(&r->raw) + r->used;
		size_t left = r->raw.len - r->used;
		uint32_t len;
		uint8_t type;

		if (left < FRAME_HEAD)
			return 0;
		memcpy(&len, p, sizeof(len));
		len = le32toh(len);
		type = (uint8_t)p[4];
		if (len > FRAME_MAX || type == 0 || (type == FRAME_MORE && len == 0))
			return -EPROTO;
		if (left - FRAME_HEAD < len)
			return 0;
		if (type != FRAME_MORE && r->whole.len == 0) {
			if (len > r->whole.max)
				return -EMSGSIZE;
			*ret = (struct message){ type, p + FRAME_HEAD, len };
			r->used += FRAME_HEAD + len;
			return 1;
		}
		if (buf_add(&r->whole, p + FRAME_HEAD, len) < 0)
			return r->whole.failed;
		r->used += FRAME_HEAD + len;
		if (type != FRAME_MORE) {
			*ret = (struct message){ type, r->whole.data, r->whole.len };
			r->handed = 1;
			return 1;
		}
	}
}

size_t frame_reader_take(struct frame_reader *r, void *out, size_t len)
{
	size_t left = r->raw.len - r->used, n = len < left ? len : left;

	frame_drop(r);
	if (n)
		memcpy(out, r->raw.data + r->used, n);
	r->used += n;
	return n;
}

int frame_reader_give_back(struct frame_reader *r, const void *data, size_t len)
{
	if (r->used == r->raw.len) /* then some of it may never have been in here */
		return frame_reader_feed(r, data, len);
	r->used -= len;
	return 0;
}

bool frame_reader_ready(const struct frame_reader *r)
{
	size_t left = r->raw.len - r->used;
	uint32_t len;

	if (left < FRAME_HEAD)
		return false;
	memcpy(&len, r->raw.data + r->used, sizeof(len));
	return left - FRAME_HEAD >= le32toh(len);
}

bool frame_reader_idle(const struct frame_reader *r)
{
	return r->used == r->raw.len && (r->handed || !r->whole.len);
}

void frame_head(uint8_t type, size_t len, unsigned char ret[FRAME_HEAD])
{
	uint32_t le = htole32((uint32_t)len);

	memcpy(ret, &le, sizeof(le));
	ret[4] = type;
}

int frame_put(struct buf *out, uint8_t type, const void *data, size_t len)
{
	const char *p = data;

	do {
		uint32_t piece = len > FRAME_MAX ? FRAME_MAX : (uint32_t)len;
		unsigned char head[FRAME_HEAD];

		frame_head(piece < len ? FRAME_MORE : type, piece, head);
		buf_add(out, head, sizeof(head));
		buf_add(out, p, piece);
		if (piece)
			p += piece;
		len -= piece;
	} while (len);
	return out->failed;
}

void frame_put_body(struct buf *out, uint8_t type, struct buf *body)
{
	if (body->failed)
		out->failed = out->failed ? out->failed : body->failed;
	else
		frame_put(out, type, buf_str(body), body->len);
	buf_release(body);
}
