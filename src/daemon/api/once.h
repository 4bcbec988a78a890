#pragma once
/*
 * Idempotency-Key: the same key of the same token on the same path runs once in 24 hours. A repeat
 * gets the first answer, waits while the first runs, and is refused when its body differs. Failed
 * requests are not kept: they changed nothing, and may be tried again.
 */
#include "api/request.h"

enum { ONCE_KEPT_MS = 24 * 3600 * 1000 };

int once_run(struct request *r, struct err *e);
