#pragma once
/* From `struct err` to what a client sees: one table. */
#include <jansson.h>

#include "base/err.h"

/* How answers are written: a fraction as it was given, 0.2 and not 0.20000000000000001. */
#define JSON_ANSWER (JSON_COMPACT | JSON_REAL_PRECISION(15))

unsigned error_status(const struct err *e);
unsigned error_retry_after(const struct err *e); /* seconds; 0: none */
json_t *error_json(const struct err *e);
