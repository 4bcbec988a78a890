#pragma once
/*
 * Base64 (RFC 4648, with padding): how the API writes bytes that JSON text cannot hold, and
 * handshakes their keys.
 */
#include "base/buf.h"

/* Adds the bytes to `out`. 0, -EINVAL for what is not base64, or the buffer's failure. */
int base64_decode(struct buf *out, const char *text, size_t len);

/* Adds the text of the bytes. 0 or the buffer's failure. */
int base64_encode(struct buf *out, const void *data, size_t len);
