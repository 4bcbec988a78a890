#pragma once
/* The opening handshake of RFC 6455, the server's side, free of the HTTP library; what it answers is
 * accept_of_key (base/accept.h). */
#include "base/err.h"

/* Header values as they came, NULL where absent. */
struct handshake {
	const char *upgrade, *connection, *version, *key;
};

/* -EPROTOTYPE (426): not asked for, or in another version; -EINVAL: a key that is none. */
int handshake_check(const struct handshake *h, struct err *e);
