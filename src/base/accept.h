#pragma once
/* The opening handshake of RFC 6455: what the server answers to the client's key, for both sides. */

enum { ACCEPT_SIZE = 29 };

/* `key` as it stands in the header. "" when memory is short, which no key is answered with. */
void accept_of_key(const char *key, char ret[ACCEPT_SIZE]);
