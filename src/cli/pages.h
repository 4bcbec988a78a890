#pragma once
/*
 * Lists that come in pages.
 */
#include "api.h"

/* Follows `next_cursor` until the end, or until --limit (`otherwise` where it is not given, 0 for
 * all) is reached. `*ret` is the first answer with the entries of all pages under `key`; the cursor
 * is left in it when there is more. */
int pages_get(struct cli *c, const struct buf *path, const char *key, const struct args *a,
	      unsigned otherwise, json_t **ret, struct err *e);
