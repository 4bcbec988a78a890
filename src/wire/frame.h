#pragma once
/*
 * Frames of the agent protocol: u32 length of the payload, u8 type, payload; little-endian; a
 * payload is FRAME_MAX bytes at most. A message that is longer travels as frames of type
 * FRAME_MORE, each with the next piece, and a last frame with the message's own type.
 *
 * The peer is hostile: every length is checked before it is believed, and a reader holds at most
 * its ceiling in memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

enum {
	FRAME_HEAD = 5,
	FRAME_MAX = 64 * 1024,
	FRAME_MORE = 127,
};

struct message {
	uint8_t type;
	const void *data; /* the reader's, until its next call */
	size_t len;
};

struct frame_reader {
	struct buf raw;   /* bytes as they came */
	struct buf whole; /* the pieces of a long message */
	size_t used;      /* bytes of `raw` that were taken; they go when more is read */
	int handed;       /* `whole` was handed out */
	size_t ask;       /* bytes of the next read: more while the peer fills it */
};

/* `ceiling`: bytes of the longest message accepted. */
void frame_reader_init(struct frame_reader *r, size_t ceiling);
void frame_reader_release(struct frame_reader *r);

/* One read(2). The count, 0 at end of file, or a negative errno (-EAGAIN on a non-blocking one). */
ssize_t frame_reader_fill(struct frame_reader *r, int fd);

/* The same from memory, for tests and fuzzing. */
int frame_reader_feed(struct frame_reader *r, const void *data, size_t len);

/* 1 and the next message, 0 when more bytes are needed, -EPROTO for a frame no honest peer sends,
 * -EMSGSIZE above the ceiling, -ENOMEM. */
int frame_reader_next(struct frame_reader *r, struct message *ret);

/* Takes bytes that were read and are not yet of a message handed out, at most `len`: for who reads
 * on by itself. The count. */
size_t frame_reader_take(struct frame_reader *r, void *out, size_t len);

/* Puts back what was taken last. 0 or -ENOMEM. */
int frame_reader_give_back(struct frame_reader *r, const void *data, size_t len);

/* The next frame is here, whole. */
bool frame_reader_ready(const struct frame_reader *r);

/* Nothing of a message waits for its rest. */
bool frame_reader_idle(const struct frame_reader *r);

/* Appends the message to `out`, split where it is longer than a frame. 0 or `out->failed`. */
int frame_put(struct buf *out, uint8_t type, const void *data, size_t len);

/* The same with what was encoded in `body`, which is released. Its failure becomes that of `out`. */
void frame_put_body(struct buf *out, uint8_t type, struct buf *body);

/* What stands before the payload of a message that fits one frame. */
void frame_head(uint8_t type, size_t len, unsigned char ret[FRAME_HEAD]);
