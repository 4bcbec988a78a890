/* GET exec: a command whose output streams while it runs, or one that is taken up again. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "api/attach.h"
#include "api/run_fields.h"

enum { FIRST_MS = 10000 };

struct first_frame {
	struct exec_request run; /* at the start: the rows of RUN_FIELDS know their place in it */
	bool tty;
	uint32_t cols, rows;
	const char *id;
	uint64_t stdout, stderr;
};

static const struct field offset_fields[] = {
	FIELD_U64(struct first_frame, stdout),
	FIELD_U64(struct first_frame, stderr),
	{ 0 },
};

static const struct field first_fields[] = {
	RUN_FIELDS,
	FIELD_SECONDS(struct exec_request, timeout_ms, "timeout", .max = EXEC_YEAR_S),
	FIELD_BOOL(struct first_frame, tty, .absent = false),
	FIELD_U32(struct first_frame, cols, .max = AGENT_TERMINAL_MAX),
	FIELD_U32(struct first_frame, rows, .max = AGENT_TERMINAL_MAX),
	FIELD_STR(struct first_frame, id, .min = 1, .max = ID_LEN),
	FIELD_OBJECT("offset", offset_fields),
	{ 0 },
};

/* What would have no effect is refused. */
static int check_start(const struct first_frame *f, const json_t *object, struct err *e)
{
	const char *field = f->cols ? "cols" : "rows";

	if (json_object_get(object, "offset")) {
		err_reason(e, EINVAL, "invalid_field",
			   "'offset' belongs to the 'id' of a command that runs");
		return err_field(e, "offset");
	}
	if (!f->tty && (f->cols || f->rows)) {
		err_reason(e, EINVAL, "invalid_field",
			   "'%s' is the size of a terminal: it goes "
			   "with 'tty'",
			   field);
		return err_field(e, "%s", field);
	}
	return run_check(&f->run, e);
}

static int start(struct attach *a, struct first_frame *f, const json_t *object, struct err *e)
{
	const struct exec_context c = { &a->sandbox, &a->project, &a->r->actor, -1 };
	char warning[256] = "";
	int code = check_start(f, object, e);

	if (f->tty) {
		f->run.cols = f->cols ? f->cols : TERMINAL_COLS;
		f->run.rows = f->rows ? f->rows : TERMINAL_ROWS;
	} else if (!f->run.timeout_ms) {
		f->run.timeout_ms = EXEC_TIMEOUT_MS;
	}
	if (!code)
		code = exec_stream(&f->run, &c, &a->live, &a->row, warning, e);
	if (code < 0)
		return code;
	a->kill = f->run.kill_on_disconnect;
	attach_started(a, warning, f->run.timeout_ms);
	return 0;
}

/* Nothing of how it was started can be said again. */
static int check_alone(const json_t *object, struct err *e)
{
	json_t *value;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		if (str_eq(key, "id") || str_eq(key, "offset"))
			continue;
		err_reason(e, EINVAL, "invalid_field",
			   "'id' attaches to a command that runs: '%s' "
			   "belongs to a new one",
			   key);
		return err_field(e, "%s", key);
	}
	return 0;
}

/* Nobody can have more of a command that has ended than it wrote. */
static int check_offset(const struct command_row *row, const char *sandbox, const uint64_t at[2],
			struct err *e)
{
	static const char *const names[] = { "offset.stdout", "offset.stderr" };
	int code = 0;

	for (int s = 0; !code && s < 2 && !str_eq(row->status, "INPROGRESS"); s++) {
		struct output_view v = { 0 };
		struct output_reader out;

		output_reader_init(&out, sandbox, row->id, s + 1);
		code = output_reader_stat(&out, &v, e);
		output_reader_release(&out);
		if (!code && at[s] > v.total) {
			err_reason(e, EINVAL, "invalid_field",
				   "'%s' is %llu, and command '%s' wrote %llu bytes", names[s],
				   (unsigned long long)at[s], row->id, (unsigned long long)v.total);
			code = err_field(e, "%s", names[s]);
		}
	}
	return code;
}

static int attach_again(struct attach *a, const struct first_frame *f, const json_t *object,
			struct err *e)
{
	const uint64_t at[2] = { f->stdout, f->stderr };
	struct command_row row = { 0 };
	int code = check_alone(object, e);

	if (!code)
		code = exec_get(a->sandbox.id, f->id, &row, e);
	if (!code)
		code = check_offset(&row, a->sandbox.id, at, e);
	if (!code)
		code = live_view(&a->viewer, f->id, at, true, e);
	if (code < 0) {
		command_row_release(&row);
		return code;
	}
	a->row = row;
	a->at[0] = at[0];
	a->at[1] = at[1];
	attach_started(a, "", 0);
	return 0;
}

static int first(struct attach *a, const char *text, size_t len, struct err *e)
{
	struct first_frame f = { 0 };
	json_t *object = NULL;
	int code = json_parse_object(text, len, &object, e);

	if (!code)
		code = fields_decode(first_fields, object, &f, e);
	if (!code && f.id)
		code = attach_again(a, &f, object, e);
	else if (!code)
		code = start(a, &f, object, e);
	json_decref(object);
	return code;
}

static int exec_open(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct project_row project;

	return attach_sandbox(r, &row, &project, e);
}

static void exec_run_socket(struct request *r, int fd, const void *early, size_t early_len)
{
	struct attach *a = attach_new(r, fd, early, early_len);
	struct err e = ERR_INIT;

	if (!a)
		return;
	a->first = first;
	a->wait_ns = clock_mono_ns() + FIRST_MS * NS_PER_MS;
	if (attach_sandbox(r, &a->sandbox, &a->project, &e) < 0)
		attach_error(a, &e, true);
	attach_run(a);
}

const struct socket_route exec_socket = { exec_open, exec_run_socket };
