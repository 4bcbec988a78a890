#pragma once
/* Rows as the objects of the contract. Optional members are left out, never null. */
#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

#include "store/tables.h"

/* The full object; with `usage` the backend is asked for that of a running one: a new one has none
 * worth the time. */
int view_sandbox(const struct sandbox_row *row, bool usage, json_t **ret, struct err *e);
json_t *view_sandbox_brief(const struct sandbox_row *row, const char *workspace);
json_t *view_command(const struct sandbox_row *sandbox, const struct command_row *row);
json_t *view_image(const struct image_row *row);

json_t *json_base64(const void *data, size_t len); /* NULL when memory is short */

/* Members that are absent when the value is not there. A failed allocation makes the object NULL
 * for good. */
void put(json_t **object, const char *name, json_t *value);
void put_text(json_t **object, const char *name, const char *text); /* NULL or "": left out */
void put_date(json_t **object, const char *name, int64_t wall_ms);
