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

#include "sandbox/command_input.h"
#include "sandbox/exec_priv.h"
#include "sandbox/identifier.h"
#include "sandbox/lifecycle.h"
#include "sandbox/live.h"
#include "sandbox/sandbox.h"

enum { OUR_ENV = 4 };

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
	row->oom = result->exit_known && (result->exit.oom || reason == REASON_OOM);
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
void exec_background_done(void *arg, const char *sandbox, const char *id,
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

	if (!env || (in->term && add_env(&at, "TERM", in->term, e) < 0) ||
	    add_env(&at, "SKERRY_SANDBOX", c->sandbox->id, e) < 0 ||
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
	const char *script = in->shell ? "" : in->command;
	size_t n = in->args ? json_array_size(in->args) : 1;
	char **argv = calloc(n + 1, sizeof(*argv));

	if (!argv) {
		err_set(e, ENOMEM, "out of memory");
		return NULL;
	}
	/* borrowed from the request, which outlives the start */
	for (size_t i = 0; i < n; i++)
		argv[i] = (char *)(in->args ? json_string_value(json_array_get(in->args, i))
					    : script);
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
	if (in->shell)
		return RUNTIME_SHELL;
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
	if (in->shell)
		row->command = strdup("terminal");
	else
		row->command = in->args ? json_dumps(in->args, JSON_COMPACT) : strdup(in->command);
	row->terminal = in->cols != 0;
	row->keep_awake = in->keep_awake;
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
			.flags = (in->input ? RUN_STDIN : 0u) | (in->cols ? RUN_TERMINAL : 0u),
			.timeout_ms = in->timeout_ms,
			.keep = COMMAND_KEEP,
			.cwd = in->cwd ? in->cwd : "",
			.default_cwd = c->sandbox->work_dir,
			.user = in->user ? in->user : "",
			.default_user = c->sandbox->default_user,
			.argv = argv,
			.env = env,
			.cols = (uint16_t)in->cols,
			.rows = (uint16_t)in->rows,
		},
		.stdin_open = in->stdin_open || in->cols,
	};

	if (!argv)
		return -e->code;
	if (in->input && !spec.stdin_open) {
		spec.stdin_data = in->input;
		spec.stdin_len = strlen(in->input);
	}
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

/* Of a standard input that stays open: the agent holds as much as a request can bring. */
static int put_first_input(const struct exec_request *in, const struct command_row *row,
			   struct err *e)
{
	uint64_t deadline = clock_mono_ns() + AGENT_ANSWER_MS * NS_PER_MS;
	struct command_input input;
	int r;

	if (!in->input || !*in->input || !(in->stdin_open || in->cols))
		return 0;
	command_input_init(&input);
	r = command_input_open(&input, row->sandbox, row->id, e);
	if (!r)
		r = command_input_add(&input, in->input, strlen(in->input), e);
	if (!r) {
		command_input_end(&input, false);
		r = command_input_wait(&input, 0, -1, deadline, e);
	}
	command_input_release(&input);
	/* one that has ended already did not want it */
	return r < 0 && !str_eq(e->reason ? e->reason : "", "command_ended") ? r : 0;
}

/* It runs, and cannot be given what it was promised. */
static int give_up(const struct command_row *row, struct command *live, struct err *e)
{
	struct err ignored = ERR_INIT;

	command_background(live, exec_background_done, NULL);
	command_terminate(row->sandbox, row->id, SIGKILL, 0, &ignored);
	e->code = EHOSTDOWN;
	return -e->code;
}

int exec_stream(const struct exec_request *in, const struct exec_context *c,
		struct command **ret_live, struct command_row *ret, char warning[256],
		struct err *e)
{
	struct command_row row = { 0 };
	struct command *live = NULL;
	int r = begin(in, c, NULL, &row, &live, warning, e);

	if (!r && put_first_input(in, &row, e) < 0)
		r = give_up(&row, live, e);
	if (r < 0) {
		command_row_release(&row);
		return r;
	}
	*ret_live = live;
	*ret = row;
	return 0;
}

void exec_stream_end(struct command *live, struct command_row *row,
		     const struct command_result *result)
{
	command_free(live);
	finish(row, result);
}

void exec_stream_leave(struct command *live)
{
	command_set_sink(live, NULL, NULL);
	command_background(live, exec_background_done, NULL);
}

int exec_spawn(const struct exec_request *in, const struct exec_context *c,
	       const struct idempotency_ref *once, struct command_row *ret, struct err *e)
{
	struct command_row row = { 0 };
	struct command *live = NULL;
	int r = begin(in, c, once, &row, &live, NULL, e);

	if (!r && put_first_input(in, &row, e) < 0)
		r = give_up(&row, live, e);
	if (r < 0) {
		command_row_release(&row);
		return r;
	}
	command_background(live, exec_background_done, NULL);
	*ret = row;
	return 0;
}

static int client_left(const struct exec_request *in, const struct exec_context *c,
		       const struct command_row *row, struct command *live, struct err *e)
{
	struct err ignored = ERR_INIT;

	command_background(live, exec_background_done, NULL);
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
	if (put_first_input(in, &out.row, e) < 0) {
		r = give_up(&out.row, live, e);
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
	*ret = out;
	return 0;
}
