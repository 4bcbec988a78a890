#pragma once
/*
 * One API request, free of the HTTP library: server.c fills it, dispatch.c runs it, the files of
 * the resources answer it. Everything in it lives as long as the request.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#include "api/field.h"
#include "config.h"
#include "sandbox/sandbox.h"
#include "store/tables.h"

enum {
	BODY_MAX = 1024 * 1024,
	SEGMENTS_MAX = 64,
	PARAMS_MAX = 4,
	QUERY_MAX = 32,
	HEADERS_MAX = 8,
};

struct route;
struct request;

/* Bytes that are made while they are sent: `read` blocks until it has some; 0 is the end, a
 * negative value cuts the answer off. */
struct stream {
	ssize_t (*read)(void *arg, char *data, size_t len);
	void (*free)(void *arg);
	void *arg;
	size_t block; /* bytes asked for at once; 0: the server's choice */
	bool sized;   /* it has `size` bytes, which the answer's head says */
	uint64_t size;
};

struct request {
	char id[ID_SIZE];
	const char *method;
	char *target;                 /* as it came; cut up by request_parse */
	char *segments[SEGMENTS_MAX]; /* of the path, decoded */
	unsigned segments_count;
	bool segments_more; /* there are more: for a route that takes the rest */
	char *rest;         /* the decoded path of such a route */
	struct {
		const char *name, *value;
	} query[QUERY_MAX]; /* decoded */
	unsigned query_count;
	char *path;    /* the path as it came, without the query */
	int client_fd; /* -1: none */

	/* headers, NULL where absent */
	char *authorization, *content_type, *idempotency_key, *accept;
	char *range, *if_range;
	char *edge; /* "plain" or "watched", set by HAProxy: whether it tells that a client left */
	struct buf body;

	/* by dispatch */
	const struct route *route;
	const char *params[PARAMS_MAX]; /* of the route's pattern, in order */
	bool authenticated;
	struct token_row token;
	char actor_name[NAME_SIZE + 8];
	struct actor actor;
	struct idempotency_ref once; /* key NULL: not asked for */
	json_t *body_json, *query_json;
	void *in, *in_query; /* decoded structs of the route */

	/* the answer */
	unsigned status; /* 0: the route's */
	json_t *answer;
	const char *text;      /* instead of `answer`: JSON already written */
	struct stream *stream; /* instead of both, with its type */
	const char *stream_type;
	struct {
		const char *name;
		char *value;
	} headers[HEADERS_MAX]; /* more of them, set by request_header */
	unsigned headers_count;
	const char *allow;    /* 405 */
	unsigned retry_after; /* seconds; 0: none */
	char *written;        /* the answer's text; a handler may give it, with its length */
	size_t written_len;

	void *connection;                    /* the HTTP library's, for form.c */
	void *upload;                        /* a route's own, while the body streams in */
	bool counted_token, counted_sandbox; /* held places of the connection limits */
	char sandbox_id[ID_SIZE];
};

int request_init(struct request *r, const char *method, const char *target);
void request_release(struct request *r);

/* Splits and decodes the target. */
int request_parse(struct request *r, struct err *e);
/* From segment `i` on: the absolute path of a file, decoded into r->rest. */
int request_rest(struct request *r, unsigned i, struct err *e);
/* Adds a header to the answer. */
int request_header(struct request *r, const char *name, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
const char *request_query(const struct request *r, const char *name);

/* The sandbox of the path's first parameter: an id, or an identifier of the request's project. */
int request_sandbox(struct request *r, struct sandbox_row *ret, struct err *e);
/* The project of the query, else the token's only one, else `default`. */
int request_project(struct request *r, struct project_row *ret, struct err *e);

/* dispatch.c */
struct dispatch_config {
	const struct config *config;
};
void dispatch_init(const struct config *config);
const struct config *dispatch_config(void);
/* Before the body: path, token, route. Afterwards `route` is set, or the error is the answer. */
int dispatch_head(struct request *r, struct err *e);
/* With the body: decodes, calls the handler. */
int dispatch_run(struct request *r, struct err *e);
/* Makes `written` and `status` from the outcome. */
void dispatch_answer(struct request *r, const struct err *e);
void dispatch_end(struct request *r);
