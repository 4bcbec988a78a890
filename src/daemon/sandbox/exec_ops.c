/* What is asked of a command that was started before. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "sandbox/command_input.h"
#include "sandbox/exec.h"
#include "sandbox/lifecycle.h"
#include "sandbox/live.h"
#include "sandbox/sandbox.h"

enum { POLL_MS = 100, SETTLE_MS = 2000 };

int exec_get(const char *sandbox, const char *id, struct command_row *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_READ, e);

	return r < 0 ? r : command_by_id(&t, sandbox, id, ret, e);
}

static bool hung_up(int fd)
{
	struct pollfd p = { .fd = fd };

	return fd >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

int exec_wait(const char *sandbox, const char *id, uint64_t deadline_ns, int client_fd,
	      struct command_row *ret, struct err *e)
{
	for (;;) {
		struct command_row row = { 0 };
		int r = exec_get(sandbox, id, &row, e), left = clock_left_ms(deadline_ns);

		if (r < 0)
			return r;
		if (!str_eq(row.status, "INPROGRESS") || !left || hung_up(client_fd)) {
			*ret = row;
			return 0;
		}
		command_row_release(&row);
		live_wait(id, left < 0 || left > POLL_MS ? POLL_MS : left);
	}
}

static int audit(const struct actor *a, const char *action, const char *object, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (!r)
		r = audit_add(&t, a, action, object, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static int nothing_left(const char *id, struct err *e)
{
	err_reason(e, EBUSY, "command_ended", "command '%s' has ended and nothing of it is left",
		   id);
	return err_hint(e, "there is nothing to terminate");
}

int exec_terminate(const struct sandbox_row *sandbox, const char *id, int signal, uint32_t grace_ms,
		   const struct actor *a, struct command_row *ret, struct err *e)
{
	_cleanup_command_row_ struct command_row row = { 0 };
	int r = exec_get(sandbox->id, id, &row, e);

	if (r < 0)
		return r;
	if (sandbox->status != RUNNING) {
		if (!str_eq(row.status, "INPROGRESS"))
			return nothing_left(id, e);
		return status_conflict(sandbox->identifier, sandbox->status, e);
	}
	r = audit(a, "command.terminate", id, e);
	if (r < 0)
		return r;
	live_hurry(id);
	r = command_terminate(sandbox->id, id, (uint32_t)signal, grace_ms, e);
	if (r == -ESRCH && !str_eq(row.status, "INPROGRESS"))
		return nothing_left(id, e);
	if (r < 0 && r != -ESRCH) {
		err_wrap(e, "terminate command '%s'", id);
		e->reason = NULL;
		e->field[0] = '\0';
		return backend_fault(e, EHOSTDOWN, "agent_unreachable");
	}
	return exec_wait(sandbox->id, id, clock_mono_ns() + SETTLE_MS * NS_PER_MS, -1, ret, e);
}

/* One of a machine that runs, and not known to have ended. */
static int get_running(const struct sandbox_row *sandbox, const char *id, struct err *e)
{
	_cleanup_command_row_ struct command_row row = { 0 };
	int r = exec_get(sandbox->id, id, &row, e);

	if (r < 0)
		return r;
	if (!str_eq(row.status, "INPROGRESS"))
		return err_reason(e, EBUSY, "command_ended", "command '%s' has ended", id);
	return sandbox->status == RUNNING
		       ? 0
		       : status_conflict(sandbox->identifier, sandbox->status, e);
}

int exec_input_err(const struct sandbox_row *sandbox, const char *id, struct err *e)
{
	static const struct {
		const char *reason;
		int code;
	} known[] = {
		{ "command_ended", EBUSY },     { "command_unknown", EBUSY },
		{ "stdin_closed", EBUSY },      { "not_a_terminal", EINVAL },
		{ "too_many_commands", EBUSY },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!str_eq(e->reason ? e->reason : "", known[i].reason))
			continue;
		e->code = known[i].code;
		e->field[0] = '\0';
		if (i == 1) /* the agent forgets what has ended */
			err_reason(e, EBUSY, "command_ended", "command '%s' has ended", id);
		return -e->code;
	}
	if (e->code == ECONNABORTED)
		return -e->code;
	err_wrap(e, "command '%s' of sandbox '%s'", id, sandbox->identifier);
	e->reason = NULL;
	e->field[0] = '\0';
	return backend_fault(e, EHOSTDOWN, "agent_unreachable");
}

int exec_signal(const struct sandbox_row *sandbox, const char *id, int signal,
		const struct actor *a, struct err *e)
{
	int r = get_running(sandbox, id, e);

	if (!r)
		r = audit(a, "command.signal", id, e);
	if (r < 0)
		return r;
	r = command_signal(sandbox->id, id, (uint32_t)signal, e);
	return r < 0 ? exec_input_err(sandbox, id, e) : 0;
}

int exec_resize(const struct sandbox_row *sandbox, const char *id, uint32_t cols, uint32_t rows,
		struct err *e)
{
	int r = get_running(sandbox, id, e);

	if (r < 0)
		return r;
	r = command_resize(sandbox->id, id, (uint16_t)cols, (uint16_t)rows, e);
	return r < 0 ? exec_input_err(sandbox, id, e) : 0;
}

int exec_input(const struct sandbox_row *sandbox, const char *id, struct command_input *ret,
	       struct err *e)
{
	int r = get_running(sandbox, id, e);

	if (r < 0)
		return r;
	r = command_input_open(ret, sandbox->id, id, e);
	return r < 0 ? exec_input_err(sandbox, id, e) : 0;
}
