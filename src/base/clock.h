#pragma once
/*
 * Time. Spans are measured on CLOCK_MONOTONIC, dates are CLOCK_REALTIME in milliseconds since 1970.
 */
#include <stdint.h>

#define NS_PER_MS  1000000ull
#define NS_PER_SEC 1000000000ull

uint64_t clock_mono_ns(void); /* nanoseconds, CLOCK_MONOTONIC */
int64_t clock_wall_ms(void);  /* milliseconds since 1970-01-01 UTC */

/* Milliseconds left until `deadline_ns` (CLOCK_MONOTONIC), rounded up, for poll(2): 0 when it has
 * passed, -1 for a deadline of UINT64_MAX (never), at most INT_MAX. */
int clock_left_ms(uint64_t deadline_ns);

/* RFC 3339 in UTC with milliseconds: "2026-01-02T03:04:05.678Z". Dates outside
 * of the years 1 to 9999 become the nearest within. */
enum { CLOCK_TEXT_SIZE = 32 };
void clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE]);
