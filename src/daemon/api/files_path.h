#pragma once
/*
 * Paths and names of files: bytes without NUL, which URLs, JSON and headers cannot hold as they
 * are. Nothing here looks at a file.
 */
#include "base/buf.h"
#include "base/err.h"

#include "api/field.h"

/* Makes an absolute path tidy in place: no empty parts, none at the end. -EINVAL for one that is
 * not absolute, has a part '.' or '..', or is too long. */
int file_path_tidy(char *path, struct err *e);

/* A path of a JSON body, from its field or that of its base64; the caller's to free. `about` has
 * room for the field's name. */
struct file_text {
	const char *name;   /* of the field */
	const char *text;   /* NULL: absent */
	const char *base64; /* NULL: absent */
};
int file_text_get(const struct file_text *t, char **ret, struct err *e); /* `*ret` NULL: neither */
int file_text_path(const struct file_text *t, char **ret, struct err *e);

/* `last` of "/a/last"; "/" of "/". */
const char *file_path_name(const char *path);

/* Adds the bytes with all but A-Z a-z 0-9 and those of `safe` percent-encoded. */
void file_path_encode(struct buf *out, const char *s, const char *safe);

/* The value of a Content-Disposition (RFC 6266, RFC 8187) for a file of this name. */
void file_disposition(struct buf *out, const char *name, const char *suffix);
