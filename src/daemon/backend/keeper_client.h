#pragma once
/*
 * One connection to skerry-keeper, shared by all threads of skerryd.
 *
 * Any thread calls keeper_client_call and sleeps until its own answer came. One reader thread per
 * client owns the receiving side: it wakes the callers, reports events, and connects again when the
 * connection ends. The hooks run in that thread: they must not wait for anything that needs the
 * keeper, least of all call it.
 *
 * A call that was sent when the connection broke fails with -ECONNRESET and the reason
 * "keeper_lost": nobody knows whether the keeper did it. A call made while there is no connection
 * waits KEEPER_CLIENT_WAIT_MS for one. The keeper is trusted, yet a message that does not fit the
 * protocol ends the connection: the two programs are not of one build.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/keeper.h"

enum { KEEPER_CLIENT_WAIT_MS = 5000, KEEPER_CLIENT_DELAY_MAX_MS = 1000 };

struct keeper_client;

struct keeper_client_hooks {
	void *arg;
	void (*on_exit)(void *arg, const struct keeper_event_exit *exit);
	void (*on_lost)(void *arg);
	/* Connected again, HELLO done: calls work. */
	void (*on_reconnect)(void *arg, const struct keeper_hello_reply *hello);
};

struct keeper_call {
	uint32_t verb;
	uint32_t request_size;
	const void *request;
	int fd; /* sent along, stays the caller's; -1 = none */
	uint32_t reply_size;
	void *reply;  /* untouched on failure */
	int *ret_fd;  /* the answer's descriptor; NULL: it has none */
	bool at_once; /* without a connection it fails instead of waiting for one */
};

/* Connects, says HELLO, starts the reader. `path` is copied. */
int keeper_client_new(const char *path, const struct keeper_client_hooks *hooks,
		      struct keeper_client **ret, struct err *e);
/* No call may be in flight. */
void keeper_client_free(struct keeper_client *k);

int keeper_client_call(struct keeper_client *k, const struct keeper_call *call, struct err *e);

/* A copy of the last HELLO's answer. */
void keeper_client_hello(struct keeper_client *k, struct keeper_hello_reply *ret);
/* True when a text of the protocol ends within its array. */
bool keeper_text_ok(const char *text, size_t size);
#define KEEPER_TEXT_OK(array) keeper_text_ok((array), sizeof(array))
