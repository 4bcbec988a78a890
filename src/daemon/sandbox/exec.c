#include "sandbox/exec.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "sandbox/identifier.h"
#include "sandbox/lifecycle.h"
#include "sandbox/live.h"
#include "sandbox/sandbox.h"

enum { OUR_ENV = 3, POLL_MS = 100, SETTLE_MS = 2000 };

const char *const runtime_names[] = { "BASH", "PYTHON", "JAVASCRIPT", "TYPESCRIPT", NULL };

/* -- records ------------------------------------------------------------------------------- */

static const struct {
	const char *reason, *status;
} outcomes[] = {
	[REASON_EXITED] = { "EXITED", "FAILED" },
	[REASON_SIGNALED] = { "SIGNALED", "FAILED" },
	[REASON_TIMED_OUT] = { "TIMED_OUT", "FAILED" },
	[REASON_KILLED] = { "KILLED", "FAILED" },
	[REASON_OOM] = { "OOM", "FAILED" },
	[REASON_LOST] = { "LOST", "FAILED" },
};

/* The agent is hostile: what it says is brought into the shape of the contract. */
static void apply_result(struct command_row *row, const struct command_result *result)
{
	unsigned reason = result->exit.reason;

	if (!result->exit_known || reason < REASON_EXITED || reason > REASON_LOST)
		reason = REASON_LOST;
	str_copy(row->reason, sizeof(row->reason), outcomes[reason].reason);
	row->finished = clock_wall_ms();
	row->duration_ms = row->started ? row->finished - row->started : 0;
	row->exit_known = reason != REASON_LOST;
	row->exit_code = row->signal = 0;
	if (row->exit_known) {
		row->exit_code = (int)(result->exit.code & 255);
		row->signal = result->exit.signal < NSIG ? (int)result->exit.signal : 0;
		if (result->exit.duration_us / 1000 < INT64_MAX)
			row->duration_ms = (int64_t)(result->exit.duration_us / 1000);
	}
	if (reason == REASON_TIMED_OUT)
		row->exit_code = 137;
	str_copy(row->status, sizeof(row->status),
		 reason == REASON_EXITED && !row->exit_code ? "SUCCESSFUL"
							    : outcomes[reason].status);
}

static int write_end(const struct command_row *row, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (!r)
		r = command_set_end(&t, row, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static void finish(struct command_row *row, const struct command_result *result)
{
	struct err e = ERR_INIT;

	apply_result(row, result);
	if (write_end(row, &e) < 0)
		log_error("command %s: write its end: %s", row->id, e.text);
	live_remove(row->id);
}

/* From the watch thread, for commands in the background. */
static void background_done(void *arg, const char *sandbox, const char *id,
			    const struct command_result *result)
{
	_cleanup_command_row_ struct command_row row = { 0 };
	struct err e = ERR_INIT;

	(void)arg;
	if (exec_get(sandbox, id, &row, &e) < 0) {
		live_remove(id); /* its sandbox was deleted meanwhile */
		return;
	}
	finish(&row, result);
}

static int write_begin(const struct exec_context *c, const struct command_row *row,
		       const struct idempotency_ref *once, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (!r)
		r = command_insert(&t, row, c->actor, e);
	if (r >= 0)
		r = audit_add(&t, c->actor, "command.run", row->id, e);
	if (r >= 0 && once)
		r = idempotency_bind(&t, once->token, once->path, once->key, row->id, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static int write_started(struct command_row *row, const struct agent_started *s, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	row->pid = s->pid;
	snprintf(row->cwd, sizeof(row->cwd), "%s", s->cwd ? s->cwd : "");
	snprintf(row->user, sizeof(row->user), "%s", s->user ? s->user : "");
	if (!r)
		r = command_set_started(&t, row->id, row->pid, row->cwd, row->user, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static void remove_record(const struct command_row *row)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct err e = ERR_INIT;

	if (tx_begin(&t, STORE_RECORD, &e) == 0 && command_remove(&t, row->id, &e) >= 0)
		tx_commit(&t, &e);
	tx_end(&t);
	if (e.code)
		log_error("command %s: remove its record: %s", row->id, e.text);
	if (output_remove(row->sandbox, row->id, &e) < 0 && e.code != ENOENT)
		log_warn("command %s: remove its output: %s", row->id, e.text);
}

/* -- a run --------------------------------------------------------------------------------- */

static int add_env(char ***at, const char *key, const char *value, struct err *e)
{
	size_t size = strlen(key) + strlen(value) + 2;
	char *pair = malloc(size);

	if (!pair)
		return err_set(e, ENOMEM, "out of memory");
	snprintf(pair, size, "%s=%s", key, value);
	*(*at)++ = pair;
	return 0;
}

static char **make_env(const struct exec_request *in, const struct exec_context *c, struct err *e)
{
	char **env = calloc(OUR_ENV + json_object_size(in->env) + 1, sizeof(*env)), **at = env;
	const char *key;
	json_t *value;

	if (!env || add_env(&at, "SKERRY_SANDBOX", c->sandbox->id, e) < 0 ||
	    add_env(&at, "SKERRY_PROJECT", c->project->name, e) < 0 ||
	    add_env(&at, "SKERRY_WORKSPACE", c->project->workspace, e) < 0)
		goto fail;
	json_object_foreach(in->env, key, value)
	{
		if (add_env(&at, key, json_string_value(value), e) < 0)
			goto fail;
	}
	return env;
fail:
	err_set(e, ENOMEM, "out of memory");
	for (char **p = env; p && *p; p++)
		free(*p);
	free(env);
	return NULL;
}

static char **make_argv(const struct exec_request *in, struct err *e)
{
	size_t n = in->args ? json_array_size(in->args) : 1;
	char **argv = calloc(n + 1, sizeof(*argv));

	if (!argv) {
		err_set(e, ENOMEM, "out of memory");
		return NULL;
	}
	/* borrowed from the request, which outlives the start */
	for (size_t i = 0; i < n; i++)
		argv[i] = (char *)(in->args ? json_string_value(json_array_get(in->args, i))
					    : in->command);
	return argv;
}

static void free_env(char ***env)
{
	for (char **p = *env; p && *p; p++)
		free(*p);
	free(*env);
}

static uint8_t runtime_of(const struct exec_request *in)
{
	if (in->args)
		return RUNTIME_ARGS;
	for (unsigned i = 0; runtime_names[i]; i++) {
		if (str_eq(runtime_names[i], in->runtime))
			return (uint8_t)(RUNTIME_BASH + i);
	}
	return RUNTIME_BASH;
}

/* Why there is no command: what names a field is the caller's fault; else the machine is not what
 * it was, its limits are reached, or it does not answer. */
static int start_refused(const struct exec_context *c, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row now = { 0 };
	struct err ignored = ERR_INIT;

	if (e->field[0]) {
		e->code = EINVAL;
		return -e->code;
	}
	if (sandbox_get(c->sandbox->id, &now, &ignored) == -ENOENT)
		return err_reason(e, ENOENT, "sandbox_not_found", "there is no sandbox '%s'",
				  c->sandbox->identifier);
	if (now.id[0] && (now.status != RUNNING || now.deleting))
		return status_conflict(now.identifier, now.deleting ? STOPPING : now.status, e);
	if (e->reason) {
		e->code = EBUSY;
		err_wrap(e, "sandbox '%s' cannot start it", c->sandbox->identifier);
		return err_hint(e, "end something in it, or raise its limits");
	}
	e->code = EHOSTDOWN;
	e->reason = "agent_unreachable";
	err_wrap(e, "sandbox '%s' does not answer", c->sandbox->identifier);
	return err_hint(e, "try again, or restart the sandbox");
}

static int make_row(const struct exec_request *in, const struct exec_context *c,
		    struct command_row *row, struct err *e)
{
	int r = id_make("cm", row->id);

	if (r < 0)
		return err_set(e, -r, "make an id: %m");
	str_copy(row->sandbox, sizeof(row->sandbox), c->sandbox->id);
	row->command = in->args ? json_dumps(in->args, JSON_COMPACT) : strdup(in->command);
	str_copy(row->runtime, sizeof(row->runtime), in->runtime ? in->runtime : "BASH");
	str_copy(row->status, sizeof(row->status), "INPROGRESS");
	row->started = clock_wall_ms();
	return row->command ? 0 : err_set(e, ENOMEM, "out of memory");
}

/* Between write_begin and the end of this the record says INPROGRESS, and `live` knows it. */
static int run(const struct exec_request *in, const struct exec_context *c, struct command_row *row,
	       struct command **ret, char warning[256], struct err *e)
{
	_cleanup_(free_env)
	char **env = make_env(in, c, e);
	_cleanup_free_ char **argv = env ? make_argv(in, e) : NULL;
	struct agent_started started = { 0 };
	struct command_spec spec = {
		.sandbox = c->sandbox->id,
		.run = {
			.id = row->id,
			.runtime = runtime_of(in),
			.flags = in->input ? RUN_STDIN : 0,
			.timeout_ms = in->timeout_ms,
			.keep = COMMAND_KEEP,
			.cwd = in->cwd ? in->cwd : "",
			.default_cwd = c->sandbox->work_dir,
			.user = in->user ? in->user : "",
			.default_user = c->sandbox->default_user,
			.argv = argv,
			.env = env,
		},
		.stdin_data = in->input,
		.stdin_len = in->input ? strlen(in->input) : 0,
	};

	if (!argv)
		return -e->code;
	if (command_start(&spec, ret, &started, e) < 0)
		return start_refused(c, e);
	if (warning)
		snprintf(warning, 256, "%s", started.warning ? started.warning : "");
	if (write_started(row, &started, e) < 0)
		log_warn("command %s: write its start: %s", row->id, e->text);
	return 0;
}

static int begin(const struct exec_request *in, const struct exec_context *c,
		 const struct idempotency_ref *once, struct command_row *row, struct command **ret,
		 char warning[256], struct err *e)
{
	int r;

	if (c->sandbox->deleting || c->sandbox->status != RUNNING)
		return status_conflict(c->sandbox->identifier,
				       c->sandbox->deleting ? STOPPING : c->sandbox->status, e);
	r = make_row(in, c, row, e);
	if (!r)
		r = live_add(row->id) < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
	if (r < 0)
		return r;
	r = write_begin(c, row, once, e);
	if (!r) {
		r = run(in, c, row, ret, warning, e);
		if (r < 0)
			remove_record(row);
	}
	if (r < 0)
		live_remove(row->id);
	return r;
}

int exec_spawn(const struct exec_request *in, const struct exec_context *c,
	       const struct idempotency_ref *once, struct command_row *ret, struct err *e)
{
	struct command_row row = { 0 };
	struct command *live = NULL;
	int r = begin(in, c, once, &row, &live, NULL, e);

	if (r < 0) {
		command_row_release(&row);
		return r;
	}
	command_background(live, background_done, NULL);
	*ret = row;
	return 0;
}

static int client_left(const struct exec_request *in, const struct exec_context *c,
		       const struct command_row *row, struct command *live, struct err *e)
{
	struct err ignored = ERR_INIT;

	command_background(live, background_done, NULL);
	if (in->kill_on_disconnect)
		command_terminate(c->sandbox->id, row->id, SIGKILL, 0, &ignored);
	return err_set(e, ECONNABORTED, "the client left");
}

int exec_run(const struct exec_request *in, const struct exec_context *c, struct exec_outcome *ret,
	     struct err *e)
{
	struct exec_outcome out = { 0 };
	struct command_result result = { 0 };
	enum command_step step;
	struct command *live = NULL;
	uint64_t deadline;
	int r = begin(in, c, NULL, &out.row, &live, out.warning, e);

	if (r < 0) {
		command_row_release(&out.row);
		return r;
	}
	deadline = in->timeout_ms
			   ? clock_mono_ns() + (in->timeout_ms + EXEC_BACKSTOP_MS) * NS_PER_MS
			   : UINT64_MAX;
	step = command_pump(live, deadline, c->client_fd, &result);
	if (step == COMMAND_CLIENT_GONE) {
		r = client_left(in, c, &out.row, live, e);
		command_row_release(&out.row);
		return r;
	}
	if (step == COMMAND_RUNNING) {
		/* the agent owes an end and does not tell it: nobody knows what became of it */
		result = (struct command_result){ .exit_known = false };
		out.timed_out = true;
		snprintf(out.warning, sizeof(out.warning),
			 "the sandbox did not confirm the end after the time limit");
	}
	command_free(live);
	finish(&out.row, &result);
	out.timed_out = out.timed_out || str_eq(out.row.reason, "TIMED_OUT");
	/* a child's end too, which the reason does not tell */
	out.oom_killed = str_eq(out.row.reason, "OOM") || result.exit.oom;
	*ret = out;
	return 0;
}

/* -- later --------------------------------------------------------------------------------- */

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

/* -- over restarts ------------------------------------------------------------------------- */

struct ids {
	char (*id)[ID_SIZE];
	size_t count, room;
	bool failed;
};

static int collect(void *arg, struct command_row *row)
{
	struct ids *l = arg;

	if (live_has(row->id))
		return 0; /* whoever pumps it writes its end */
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		void *more = realloc(l->id, room * ID_SIZE);

		if (!more) {
			l->failed = true;
			return 1;
		}
		l->id = more;
		l->room = room;
	}
	memcpy(l->id[l->count++], row->id, ID_SIZE);
	return 0;
}

static int unattended(const char *sandbox, struct ids *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_READ, e);

	*ret = (struct ids){ 0 };
	if (!r)
		r = commands_running_each(&t, sandbox, collect, ret, e);
	if (!r && ret->failed)
		r = err_set(e, ENOMEM, "out of memory");
	if (r < 0)
		free(ret->id);
	return r;
}

static void lose(const char *sandbox, const char *id)
{
	struct command_result lost = { .exit_known = false };

	background_done(NULL, sandbox, id, &lost);
}

int exec_lose_all(const char *sandbox, struct err *e)
{
	struct ids ids;
	int r = unattended(sandbox, &ids, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ids.count; i++)
		lose(sandbox, ids.id[i]);
	free(ids.id);
	return 0;
}

int exec_adopt(const char *sandbox, struct err *e)
{
	struct ids ids;
	int r = unattended(sandbox, &ids, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ids.count; i++) {
		struct command *live = NULL;
		struct err why = ERR_INIT;

		if (live_add(ids.id[i]) < 0)
			continue;
		if (command_attach(sandbox, ids.id[i], &live, &why) == 0) {
			command_background(live, background_done, NULL);
			continue;
		}
		if (why.code != ESRCH)
			log_warn("command %s: take it up again: %s", ids.id[i], why.text);
		lose(sandbox, ids.id[i]);
	}
	free(ids.id);
	return 0;
}

int exec_prune(struct err *e)
{
	for (;;) {
		char sandbox[ID_SIZE], id[ID_SIZE];
		_cleanup_tx_ struct tx t = TX_INIT;
		struct err ignored = ERR_INIT;
		int r = tx_begin(&t, STORE_RECORD, e);

		if (!r)
			r = commands_prune(&t, sandbox, id, e);
		if (r <= 0)
			return r;
		r = tx_commit(&t, e);
		if (r < 0)
			return r;
		if (output_remove(sandbox, id, &ignored) < 0)
			log_warn("command %s: remove its output: %s", id, ignored.text);
		command_forget(sandbox, id, &ignored);
	}
}
