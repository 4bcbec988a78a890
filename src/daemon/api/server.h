#pragma once
/*
 * HTTP on a Unix socket: libmicrohttpd with one thread a connection. It never listens on TCP;
 * HAProxy stands in front and normalises the framing. This is the only file that knows the HTTP
 * library; requests go through dispatch.h.
 */
#include "base/err.h"

#include "config.h"

int server_start(const struct config *config, struct err *e);
/* Takes no more connections and waits for those that are under way. */
void server_stop(void);
