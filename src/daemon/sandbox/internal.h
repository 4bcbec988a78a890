#pragma once
/* What the files of sandbox/ share among themselves; nobody else includes it. */
#include "backend/backend.h"
#include "config.h"
#include "sandbox/lifecycle.h"
#include "sandbox/sandbox.h"

struct sandbox_context {
	const struct config *config;
	const struct backend *backend;
};
extern struct sandbox_context sandbox_context; /* set once, by sandbox_init */

/* One operation under the lock: who asks, what the audit calls it (written with the first change
 * of state), and how it failed where that is not the end of it. */
struct op {
	const struct actor *actor;
	const char *audit;
	uint32_t grace_ms;
	struct err failure;
};

/* exit_reason of a row that never got its disk. */
#define EXIT_CREATE_FAILED "CREATE_FAILED"

/* Runs the event and what follows from it. Under the lock. */
int sandbox_run_event(struct sandbox_row *row, enum event event, struct op *op, struct err *e);
/* Removes the row and what is held for it; the backend has nothing of it any more. */
int sandbox_forget(const struct sandbox_row *row, const struct actor *a, struct err *e);
int sandbox_finish_delete(const struct sandbox_row *row, const struct actor *a, struct err *e);
/* The sandbox under its lock, for an operation that does not wait for another one. */
int sandbox_lock_row(const char *id, unsigned flags, struct sandbox_row *ret, struct err *e);

/* size.c: `row` has what holds where nothing is asked for. */
int size_resolve(const struct size_request *in, const struct backend_info *host,
		 struct sandbox_row *row, struct err *e);
struct backend_limits size_limits(const struct sandbox_row *row);
/* Puts the row's limits in force. */
int size_apply(const struct sandbox_row *row, bool *ret_enforced, struct err *e);
/* May so much memory be promised beside what all but `except` hold? */
int memory_check(struct tx *t, const char *except, uint32_t memory_mb, struct err *e);
