#pragma once
/*
 * Sends memory without copying it: the peer's kernel buffers point at our pages.
 *
 * The bytes must stay as they are until the peer has read them, so this is for those that are kept
 * until they are acknowledged. PID 1 only: one scratch pipe for all. Worth its calls from some 16 KiB on.
 */
#include <stddef.h>

/* The count sent, less than `len` where the socket is full; 0 also where the kernel cannot: then
 * the caller sends as usual. */
size_t send_pages(int sock, const void *data, size_t len);
