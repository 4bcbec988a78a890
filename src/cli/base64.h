#pragma once
/*
 * Base64 as the API writes bytes that JSON text cannot hold (RFC 4648, with padding).
 */
#include "base/buf.h"

/* Adds the bytes to `out`. 0, -EINVAL for what is not base64, or the buffer's failure. */
int base64_decode(struct buf *out, const char *text, size_t len);
