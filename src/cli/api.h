#pragma once
/*
 * Calls of the API as commands make them: paths with foreign names in them, JSON in, JSON out, and
 * the API's errors as `struct err`.
 */
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

#include "cli.h"
#include "client.h"
#include "json.h"

enum { PATH_MAX_LEN = 16 * 1024, CALL_TIMEOUT_MS = 120 * 1000, BODY_MAX = 1024 * 1024 };

/* Why a request is larger than what was put into it. */
#define HINT_ESCAPES                                                                               \
	"quotes, backslashes and line ends count twice, other control characters six times"

/* Writes "/workspaces/<workspace>" and each part, percent-encoded, and the project where one is
 * set. Ends with NULL. A part that is empty, "." or ".." cannot be a name: an error of usage. */
int api_path(struct cli *c, struct buf *path, struct err *e, ...) __attribute__((sentinel));
/* Adds `key=value`, both encoded; nothing when `value` is NULL. */
void api_query(struct buf *path, const char *key, const char *value);
/* Percent-encodes all but the unreserved characters. */
void api_encode(struct buf *out, const char *text);

/* Sends and decodes. An answer that is not 2xx is an error. `body` and `ret` may be NULL; `*ret` is
 * NULL after an answer without a body. `timeout_ms` 0: as long as it takes. */
int api_call(struct cli *c, const char *method, const struct buf *path, const json_t *body,
	     unsigned timeout_ms, json_t **ret, struct err *e);
/* The same for a request that is already made; the caller looks at the answer's body. */
int api_send(struct cli *c, const struct request *r, struct answer *ret, struct err *e);

/* A body of so many bytes is not too large. */
int api_fits(size_t len, struct err *e);
/* The error that an answer is, not 2xx, as `struct err`. */
int api_refusal(struct cli *c, const struct request *r, const struct answer *a, struct err *e);
/* The same for one error object of the API; `path` names the sandbox in hints. */
int api_fault(struct cli *c, int status, const char *path, const json_t *error, struct err *e);

/* Adds a string to an object. An argument that is not UTF-8 cannot be sent: an error of usage. */
int api_put(json_t *object, const char *key, const char *value, struct err *e);
