#pragma once
/*
 * A body of multipart/form-data, as it streams in. Beside server.c the only one that knows the HTTP
 * library, which takes such bodies apart.
 */
#include "api/request.h"

struct form;

/* Gets the bytes of a part as they come, at least once for each; `first`: it may begin here. A
 * negative errno ends it, and is told by form_write. */
typedef int form_part_fn(void *arg, const char *name, const char *data, size_t len, bool first,
			 struct err *e);

/* -EINVAL where the type of the request's body is none. */
int form_open(struct form **ret, struct request *r, form_part_fn *part, void *arg, struct err *e);
int form_write(struct form *f, const char *data, size_t len, struct err *e);
/* -EINVAL where the form did not come to its end. Frees it. */
int form_end(struct form **f, struct err *e);
void form_free(struct form **f);
