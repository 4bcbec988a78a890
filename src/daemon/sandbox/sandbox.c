#include "sandbox/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/log.h"

#include "sandbox/exec.h"
#include "sandbox/identifier.h"
#include "sandbox/internal.h"
#include "sandbox/lifecycle.h"

enum { STOP_MARGIN_MS = 2000 };

struct sandbox_context sandbox_context;

const struct backend *sandbox_backend(void)
{
	return sandbox_context.backend;
}

/* What the caller can mend or wait out keeps its meaning. */
static const struct {
	int code, as;
	const char *reason, *hint;
} faults[] = {
	{ ENOSPC, ENOSPC, "pool_full", "delete sandboxes or images, or enlarge the pool" },
	{ EDQUOT, ENOSPC, "pool_full", "delete sandboxes or images, or enlarge the pool" },
	{ EHOSTDOWN, EHOSTDOWN, "backend_down", "see 'skerry doctor' on the host" },
	{ ECONNREFUSED, EHOSTDOWN, "backend_down", "see 'skerry doctor' on the host" },
	{ ECONNRESET, EHOSTDOWN, "backend_down", "see 'skerry doctor' on the host" },
	{ ENOTCONN, EHOSTDOWN, "backend_down", "see 'skerry doctor' on the host" },
	{ EPIPE, EHOSTDOWN, "backend_down", "see 'skerry doctor' on the host" },
	{ ETIMEDOUT, EHOSTDOWN, "backend_slow", "the host is overloaded; try again" },
	{ EAGAIN, EAGAIN, "host_full", "try again, or stop a sandbox" },
	{ ENOMEM, EAGAIN, "host_full", "try again, or stop a sandbox" },
};

int backend_fault(struct err *e, int code, const char *reason)
{
	for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
		if (faults[i].code != e->code)
			continue;
		e->code = faults[i].as;
		if (!e->reason)
			e->reason = faults[i].reason;
		return e->hint[0] ? -e->code : err_hint(e, "%s", faults[i].hint);
	}
	e->code = code;
	if (!e->reason)
		e->reason = reason;
	return -code;
}

/* What power may take back without harm is not synced: which machines run is known afresh after a
 * power cut (none), so only that a sandbox exists, and that it ended, must be on the disk. */
static enum store_mode mode_of(enum status to)
{
	return to == STOPPED || to == FAILED ? STORE_DURABLE : STORE_RECORD;
}

static int write_state(struct sandbox_row *row, struct op *op, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, mode_of((enum status)row->status), e);

	/* one that is being made has counted since its row was written */
	if (!r && row->status == STARTING)
		r = memory_check(&t, row->id, row->memory_mb, e);
	if (!r)
		r = sandbox_update_state(&t, row, e);
	if (!r)
		r = event_add(&t, row->id, "status", status_name(row->status), op->actor, e);
	if (!r && op->audit)
		r = audit_add(&t, op->actor, op->audit, row->id, e);
	if (!r)
		r = tx_commit(&t, e);
	if (!r)
		op->audit = NULL;
	return r;
}

static void set_exit(struct sandbox_row *row, const char *code, const char *text)
{
	str_copy(row->exit_code, sizeof(row->exit_code), code);
	snprintf(row->exit_text, sizeof(row->exit_text), "%s", text);
}

static enum event do_nothing(struct sandbox_row *row, struct op *op)
{
	(void)row;
	(void)op;
	return EV_NONE;
}

/* A creation that failed after its answer left a row without a disk. */
static int make_missing_disk(struct sandbox_row *row, struct op *op)
{
	int r;

	if (!str_eq(row->exit_code, EXIT_CREATE_FAILED))
		return 0;
	r = sandbox_context.backend->create(row->id, row->layer, (uint64_t)row->disk_gb << 30,
					    &op->failure);
	if (r >= 0 || r == -EEXIST) {
		op->failure = (struct err)ERR_INIT;
		return 0;
	}
	set_exit(row, EXIT_CREATE_FAILED, op->failure.text);
	err_wrap(&op->failure, "the disk of sandbox '%s' could not be made", row->identifier);
	return backend_fault(&op->failure, EHOSTDOWN, "backend_failed");
}

/* A machine that runs while its row says otherwise is what a start left behind whose answer was
 * lost with a connection: it makes way. */
static int boot(const struct backend_spec *spec, struct backend_machine *ret, struct err *e)
{
	const struct backend *b = sandbox_context.backend;
	struct err ignored = ERR_INIT;
	int r = b->start(spec, ret, e);

	if (r >= 0 || !str_eq(e->reason, "already_running"))
		return r;
	log_warn("sandbox %s: runs already, and is started afresh", spec->id);
	b->kill(spec->id, &ignored);
	return b->start(spec, ret, e);
}

static enum event do_boot(struct sandbox_row *row, struct op *op)
{
	char hostname[IDENTIFIER_MAX + 1];
	struct backend_machine m = { 0 };
	struct backend_spec spec = {
		.id = row->id,
		.hostname = hostname,
		.machine_id = row->machine_id,
		.limits = size_limits(row),
		.layers_count = 1,
		.layers = { row->layer },
	};

	identifier_hostname(row->identifier, hostname);
	if (make_missing_disk(row, op) < 0)
		return EV_REFUSED;
	set_exit(row, "", "");
	if (boot(&spec, &m, &op->failure) < 0) {
		set_exit(row, "START_FAILED", op->failure.text);
		err_wrap(&op->failure, "sandbox '%s' could not be started", row->identifier);
		backend_fault(&op->failure, EDOM, "start_failed");
		return EV_REFUSED;
	}
	op->failure = (struct err)ERR_INIT;
	row->enforced = m.enforced;
	row->warm = m.warm;
	str_copy(row->address4, sizeof(row->address4), m.address4);
	str_copy(row->address6, sizeof(row->address6), m.address6);
	str_copy(row->setup_status, sizeof(row->setup_status), "SUCCESS");
	return EV_READY;
}

static enum event do_halt(struct sandbox_row *row, struct op *op)
{
	struct err e = ERR_INIT;

	/* an agent that does not answer is no reason to stay: the backend kills after the grace */
	if (agent_stop(row->id, op->grace_ms, &e) < 0)
		log_warn("sandbox %s: ask its agent to stop: %s", row->id, e.text);
	if (sandbox_context.backend->stop(row->id, op->grace_ms + STOP_MARGIN_MS, &op->failure) <
	    0) {
		err_wrap(&op->failure, "sandbox '%s' could not be stopped", row->identifier);
		backend_fault(&op->failure, EHOSTDOWN, "backend_failed");
		return EV_NONE;
	}
	op->failure = (struct err)ERR_INIT;
	return EV_EXITED;
}

static enum event do_settle(struct sandbox_row *row, struct op *op)
{
	struct err e = ERR_INIT;

	(void)op;
	if (exec_lose_all(row->id, &e) < 0)
		log_error("sandbox %s: close its commands: %s", row->id, e.text);
	return EV_NONE;
}

static enum event (*const actions[])(struct sandbox_row *row, struct op *op) = {
	[DO_NOTHING] = do_nothing,
	[DO_BOOT] = do_boot,
	[DO_HALT] = do_halt,
	[DO_SETTLE] = do_settle,
};

int sandbox_run_event(struct sandbox_row *row, enum event event, struct op *op, struct err *e)
{
	while (event != EV_NONE) {
		const struct transition *t = transition_find((enum status)row->status, event);
		int r;

		if (row->deleting)
			return status_conflict(row->identifier, STOPPING, e);
		if (!t)
			return status_conflict(row->identifier, row->status, e);
		if (t->to == t->from)
			return 0;
		row->status = t->to;
		r = write_state(row, op, e);
		if (r < 0) {
			row->status = t->from;
			return r;
		}
		event = actions[t->action](row, op);
		if (event == EV_NONE && t->action == DO_HALT) {
			/* it runs on, as far as anybody knows */
			row->status = t->from;
			write_state(row, op, e);
		}
	}
	if (!op->failure.code)
		return 0;
	*e = op->failure;
	return -e->code;
}

int sandbox_get(const char *id, struct sandbox_row *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_READ, e);

	return r < 0 ? r : sandbox_by_id(&t, id, ret, e);
}

int sandbox_lock_row(const char *id, unsigned flags, struct sandbox_row *row, struct err *e)
{
	int r = sandbox_lock(id, flags);

	if (r == -ENOMEM)
		return err_set(e, ENOMEM, "out of memory");
	if (r == 0) {
		r = sandbox_get(id, row, e);
		if (r < 0)
			sandbox_unlock(id);
		return r;
	}
	r = sandbox_get(id, row, e);
	if (r < 0)
		return r;
	status_conflict(row->identifier, row->deleting ? STOPPING : row->status, e);
	e->reason = "sandbox_busy";
	err_wrap(e, "another operation is under way");
	err_hint(e, "wait until it has ended, then try again");
	sandbox_row_release(row);
	return -e->code;
}

static int locked(const char *id, const enum event *events, struct op *op, struct sandbox_row *ret,
		  struct err *e)
{
	struct sandbox_row row = { 0 };
	int r = sandbox_lock_row(id, 0, &row, e);

	if (r < 0)
		return r;
	for (; *events != EV_NONE && r == 0; events++)
		r = sandbox_run_event(&row, *events, op, e);
	sandbox_row_release(&row);
	if (!r)
		r = sandbox_get(id, ret, e);
	sandbox_unlock(id);
	return r;
}

int sandbox_start(const char *id, const struct actor *a, struct sandbox_row *ret, struct err *e)
{
	struct op op = { .actor = a, .audit = "sandbox.start" };

	return locked(id, (enum event[]){ EV_START, EV_NONE }, &op, ret, e);
}

int sandbox_stop(const char *id, uint32_t grace_ms, const struct actor *a, struct sandbox_row *ret,
		 struct err *e)
{
	struct op op = { .actor = a, .audit = "sandbox.stop", .grace_ms = grace_ms };

	return locked(id, (enum event[]){ EV_STOP, EV_NONE }, &op, ret, e);
}

int sandbox_restart(const char *id, uint32_t grace_ms, const struct actor *a,
		    struct sandbox_row *ret, struct err *e)
{
	struct op op = { .actor = a, .audit = "sandbox.restart", .grace_ms = grace_ms };
	struct sandbox_row row = { 0 };
	int r = sandbox_get(id, &row, e), status = row.status;

	if (r < 0)
		return r;
	sandbox_row_release(&row);
	if (status == FAILED)
		return locked(id, (enum event[]){ EV_START, EV_NONE }, &op, ret, e);
	return locked(id, (enum event[]){ EV_STOP, EV_START, EV_NONE }, &op, ret, e);
}

int sandbox_settle_as(struct sandbox_row *row, int status, const char *code, const char *text,
		      struct err *e)
{
	struct op op = { .actor = &actor_system };
	int r;

	row->status = status;
	set_exit(row, code, text);
	r = write_state(row, &op, e);
	if (!r && status != RUNNING)
		do_settle(row, &op);
	return r;
}

int sandbox_forget(const struct sandbox_row *row, const struct actor *a, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct err ignored = ERR_INIT;
	bool last = false;
	int r = tx_begin(&t, STORE_DURABLE, e);

	if (!r)
		r = sandbox_remove(&t, row->id, e) < 0 ? -e->code : 0;
	if (!r)
		r = layer_unref(&t, row->layer, &last, e);
	if (!r)
		r = event_add(&t, row->id, "deleted", "", a, e);
	if (!r)
		r = tx_commit(&t, e);
	if (r < 0)
		return r;
	if (output_remove(row->id, NULL, &ignored) < 0)
		log_warn("sandbox %s: remove its output: %s", row->id, ignored.text);
	if (last && image_forget_layer(row->layer, &ignored) < 0)
		log_warn("layer %s: delete: %s", row->layer, ignored.text);
	return 0;
}

int sandbox_finish_delete(const struct sandbox_row *row, const struct actor *a, struct err *e)
{
	int r = sandbox_context.backend->destroy(row->id, e);

	if (r < 0) {
		err_wrap(e, "sandbox '%s' could not be deleted", row->identifier);
		return backend_fault(e, EHOSTDOWN, "backend_failed");
	}
	return sandbox_forget(row, a, e);
}

static int mark_deleting(const struct sandbox_row *row, const struct actor *a, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_DURABLE, e);

	if (!r)
		r = sandbox_set_deleting(&t, row->id, e) < 0 ? -e->code : 0;
	if (!r)
		r = audit_add(&t, a, "sandbox.delete", row->id, e);
	return r < 0 ? r : tx_commit(&t, e);
}

int sandbox_delete(const char *id, const struct actor *a, struct err *e)
{
	struct sandbox_row row = { 0 };
	int r = sandbox_lock(id, LOCK_WAIT);

	if (r < 0)
		return err_set(e, -r, "lock: %m");
	r = sandbox_get(id, &row, e);
	if (!r) {
		r = mark_deleting(&row, a, e);
		if (!r)
			r = sandbox_finish_delete(&row, a, e);
		sandbox_row_release(&row);
	}
	sandbox_unlock(id);
	return r;
}
