#pragma once
/*
 * A request to the API and its answer, whatever carries them.
 *
 * Commands know this header only; http.c implements it over libcurl. An answer is kept in memory up
 * to a ceiling; what can be longer goes to `sink` piece by piece. `sink` sees the body of a 2xx
 * answer only: an error's body always lands in the answer, so that it is never taken for content.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

#include "conf.h"

enum { ANSWER_MAX = 64 * 1024 * 1024 }; /* 2 MiB of each stream, escaped */

struct request {
	const char *method;
	const char *path; /* encoded, with its query, from "/" */
	const char *type; /* of the body; NULL: none */
	const void *body;
	size_t body_len;
	/* Instead of `body`: called until it returns 0; a negative errno cuts the request.
	 * `source_len` -1: unknown. */
	ssize_t (*source)(void *arg, void *data, size_t len);
	int64_t source_len;
	/* Returns 0 or a negative errno, which ends the request and is handed on. */
	int (*sink)(void *arg, const void *data, size_t len);
	void *arg;           /* for source and sink */
	unsigned timeout_ms; /* 0: as long as it takes */
};

struct answer {
	int status;
	struct buf body;
	char type[64];
	char request_id[64];
	bool streamed; /* the sink was called */
};

#define ANSWER_INIT                                                                                \
	{                                                                                          \
		.body = BUF_INIT(ANSWER_MAX)                                                       \
	}
#define _cleanup_answer_ _cleanup_(answer_release)

static inline void answer_release(struct answer *a)
{
	buf_release(&a->body);
}

/* A connection of its own to where requests go, for what begins as HTTP and goes on as something
 * else. Never blocks. */
struct line {
	int fd; /* for poll; encrypted bytes may wait behind it: receive until -EAGAIN */
	const char *host, *prefix; /* for its request: the Host, and what stands before paths */
	const char *auth;          /* a header line, or NULL */
	/* A count, -EAGAIN, or what ended it; 0 of recv: the other end closed it. */
	ssize_t (*send)(struct line *l, const void *data, size_t len);
	ssize_t (*recv)(struct line *l, void *data, size_t len);
	void (*free)(struct line *l);
};

struct client {
	/* 0 once an answer came, whatever its status. Reasons: connection_failed, interrupted, or
	 * what source and sink returned. */
	int (*send)(struct client *c, const struct request *r, struct answer *ret, struct err *e);
	int (*dial)(struct client *c, struct line **ret, struct err *e);
	void (*free)(struct client *c);
	int cancel_fd; /* readable: the request in flight ends with -EINTR; -1 for none */
};

/* http://, https:// or unix:///path of `conf`. */
int http_client_open(const struct conf *conf, struct client **ret, struct err *e);

static inline void line_free(struct line *l)
{
	if (l)
		l->free(l);
}

static inline void client_free(struct client *c)
{
	if (c)
		c->free(c);
}
