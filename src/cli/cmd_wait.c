#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"

#include "api.h"
#include "out.h"

enum { FIRST_PAUSE_MS = 50, LONGEST_PAUSE_MS = 1000 };

static void pause_ms(uint64_t ms)
{
	struct timespec t = { .tv_sec = (time_t)(ms / 1000),
			      .tv_nsec = (long)(ms % 1000 * NS_PER_MS) };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* A sandbox that cannot start does not get there by waiting. */
static int check(const json_t *s, const char *sandbox, const char *wanted, struct err *e)
{
	const char *status = json_text_or(s, "status", "");

	if (str_eq(status, wanted))
		return 1;
	if (!str_eq(status, "FAILED"))
		return 0;
	return err_reason(
		e, EIO, "sandbox_failed", "'%s' is FAILED: %s", sandbox,
		json_text_or(json_object_get(s, "exit_reason"), "text", "no reason given"));
}

int cmd_wait(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	const char *given = args_get(a, "state");
	uint64_t deadline = UINT64_MAX, pause = FIRST_PAUSE_MS;
	char wanted[32] = "RUNNING";
	double seconds;
	int r = args_number(a, "timeout", 0, 31536000, &seconds, e);

	if (r < 0)
		return r;
	if (!r)
		deadline = clock_mono_ns() + (uint64_t)(seconds * NS_PER_SEC);
	if (given && !str_copy(wanted, sizeof(wanted), given))
		return usage(e, "--state: '%s' is not a state", given);
	for (char *p = wanted; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	if (!word_in("STARTING RUNNING STOPPING STOPPED RESTORING FAILED PAUSED", wanted))
		return usage(e,
			     "--state: '%s' is not a state; states are: running, stopped, paused, "
			     "failed, starting, stopping, restoring",
			     given);
	r = api_path(c, &path, e, "sandboxes", a->pos[0], NULL);
	if (r < 0)
		return r;
	for (;;) {
		_cleanup_json_ json_t *s = NULL;
		uint64_t left;

		r = api_call(c, "GET", &path, NULL, CALL_TIMEOUT_MS, &s, e);
		if (r < 0 || (r = check(s, a->pos[0], wanted, e)) < 0)
			return r;
		if (r)
			return c->json ? out_json(s, e) : 0;
		left = (uint64_t)clock_left_ms(deadline);
		if (!left)
			return err_reason(e, ETIMEDOUT, "timed_out",
					  "'%s' is %s, not %s, after %g s", a->pos[0],
					  json_text_or(s, "status", "?"), wanted, seconds);
		pause_ms(left < pause ? left : pause);
		pause = pause * 2 < LONGEST_PAUSE_MS ? pause * 2 : LONGEST_PAUSE_MS;
	}
}
