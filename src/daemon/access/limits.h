#pragma once
/* How many requests each token, and each sandbox, has under way at once. */
#include <stdint.h>

#include "base/err.h"

/* 0, or -EUSERS when `most` are under way for this key. */
int limit_enter(const char *key, uint32_t most, struct err *e);
void limit_leave(const char *key);
