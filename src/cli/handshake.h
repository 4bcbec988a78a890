#pragma once
/*
 * The beginning of a WebSocket (RFC 6455, section 4): the request, and what may be said in return.
 */
#include "base/buf.h"

#include "api.h"

/* Asks for `path` to become a WebSocket. A refusal is the API's error. `early` gets what came behind
 * the answer. Ends with -EINTR when the client's cancel descriptor becomes readable. */
int handshake(struct cli *c, struct line *l, const char *path, struct buf *early, struct err *e);
