#include "sandbox/lifecycle.h"

#include <errno.h>
#include <stddef.h>

#include "base/banned.h"
#include "base/str.h"

/* The whole lifecycle on one screen. Starting what runs and stopping what is stopped is done
 * already: a client that lost an answer can ask again. */
const struct transition transitions[] = {
	/* from       event        to         action     */
	{ RESTORING, EV_MADE, STARTING, DO_BOOT },
	{ STOPPED, EV_START, STARTING, DO_BOOT },
	{ FAILED, EV_START, STARTING, DO_BOOT },
	{ RUNNING, EV_START, RUNNING, DO_NOTHING },
	{ STARTING, EV_READY, RUNNING, DO_NOTHING },
	{ STARTING, EV_REFUSED, FAILED, DO_SETTLE },
	{ RUNNING, EV_STOP, STOPPING, DO_HALT },
	{ STOPPED, EV_STOP, STOPPED, DO_NOTHING },
	{ STOPPING, EV_EXITED, STOPPED, DO_SETTLE },
	{ RUNNING, EV_EXITED, STOPPED, DO_SETTLE },
	{ 0 },
};

static const struct {
	const char *reason, *hint;
} conflicts[] = {
	[STOPPED] = { "sandbox_stopped", "start it with POST …/start" },
	[STARTING] = { "sandbox_starting", "wait until it is RUNNING" },
	[RUNNING] = { "sandbox_running", "stop it with POST …/stop" },
	[STOPPING] = { "sandbox_stopping", "wait until it is STOPPED, then start it" },
	[RESTORING] = { "sandbox_restoring", "wait until its disk is made" },
	[FAILED] = { "sandbox_failed",
		     "exit_reason says why; start it again with POST …/start, or delete it" },
	[PAUSED] = { "sandbox_paused", "resume it with POST …/resume" },
};

const char *const status_names[] = {
	[STOPPED] = "STOPPED",   [STARTING] = "STARTING",   [RUNNING] = "RUNNING",
	[STOPPING] = "STOPPING", [RESTORING] = "RESTORING", [FAILED] = "FAILED",
	[PAUSED] = "PAUSED",     [STATUS_END] = NULL,
};

const struct transition *transition_find(enum status from, enum event event)
{
	for (const struct transition *t = transitions; t->event != EV_NONE; t++) {
		if (t->from == from && t->event == event)
			return t;
	}
	return NULL;
}

const char *status_name(int status)
{
	return status >= 0 && status < STATUS_END ? status_names[status] : "FAILED";
}

int status_from_name(const char *name)
{
	for (int i = 0; i < STATUS_END; i++) {
		if (str_eq(status_names[i], name))
			return i;
	}
	return -1;
}

int status_conflict(const char *identifier, int status, struct err *e)
{
	err_reason(e, EBUSY, conflicts[status].reason, "sandbox '%s' is %s", identifier,
		   status_name(status));
	return err_hint(e, "%s", conflicts[status].hint);
}
