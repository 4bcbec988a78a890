#pragma once
/*
 * One WebSocket to the API, the client's side. The only file that knows wslay. One loop drives it:
 * poll for socket_events() until socket_wake_ns(), then socket_turn(). Nothing here blocks but
 * socket_open().
 *
 * What is sent waits in memory until the server takes it: the caller adds more only while
 * socket_pending() is low.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"

struct socket;

struct socket_handler {
	void (*text)(void *arg, const char *data, size_t len); /* valid UTF-8 */
	void (*bytes)(void *arg, const void *data, size_t len);
};

enum socket_state {
	SOCKET_OPEN,
	SOCKET_CLOSED, /* in order, see socket_code() */
	SOCKET_LOST,   /* see socket_why() */
};

/* Connects and shakes hands. Refusals are errors of the API, as for any request. */
int socket_open(struct cli *c, const char *path, const struct socket_handler *handler, void *arg,
		struct socket **ret, struct err *e);
/* Says goodbye where the server listens; does not wait. NULL is fine. */
void socket_free(struct socket *s);

void socket_json(struct socket *s, const json_t *object);
void socket_bytes(struct socket *s, const void *data, size_t len);
/* Asks for an answer to all that was sent before; only while nothing is pending. */
void socket_ping(struct socket *s);
unsigned socket_pongs(const struct socket *s); /* how many of them were answered */
size_t socket_pending(const struct socket *s);
void socket_pause(struct socket *s, bool paused); /* nothing is received */

int socket_fd(const struct socket *s);
short socket_events(const struct socket *s);
uint64_t socket_wake_ns(const struct socket *s);
enum socket_state socket_turn(struct socket *s);
int socket_code(const struct socket *s); /* of the server's close; 0: there was none */
const char *socket_why(const struct socket *s);
