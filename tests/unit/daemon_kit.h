#pragma once
/*
 * skerryd without HTTP and without a host: a fresh database, a backend of nothing but memory, the
 * fake agent of command_agent.h, and requests that go straight to the dispatcher.
 */
#include <jansson.h>
#include <stdbool.h>

#include "access/token.h"
#include "command_agent.h"
#include "config.h"
#include "sandbox/sandbox.h"

/* What the fake backend does next. */
extern struct kit_knobs {
	int fail_create, fail_start, fail_stop, fail_destroy, fail_layer,
		fail_limit;                    /* errno, 0: works */
	unsigned create_ms, start_ms, stop_ms; /* how long they take */
	void (*looked)(void); /* once, after the daemon has asked what lives and lies there */
	uint64_t pool_free;
	struct backend_limits limits; /* the last ones that were set */
	_Atomic unsigned creates, starts, stops, destroys;
} kit;
extern const struct backend kit_backend;

void kit_open(void); /* a fresh database, with the image debian:12 and an admin's token */
void kit_close(void);
/* The daemon's part of a restart: the database and the fake machines stay. */
void kit_restart(void);
void kit_reconnect(void); /* the backend was lost and is there again */

/* The fake host. */
bool kit_lives(const char *id);
bool kit_has_disk(const char *id);
void kit_add_disk(const char *id, enum backend_object_kind kind);
void kit_add_machine(const char *id);
void kit_remove_machine(const char *id); /* silently */
void kit_tell_exit(const char *id, uint32_t code);
void kit_exit(const char *id, uint32_t code); /* both */

struct kit_answer {
	unsigned status;
	json_t *json; /* NULL for 204, and for bytes */
	char *bytes;  /* of a stream */
	size_t len;
	bool cut; /* the stream did not come to its end */
	bool sized;
	uint64_t size;
	unsigned retry_after;
	char head[4096]; /* "Name: value\n" of each header of the route's own */
};
struct kit_request {
	const char *method, *path, *key, *token; /* token NULL: the admin's; "": none */
	const char *body;                        /* JSON text, or NULL */
	/* of an upload: its body, in pieces of `piece` bytes (0: one), which may be cut */
	const char *type, *bytes;
	size_t len, piece;
	bool cut;
	const char *range, *if_range;
};
/* The path is below the workspace unless it starts with "/" twice ("//healthz"). */
struct kit_answer kit_call(const struct kit_request *q);
#define kit_api(...) kit_call(&(struct kit_request){ __VA_ARGS__ })
void kit_free(struct kit_answer *a);

/* Runs a call, checks its status, and answers the JSON (NULL for 204). */
json_t *kit_want(unsigned status, const char *method, const char *path, const char *body);
/* The first error's code and field. */
const char *kit_code(const json_t *answer);
const char *kit_field(const json_t *answer);

const char *kit_token(void);
void kit_agent_true(struct fake_conn *c); /* every command prints "hi\n" and ends with 0 */
