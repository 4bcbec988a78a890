#pragma once
/*
 * One connection to an agent: HELLO, messages out, messages in. For the command_* files and
 * files.c only.
 *
 * The agent is hostile. Nothing here waits without a deadline, and what is kept in memory is
 * bounded by the ceilings below whatever the agent sends.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/agent.h"
#include "wire/frame.h"

enum {
	AGENT_ANSWER_MS = 10000, /* from the request to the agent's word */
	CONN_IN_MAX = FRAME_MAX, /* no agent's message is longer than a frame */
	CONN_OUT_MAX = AGENT_MESSAGE_MAX + 4 * FRAME_MAX,
};

struct backend;

struct agent_conn {
	int fd;           /* -1: not connected */
	bool greeted;     /* the agent's HELLO came */
	uint32_t version; /* of it */
	bool deaf;        /* the agent takes no more; what it said before may still be read */
	size_t sent;      /* bytes of `out` that are with the kernel */
	struct buf out;
	struct frame_reader in;
};

void agent_conn_set_backend(const struct backend *backend);

/* Makes an empty one; agent_conn_release accepts it. */
void agent_conn_init(struct agent_conn *c);
void agent_conn_release(struct agent_conn *c);

/* Connects and puts HELLO into `out`. Tries again while the agent's queue is full, until the
 * deadline (0: once). */
int agent_conn_open(struct agent_conn *c, const char *sandbox, uint64_t deadline_ns, struct err *e);

bool agent_conn_pending(const struct agent_conn *c); /* `out` holds bytes to send */
/* Sends what the socket takes now. 0, or -ENOMEM when `out` had failed. */
int agent_conn_flush(struct agent_conn *c);
/* One read, which must not block: call it when poll says so. 1, 0 for nothing now, or a negative
 * errno; -ECONNRESET at the end. */
int agent_conn_fill(struct agent_conn *c);
/* 1 and the next message after HELLO (valid until the next call on `c`), 0, -EPROTO for garbage,
 * -EPROTONOSUPPORT for an agent of another age. */
int agent_conn_next(struct agent_conn *c, struct message *ret);

/* Sends what is pending and waits for the next message. */
int agent_conn_wait(struct agent_conn *c, uint64_t deadline_ns, struct message *ret, struct err *e);

/* Turns what agent_conn_* returned, and what a FAIL says, into the caller's error. */
int agent_conn_err(int r, struct err *e);
int agent_fail_err(const struct message *m, struct err *e);
