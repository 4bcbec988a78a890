#pragma once
/*
 * One WebSocket, the server's side: wslay over a socket that the HTTP library handed on. The only
 * file that knows wslay. One thread drives it: poll for websocket_events() until websocket_wake_ns(),
 * then websocket_turn(), until websocket_over().
 *
 * The client is foreign: messages are bounded, pings find one that is lost, and what it does not
 * read is bounded by the caller, who adds more only while websocket_pending() is low.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WEBSOCKET_MESSAGE_MAX = 1024 * 1024 + 1, /* bytes of one from the client */
	WEBSOCKET_FRAME_MAX = 65535,
	WEBSOCKET_PING_MS = 20000,
	WEBSOCKET_LOST_MS = 120000, /* without a byte from the client or to it, and it is gone */
	WEBSOCKET_LEFT_MS =
		10000, /* how long the input of a client that left is waited to be taken */
	WEBSOCKET_CLOSE_MS = 5000,   /* how long its answer to our close is waited for, … */
	WEBSOCKET_LINGER_MS = 15000, /* … and how long it may take to read that */
};

enum websocket_code {
	WEBSOCKET_DONE = 1000,
	WEBSOCKET_AWAY = 1001,
	WEBSOCKET_GARBAGE = 1002,
	WEBSOCKET_REFUSED = 1008,
	WEBSOCKET_FAULT = 1011,
};

struct websocket;

/* Messages of the client; they may send and close. */
struct websocket_handler {
	void (*text)(void *arg, const char *data, size_t len); /* valid UTF-8 */
	void (*bytes)(void *arg, const void *data, size_t len);
};

/* `early`: bytes that were read behind the request. NULL when memory is short. */
struct websocket *websocket_new(int fd, const void *early, size_t early_len,
				const struct websocket_handler *handler, void *arg);
void websocket_free(struct websocket *w); /* the socket stays the caller's */

/* Takes `object`, NULL included: then memory was short, and the socket is closed with 1011. */
void websocket_json(struct websocket *w, json_t *object);
/* A binary frame of `len` bytes, behind one of `channel` where that is not NULL: at most
 * WEBSOCKET_FRAME_MAX in all. Copied only as far as the kernel does not take it now. */
void websocket_bytes(struct websocket *w, const char *channel, const void *data, size_t len);
/* Says goodbye behind what is pending. */
void websocket_close(struct websocket *w, enum websocket_code code);

size_t websocket_pending(const struct websocket *w); /* bytes not with the kernel */
/* Nothing is read while it is paused, closes included; a hang-up is noticed. */
void websocket_pause(struct websocket *w, bool paused);

/* When the client last took a byte; CLOCK_MONOTONIC. */
uint64_t websocket_moved_ns(const struct websocket *w);

int websocket_fd(const struct websocket *w);
short websocket_events(const struct websocket *w);
uint64_t websocket_wake_ns(const struct websocket *w); /* CLOCK_MONOTONIC */
void websocket_turn(struct websocket *w, short revents);
/* All is said, or the client is gone. */
bool websocket_over(const struct websocket *w);
/* A close was sent or came: no message is worth sending any more. */
bool websocket_closing(const struct websocket *w);
/* Waits until the client has closed too. To close with bytes of its unread would be a reset, which can
 * overtake what we said last. */
void websocket_linger(const struct websocket *w);
