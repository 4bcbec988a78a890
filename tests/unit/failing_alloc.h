#pragma once
/*
 * Allocations that fail on demand, for programs linked with failing_alloc_args of meson.build
 * (--wrap of malloc, calloc, realloc and reallocarray).
 */
#include <stdbool.h>

/* The n-th allocation from now fails (0: the next one), and all after it; -1: none. */
void failing_alloc_after(long n);
/* True when one has failed since the last call of the above. */
bool failing_alloc_hit(void);
