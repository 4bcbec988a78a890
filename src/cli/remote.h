#pragma once
/*
 * Files in sandboxes as they are named on the command line, "SANDBOX:/path": bytes, which are
 * percent-encoded on their way.
 */
#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

#include "cli.h"

struct remote {
	char sandbox[256];
	const char *path; /* absolute; points into the argument */
};

/* Has `word` the form of one? (A file of our own that looks so is named "./…".) */
bool remote_is(const char *word);
/* An error of usage where it has not. */
int remote_parse(const char *word, struct remote *ret, struct err *e);

/* The path of a call: "content", "stat", "download", "content/upload". */
int remote_url(struct cli *c, const struct remote *r, const char *call, struct buf *url,
	       struct err *e);
/* The item; 1, 0 where there is none. */
int remote_stat(struct cli *c, const struct remote *r, json_t **ret, struct err *e);

/* The bytes of an item's "name", "path" or "target". */
int remote_bytes(const json_t *item, const char *key, struct buf *out);
bool remote_is_dir(const json_t *item);
