#include "base/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "base/banned.h"

uint64_t clock_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

int64_t clock_wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int clock_left_ms(uint64_t deadline_ns)
{
	uint64_t now, left;

	if (deadline_ns == UINT64_MAX)
		return -1;
	now = clock_mono_ns();
	if (now >= deadline_ns)
		return 0;
	left = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
	return left > INT_MAX ? INT_MAX : (int)left;
}

void clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE])
{
	/* RFC 3339 has four digits for the year */
	const int64_t first = -62135596800000, last = 253402300799999;
	int64_t ms = wall_ms < first ? first : wall_ms > last ? last : wall_ms;
	int fraction = (int)((ms % 1000 + 1000) % 1000);
	time_t seconds = (time_t)((ms - fraction) / 1000);
	struct tm tm;
	size_t n;

	gmtime_r(&seconds, &tm);
	n = strftime(out, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_TEXT_SIZE - n, ".%03dZ", fraction);
}
