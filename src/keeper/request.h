#pragma once
/*
 * A request's bytes become a request, or nothing: the only foreign input of the keeper. Pure; no
 * allocation, no system call. A request that came through has exactly the size and the number of
 * descriptors of its verb, and every field has its form: texts end within their array, ids are ids
 * of the right kind, numbers are in range.
 */
#include <stdbool.h>
#include <stddef.h>

#include "wire/keeper.h"

enum { REQUEST_BODY_MAX = KEEPER_MESSAGE_MAX - sizeof(struct keeper_head) };

struct request {
	uint32_t verb;
	uint64_t seq;
	union {
		char bytes[REQUEST_BODY_MAX];
		struct keeper_hello hello;
		struct keeper_layer_create layer_create;
		struct keeper_layer layer;
		struct keeper_sandbox_create create;
		struct keeper_sandbox_start start;
		struct keeper_sandbox_stop stop;
		struct keeper_sandbox_limit limit;
		struct keeper_sandbox sandbox;
		struct keeper_slot slot;
	} body;
};

/* `fds`: descriptors that came along; `slots_max`: slot numbers are below it. */
bool request_parse(const void *message, size_t len, unsigned fds, uint32_t slots_max,
		   struct request *ret);
