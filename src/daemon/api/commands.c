#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "api/resources.h"
#include "api/run_fields.h"
#include "api/view.h"
#include "sandbox/identifier.h"

enum {
	PAGE_MAX = 1000,
	PAGE = 100,
	WAIT_MAX = 3600,
	GRACE_MAX = 3600,
};

const struct field exec_fields[] = {
	RUN_FIELDS,
	FIELD_SECONDS(struct exec_request, timeout_ms, "timeout", .max = EXEC_YEAR_S,
		      .absent = EXEC_TIMEOUT_MS, .about = "seconds, default 60"),
	{ 0 },
};

const struct field command_fields[] = {
	RUN_FIELDS,
	FIELD_SECONDS(struct exec_request, timeout_ms, "timeout", .max = EXEC_YEAR_S,
		      .about = "seconds, none by default"),
	{ 0 },
};

const struct field page_fields[] = {
	FIELD_STR(struct page_query, cursor, .max = 32),
	FIELD_U32(struct page_query, limit, .min = 1, .max = PAGE_MAX, .absent = PAGE),
	{ 0 },
};

const struct field command_query_fields[] = {
	FIELD_U32(struct command_query, wait, .max = WAIT_MAX,
		  .about = "seconds to wait for its end"),
	{ 0 },
};

const struct field terminate_fields[] = {
	FIELD_STR(struct terminate_request, signal, .check = signal_check,
		  .about = "the first one, default SIGTERM"),
	FIELD_U32(struct terminate_request, grace, .max = GRACE_MAX, .absent = 10,
		  .about = "seconds between the first signal and KILL"),
	{ 0 },
};

int run_check(const struct exec_request *in, struct err *e)
{
	if (!in->command == !in->args) {
		err_reason(e, EINVAL, "invalid_field",
			   in->args ? "'command' and 'args' exclude each other"
				    : "'command' is required, or 'args' instead");
		return err_field(e, "command");
	}
	if (in->args && in->runtime) {
		err_reason(e, EINVAL, "invalid_field", "'args' run without a runtime");
		return err_field(e, "runtime");
	}
	if (in->args && !json_string_length(json_array_get(in->args, 0))) {
		err_reason(e, EINVAL, "invalid_field", "'args[0]' must not be empty");
		return err_field(e, "args[0]");
	}
	return 0;
}

static int context(struct request *r, struct sandbox_row *row, struct project_row *project,
		   struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int code = run_check(r->in, e);

	if (!code)
		code = request_sandbox(r, row, e);
	if (!code)
		code = tx_begin(&t, STORE_READ, e);
	return code < 0 ? code : project_by_id(&t, row->project, project, e);
}

/* One stream's kept bytes as the members of the answer. */
static int put_output(json_t **o, const struct command_row *row, int stream, const char *name,
		      struct err *e)
{
	struct output_view view = { 0 };
	_cleanup_free_ char *data = NULL;
	char member[32];
	uint64_t kept;
	size_t have = 0;

	if (output_stat(row->sandbox, row->id, stream, &view, e) < 0)
		return -e->code;
	kept = view.head + (view.total - view.tail_at);
	if (kept > 2 * COMMAND_KEEP)
		return err_set(e, EIO, "kept output is larger than it can be");
	data = malloc(kept + 1);
	if (!data)
		return err_set(e, ENOMEM, "out of memory");
	while (have < kept) {
		uint64_t at = have < view.head ? have : view.tail_at + (have - view.head);
		size_t want = have < view.head ? view.head - have : kept - have;
		ssize_t n = output_read(row->sandbox, row->id, stream, at, data + have, want, e);

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	put(o, name, json_any_string(data, have));
	snprintf(member, sizeof(member), "%s_bytes", name);
	put(o, member, json_integer((json_int_t)view.total));
	snprintf(member, sizeof(member), "%s_truncated", name);
	put(o, member, json_boolean(view.total > have));
	if (!utf8_valid(data, have)) {
		snprintf(member, sizeof(member), "%s_base64", name);
		put(o, member, json_base64(data, have));
	}
	return 0;
}

static int view_exec(const struct exec_request *in, const struct exec_outcome *out, json_t **ret,
		     struct err *e)
{
	const struct command_row *row = &out->row;
	json_t *o = json_object(), *warnings = json_array();
	char signal[24];
	int r;

	if (*out->warning)
		json_array_append_new(warnings,
				      json_any_string(out->warning, strlen(out->warning)));
	put(&o, "id", json_string(row->id));
	put(&o, "command", json_any_string(row->command, strlen(row->command)));
	put(&o, "runtime", json_string(row->runtime));
	put(&o, "status", json_string(row->status));
	put(&o, "reason", json_string(row->reason));
	if (row->exit_known)
		put(&o, "exit_code", json_integer(row->exit_code));
	if (row->signal) {
		signal_text(row->signal, signal);
		put(&o, "signal", json_string(signal));
	}
	put(&o, "timeout", json_real((double)in->timeout_ms / 1000));
	put(&o, "timed_out", json_boolean(out->timed_out));
	put(&o, "oom_killed", json_boolean(row->oom));
	put(&o, "duration_ms", json_integer(row->duration_ms));
	put(&o, "warnings", warnings);
	r = put_output(&o, row, 1, "stdout", e);
	if (!r)
		r = put_output(&o, row, 2, "stderr", e);
	if (!r && !o)
		r = err_set(e, ENOMEM, "out of memory");
	if (r < 0) {
		json_decref(o);
		return r;
	}
	*ret = o;
	return 0;
}

/* A promise that could not be kept is refused: the edge decides by the body's text. */
static int check_watched(const struct request *r, struct err *e)
{
	const struct exec_request *in = r->in;

	if (!in->kill_on_disconnect || !r->edge || str_eq(r->edge, "watched"))
		return 0;
	err_reason(e, EINVAL, "not_watched",
		   "'kill_on_disconnect' must be written plainly, within the first 32 KiB of the "
		   "body");
	err_hint(e, "put it before the other fields");
	return err_field(e, "kill_on_disconnect");
}

int handle_exec(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct exec_outcome out = { 0 };
	struct project_row project;
	int code = check_watched(r, e);

	if (!code)
		code = context(r, &row, &project, e);
	if (!code)
		code = exec_run(r->in,
				&(struct exec_context){ &row, &project, &r->actor, r->client_fd },
				&out, e);
	if (!code)
		code = view_exec(r->in, &out, &r->answer, e);
	command_row_release(&out.row);
	return code;
}

int handle_command_create(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	_cleanup_command_row_ struct command_row made = { 0 };
	const struct exec_request *in = r->in;
	struct project_row project;
	int code;

	if (in->kill_on_disconnect) {
		err_reason(e, EINVAL, "invalid_field",
			   "nobody waits on a command in the background: use POST …/exec");
		return err_field(e, "kill_on_disconnect");
	}
	code = context(r, &row, &project, e);
	if (!code)
		code = exec_spawn(in, &(struct exec_context){ &row, &project, &r->actor, -1 },
				  r->once.key ? &r->once : NULL, &made, e);
	if (code < 0)
		return code;
	r->answer = view_command(&row, &made);
	return 0;
}

struct page {
	const struct sandbox_row *sandbox;
	json_t *list;
	uint32_t limit;
	int64_t last;
	bool more;
};

static int add_record(void *arg, struct command_row *row)
{
	struct page *p = arg;

	if (json_array_size(p->list) == p->limit) {
		p->more = true;
		return 1;
	}
	p->last = row->seq;
	return json_array_append_new(p->list, view_command(p->sandbox, row)) < 0;
}

int handle_command_list(struct request *r, struct err *e)
{
	const struct page_query *q = r->in_query;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	_cleanup_tx_ struct tx t = TX_INIT;
	struct page p = { .sandbox = &row, .limit = q->limit };
	char cursor[24];
	uint64_t before = 0;
	int code = request_sandbox(r, &row, e);

	if (code < 0)
		return code;
	if (q->cursor && str_u64(q->cursor, 1, INT64_MAX, &before) < 0) {
		err_reason(e, EINVAL, "invalid_field",
			   "the cursor is not one that a list answered");
		return err_field(e, "cursor");
	}
	code = tx_begin(&t, STORE_READ, e);
	if (code < 0)
		return code;
	p.list = json_array();
	code = commands_each(&t, row.id, (int64_t)before, add_record, &p, e);
	if (code < 0) {
		json_decref(p.list);
		return code;
	}
	r->answer = json_object();
	put(&r->answer, "commands", p.list);
	if (p.more) {
		snprintf(cursor, sizeof(cursor), "%lld", (long long)p.last);
		put(&r->answer, "next_cursor", json_string(cursor));
	}
	return 0;
}

int handle_command_get(struct request *r, struct err *e)
{
	const struct command_query *q = r->in_query;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	_cleanup_command_row_ struct command_row command = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = exec_wait(row.id, r->params[2], clock_mono_ns() + q->wait * NS_PER_SEC,
				 r->client_fd, &command, e);
	if (code < 0)
		return code;
	r->answer = view_command(&row, &command);
	return 0;
}

int handle_command_terminate(struct request *r, struct err *e)
{
	const struct terminate_request *in = r->in;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	_cleanup_command_row_ struct command_row command = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = exec_terminate(&row, r->params[2],
				      in->signal ? signal_number(in->signal) : SIGTERM,
				      in->grace * 1000, &r->actor, &command, e);
	if (code < 0)
		return code;
	r->answer = view_command(&row, &command);
	return 0;
}

const struct field signal_fields[] = {
	FIELD_STR(struct signal_request, signal, .required = true, .check = signal_check),
	{ 0 },
};

int handle_command_signal(struct request *r, struct err *e)
{
	const struct signal_request *in = r->in;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = exec_signal(&row, r->params[2], signal_number(in->signal), &r->actor, e);
	return code;
}
