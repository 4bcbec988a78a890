#pragma once
/* The opening handshake of RFC 6455, the server's side, free of the HTTP library. */
#include "base/err.h"

/* Header values as they came, NULL where absent. */
struct handshake {
	const char *upgrade, *connection, *version, *key;
};

enum { HANDSHAKE_ACCEPT_SIZE = 29 };

/* -EPROTOTYPE (426): not asked for, or in another version; -EINVAL: a key that is none. */
int handshake_check(const struct handshake *h, struct err *e);
void handshake_accept(const char *key, char ret[HANDSHAKE_ACCEPT_SIZE]);
