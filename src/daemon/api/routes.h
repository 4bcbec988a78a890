#pragma once
/*
 * The table of routes: dispatch, the 404s and 405s and the OpenAPI document are made from it. Also
 * the shapes of answers, which the document shows and the tests hold the answers against.
 */
#include "api/request.h"

/* Streams a body that is not JSON: `write` for each piece, `end` for the answer. `end` is called
 * once, whatever happened before; `cut`: the body did not come to its end. */
struct upload {
	const char *type;        /* of the body, for the document */
	const char *const *also; /* more of them, or NULL */
	int (*begin)(struct request *r, struct err *e);
	int (*write)(struct request *r, const char *data, size_t len, struct err *e);
	int (*end)(struct request *r, bool cut, struct err *e);
};

/* A WebSocket: `open` looks whether there can be one and refuses as any handler does; `run` has it
 * from the upgrade to the end, in the connection's own thread. */
struct socket_route {
	int (*open)(struct request *r, struct err *e);
	void (*run)(struct request *r, int fd, const void *early, size_t early_len);
};

/* One member of an answer. */
struct shape_field {
	const char *name;
	const char *type; /* string date integer number boolean; "[string]", "[Name]", "Name" */
	bool optional;
	const char *const *values;
};
struct shape {
	const char *name;
	const struct shape_field *fields;
};
extern const struct shape shapes[]; /* name NULL at the end */
const struct shape *shape_find(const char *name);

struct route {
	const char *method; /* "*" for any */
	/* literal segments, {parameters}, and ** for the rest at the end */
	const char *pattern;
	unsigned scope; /* enum scope; SCOPE_NONE: no token needed */
	int (*handler)(struct request *r, struct err *e); /* NULL: not available yet */
	const struct field *fields;
	size_t fields_size;
	const struct field *query;
	size_t query_size;
	const char *shape; /* of the answer; NULL: none, or not JSON */
	const char *type;  /* of an answer that is not JSON */
	unsigned status;   /* of success */
	bool once;         /* takes Idempotency-Key */
	bool control;      /* ends or stops something: past the limits of requests under way */
	const struct upload *upload;
	const struct socket_route *socket;
	const char *summary; /* or the name of the part that is not there */
};

extern const struct route routes[]; /* method NULL at the end */

/* False for what only the contract knows. */
bool route_available(const struct route *t);
/* Finds the row and fills r->route and r->params. -ENOENT, or -ENOTBLK with r->allow set. */
int route_find(struct request *r, struct err *e);

json_t *openapi_document(const char *server_url);
