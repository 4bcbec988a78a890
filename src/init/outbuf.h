#pragma once
/*
 * Output of one stream of one command that no client has acknowledged yet.
 *
 * Offsets count every byte the command wrote. Acknowledged bytes are forgotten. While the stream is
 * limited (nobody reads it) it holds the bytes below offset `keep` (the head) and the last `keep`
 * bytes above it (the tail); what falls out between is counted in `dropped`. While it is not
 * limited, the caller bounds it by not appending. Memory of all streams together is
 * outbuf_memory(); the caller keeps it in bounds with outbuf_drop_*.
 *
 * Owner: the command. Single-threaded.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk;

struct chunk_list {
	struct chunk *first, *last;
	size_t bytes;
};

struct outbuf {
	struct chunk_list head; /* offsets below `keep` */
	struct chunk_list tail; /* from `keep` on */
	uint64_t keep;
	uint64_t total;   /* bytes written by the command */
	uint64_t dropped; /* of these, lost without having been acknowledged */
	uint64_t sent;    /* the next byte to send; everything below was sent or dropped */
	size_t unacked;   /* bytes sent, not acknowledged, held */
	bool limited;
};

void outbuf_init(struct outbuf *b, uint64_t keep);
void outbuf_release(struct outbuf *b);

/* Bytes that find no memory are dropped and counted. */
void outbuf_append(struct outbuf *b, const void *data, size_t len);

/* Where the next bytes may be put without a copy, then outbuf_commit with their count; NULL when
 * there is no such room: then, and for what is more, outbuf_append. */
void *outbuf_room(struct outbuf *b, size_t *ret_len);
void outbuf_commit(struct outbuf *b, size_t len);

size_t outbuf_held(const struct outbuf *b);

/* The next bytes to send: at most `most`, 0 when there are none. They stay in the buffer. */
size_t outbuf_peek(const struct outbuf *b, size_t most, uint64_t *ret_offset, const void **ret);
void outbuf_sent(struct outbuf *b, uint64_t offset, size_t len);

/* Everything below `offset` has arrived. -EINVAL for what was not sent. */
int outbuf_ack(struct outbuf *b, uint64_t offset);

/* A client takes over that has the bytes below `offset`: sending starts there, or at the earliest
 * byte held. -EINVAL beyond the end. */
int outbuf_attach(struct outbuf *b, uint64_t offset);
/* Nobody reads any more. */
void outbuf_detach(struct outbuf *b);

size_t outbuf_drop_tail(struct outbuf *b); /* bytes dropped */
size_t outbuf_drop_head(struct outbuf *b);
size_t outbuf_memory(void); /* bytes held by all buffers, unused room included */
