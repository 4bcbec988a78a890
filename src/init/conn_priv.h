#pragma once
/*
 * Inside of the connections' module: the object, and what its two files call of each other. Nobody
 * else includes this.
 *
 *   conn.c       connections: accepted, read, written, closed
 *   conn_ops.c   what a message means
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "wire/agent.h"

#include "init/command.h"
#include "init/conn.h"
#include "init/file_calls.h"
#include "init/loop.h"

enum phase {
	PHASE_HELLO,     /* its HELLO has not come */
	PHASE_IDLE,      /* its operation has not come */
	PHASE_COMMAND,   /* attached to a command, or about to be */
	PHASE_INPUT,     /* writes to a command that another one is attached to */
	PHASE_WAITING,   /* TERMINATE, until the tree is gone */
	PHASE_FILES,     /* a process of its own speaks to the peer */
	PHASE_LINGERING, /* answered: what comes is thrown away */
};

struct conn {
	struct conn *next, *prev;
	struct source s;
	enum phase phase;
	struct frame_reader in;
	struct buf out;
	size_t written; /* bytes of `out` */
	bool closing;   /* shut down for writing once `out` is written */
	bool ended;     /* the peer has closed its sending side */
	bool started_sent, exit_sent;
	struct command_client client;
	struct command_waiter waiter;
	struct command_writer writer;
	struct file_call *files;
};

/* conn.c */
/* Brings everything forward after any change; may end the connection. `r`: a negative errno does. */
void conn_advance(struct conn *c, int r);
/* One more may stay for as long as a command runs: those that end commands must find a place. */
bool conn_room_to_stay(void);

/* conn_ops.c */
void conn_ops_init(struct conn *c);
void conn_ops_release(struct conn *c);
/* 0, or a negative errno for a message no honest peer sends. */
int conn_handle(struct conn *c, const struct message *m);
/* The peer has closed its sending side, and all it sent was handled. As conn_handle. */
int conn_end(struct conn *c);
/* Nothing of the peer's is to be looked at now. */
bool conn_holds(struct conn *c);
