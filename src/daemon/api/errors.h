#pragma once
/* From `struct err` to what a client sees: one table. */
#include <jansson.h>

#include "base/err.h"

unsigned error_status(const struct err *e);
unsigned error_retry_after(const struct err *e); /* seconds; 0: none */
json_t *error_json(const struct err *e);
