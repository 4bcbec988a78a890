#pragma once
/*
 * The lifecycle of a sandbox as a table, free of effects: which event is allowed in which state,
 * where it leads, and what a refusal says. sandbox.c runs it.
 */
#include "base/err.h"

enum status { STOPPED, STARTING, RUNNING, STOPPING, RESTORING, FAILED, PAUSED, STATUS_END };

enum event {
	EV_NONE,
	EV_START,   /* somebody asks */
	EV_STOP,    /* somebody asks */
	EV_MADE,    /* the disk is there */
	EV_READY,   /* commands can run */
	EV_REFUSED, /* it could not be started */
	EV_EXITED,  /* the machine is gone */
};

/* What follows the change of state; the order is that of the table of functions in sandbox.c. */
enum action { DO_NOTHING, DO_BOOT, DO_HALT, DO_SETTLE };

struct transition {
	enum status from;
	enum event event;
	enum status to;
	enum action action;
};

extern const struct transition transitions[]; /* ends with the event EV_NONE */

const struct transition *transition_find(enum status from, enum event event);

const char *status_name(int status);
int status_from_name(const char *name);  /* -1 for none */
extern const char *const status_names[]; /* NULL at the end */

/* -EBUSY, "sandbox 'x' is STOPPED", with the remedy as hint. */
int status_conflict(const char *identifier, int status, struct err *e);
