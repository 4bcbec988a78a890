#pragma once
/*
 * File operations of a sandbox: each is one connection to its agent (wire/files.h).
 *
 * One thread drives a call. Every function waits, for a bounded time and for as long as its client
 * is there; what it waits for is the agent. The agent is hostile: each message is checked before it
 * is handed out, and memory is bounded whatever comes. Errors are the API's: what the agent refused
 * by the table of files_errors.c, an agent that does not answer or speaks nonsense as a 503.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "wire/files.h"

#include "sandbox/command_conn.h"
#include "store/tables.h"

enum {
	FILES_SILENCE_MS = 60 * 1000, /* of the agent, while we wait for nothing else */
	FILES_LONG_MS = 600 * 1000,   /* where one word answers for a lot of work */
};

struct files_call {
	struct agent_conn conn;
	const struct sandbox_row *sandbox; /* the caller's */
	int client_fd;                     /* -1: none */
	uint32_t silence_ms;               /* 0: it may be silent for ever */
	unsigned char head[FRAME_HEAD];    /* of the next frame, while data is received */
	size_t head_len;
	size_t left; /* bytes of a frame of data that are still to come */
};

void files_init(struct files_call *c);
void files_release(struct files_call *c); /* an operation that has not ended is given up */

/* -EBUSY where the sandbox does not run; connects and asks for `f`. */
int files_open(struct files_call *c, const struct sandbox_row *sandbox, const struct agent_file *f,
	       int client_fd, struct err *e);

/* The next message of the type it is named after, valid until the next call on `c`. */
int files_ready(struct files_call *c, struct err *e);
int files_entry(struct files_call *c, struct agent_entry *ret, struct err *e);
int files_end(struct files_call *c, uint32_t *ret_flags, struct err *e);
/* 1, or 0 at the end with its flags. */
int files_list(struct files_call *c, struct agent_entry *ret, uint32_t *ret_flags, struct err *e);
int files_match(struct files_call *c, struct agent_match *ret, uint32_t *ret_flags, struct err *e);
int files_event(struct files_call *c, struct agent_event *ret, struct err *e);

/* Read: says from where to where, then the bytes, 0 at the end. */
int files_go(struct files_call *c, uint64_t offset, uint64_t length, struct err *e);
ssize_t files_receive(struct files_call *c, void *data, size_t max, struct err *e);

/* Write, unpack: the bytes, at most FILE_DATA_MAX, and their end. */
int files_send(struct files_call *c, const void *data, size_t len, struct err *e);
int files_send_end(struct files_call *c, struct err *e);

/* files_errors.c: what an agent refused (a FAIL that was checked), as an error of the API. */
int files_refused(const struct message *fail, struct err *e);

/* For tests: instead of the two limits above. */
void files_set_silence(uint32_t ms);
