#pragma once
/*
 * SHA-1 (RFC 3174), for the handshake of WebSockets only: it proves that the peer speaks the
 * protocol, and protects nothing.
 */
#include <stddef.h>

void sha1(const void *data, size_t len, unsigned char out[20]);
