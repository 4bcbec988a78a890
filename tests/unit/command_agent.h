#pragma once
/*
 * A fake agent for tests: a backend whose dial() makes a socket pair and a thread that plays the
 * agent on its other end. Tests queue what the next connections are to meet.
 */
#include <stdbool.h>
#include <stdint.h>

#include "wire/agent.h"
#include "wire/frame.h"

#include "daemon/backend/backend.h"

struct fake_conn {
	int fd;
	unsigned number; /* 0 for the first connection since fake_reset */
	struct frame_reader in;
	struct message m; /* the operation: what came after HELLO */
	void *arg;
};

typedef void (*fake_agent)(struct fake_conn *c);

extern const struct backend fake_backend;

/* All later connections meet `agent`; `wait` false: as soon as they are made, without HELLO and
 * operation having been read. */
void fake_play(fake_agent agent, void *arg, bool wait);
/* The next `times` calls of dial fail. */
void fake_refuse(int error, unsigned times);
unsigned fake_connections(void);
/* Joins all agents and forgets everything. */
void fake_reset(void);

/* On the agent's side. `fake_next` is false at the end of the connection. */
bool fake_next(struct fake_conn *c);
void fake_send(struct fake_conn *c, struct buf *out); /* and empties it */
void fake_hello(struct buf *out);
void fake_started(struct buf *out);
void fake_output(struct buf *out, int stream, uint64_t offset, const void *data, size_t len);
void fake_stdin_ack(struct buf *out, uint64_t taken);
void fake_exit(struct buf *out, uint32_t code, uint64_t out_total, uint64_t err_total);
