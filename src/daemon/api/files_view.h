#pragma once
/* What the files of the API share: from a request to a call of the agent, from what that says to the
 * objects of the contract. */
#include <jansson.h>

#include "api/resources.h"
#include "sandbox/files.h"

/* One call for one request. */
struct file_request {
	struct sandbox_row sandbox;
	struct files_call call;
};
void file_request_init(struct file_request *q);
void file_request_release(struct file_request *q);
#define _cleanup_file_request_ _cleanup_(file_request_release)

/* The sandbox of the path, then the call. With `action` it is a change, and written to the audit
 * log. The default user is filled in. */
int file_request_open(struct request *r, struct file_request *q, const char *action,
		      struct agent_file *f, struct err *e);
/* For what answers with one entry: it becomes r->answer. */
int file_request_item(struct request *r, struct file_request *q, struct err *e);

/* The mode of a query or body: octal text, checked by its field. */
int mode_check(const char *text, struct err *e);
uint32_t mode_of(const char *text);

json_t *view_file(const struct sandbox_row *sandbox, const char *path, const struct agent_entry *n);
void put_file_urls(json_t **o, const struct sandbox_row *sandbox, const char *path);
/* `name` as text; where it is not UTF-8 also `name`_base64. */
void put_bytes(json_t **o, const char *name, const char *bytes, size_t len);

/* An answer of many objects is written as they come, below a ceiling: memory is bounded whatever a
 * sandbox says. */
enum { PAGE_BYTES = 8 * 1024 * 1024 };
struct page {
	struct buf out;
	unsigned count;
};
void page_init(struct page *p);
void page_release(struct page *p);
/* Takes `o`, NULL for a failed allocation. 1: no more fits, and `o` was left out. */
int page_add(struct page *p, json_t *o, struct err *e);
/* `{head…, "name": [objects], tail…}` becomes the answer; takes both objects. */
int page_answer(struct page *p, struct request *r, const char *name, json_t *around, struct err *e);
