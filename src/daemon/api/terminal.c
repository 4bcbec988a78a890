/* GET terminal: a login shell on a terminal of its own, or one that runs already. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"

#include "api/attach.h"
#include "api/resources.h"
#include "sandbox/identifier.h"

enum { REPLAY = 64 * 1024 }; /* bytes that a client who attaches again is shown */

static int term_check(const char *s, struct err *e)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+._-");

	return *s && !s[n]
		       ? 0
		       : err_reason(e, EINVAL, "invalid_field",
				    "the name of a terminal has characters of A-Z a-z 0-9 + . _ -");
}

static int id_check(const char *s, struct err *e)
{
	return id_valid(s, "cm") ? 0
				 : err_reason(e, EINVAL, "invalid_field",
					      "a terminal's id is that of its command");
}

const struct field terminal_fields[] = {
	FIELD_U32(struct terminal_query, cols, .max = AGENT_TERMINAL_MAX, .about = "default 80"),
	FIELD_U32(struct terminal_query, rows, .max = AGENT_TERMINAL_MAX, .about = "default 24"),
	FIELD_STR(struct terminal_query, user, .min = 1, .max = 64),
	FIELD_STR(struct terminal_query, cwd, .min = 1, .max = 1023, .check = path_check),
	FIELD_STR(struct terminal_query, term, .min = 1, .max = 64, .check = term_check,
		  .about = "default xterm-256color"),
	FIELD_STR(struct terminal_query, id, .check = id_check, .about = "attach to this one"),
	{ 0 },
};

static int start(struct attach *a, const struct terminal_query *q, struct err *e)
{
	const struct exec_context c = { &a->sandbox, &a->project, &a->r->actor, -1 };
	const struct exec_request in = {
		.shell = true,
		.user = q->user,
		.cwd = q->cwd,
		.term = q->term,
		.cols = q->cols ? q->cols : TERMINAL_COLS,
		.rows = q->rows ? q->rows : TERMINAL_ROWS,
	};
	char warning[256] = "";
	int code = exec_stream(&in, &c, &a->live, &a->row, warning, e);

	if (!code)
		attach_started(a, warning, 0);
	return code;
}

static int find(const struct sandbox_row *sandbox, const char *id, struct command_row *ret,
		struct err *e)
{
	int code = exec_get(sandbox->id, id, ret, e);

	if (code < 0 || ret->terminal)
		return code;
	command_row_release(ret);
	err_reason(e, EINVAL, "not_a_terminal", "command '%s' has no terminal", id);
	return err_field(e, "id");
}

/* Where the replay begins: behind a line, where one ends in it. */
static uint64_t replay_from(struct output_reader *out, struct err *e)
{
	char data[REPLAY];
	struct output_view v = { 0 };
	uint64_t from;
	ssize_t n;
	char *line;

	if (output_reader_stat(out, &v, e) < 0 || v.total <= REPLAY)
		return 0;
	from = v.total - REPLAY;
	if (from >= v.head && from < v.tail_at)
		return v.tail_at;
	n = output_reader_read(out, from, data, sizeof(data), e);
	line = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;
	return line ? from + (uint64_t)(line - data) + 1 : from;
}

static int attach_again(struct attach *a, const struct terminal_query *q, struct err *e)
{
	struct output_reader out;
	int code = find(&a->sandbox, q->id, &a->row, e);

	if (code < 0)
		return code;
	output_reader_init(&out, a->sandbox.id, q->id, 1);
	a->at[0] = replay_from(&out, e);
	output_reader_release(&out);
	code = live_view(&a->viewer, q->id, a->at, true, e);
	if (code < 0)
		return code;
	attach_started(a, "", 0);
	/* also where the size is the same: what is on the screen is drawn anew */
	if (q->cols && q->rows)
		exec_resize(&a->sandbox, q->id, q->cols, q->rows, e);
	return 0;
}

/* How a terminal was started cannot be said again. */
static int check_query(const struct terminal_query *q, struct err *e)
{
	const char *field = q->user ? "user" : q->cwd ? "cwd" : q->term ? "term" : NULL;

	if (!q->id || !field)
		return 0;
	err_reason(e, EINVAL, "invalid_field",
		   "'id' attaches to a terminal that runs: '%s' belongs to a new one", field);
	return err_field(e, "%s", field);
}

static int terminal_open(struct request *r, struct err *e)
{
	const struct terminal_query *q = r->in_query;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	_cleanup_command_row_ struct command_row command = { 0 };
	struct project_row project;
	int code = check_query(q, e);

	if (!code)
		code = attach_sandbox(r, &row, &project, e);
	return !code && q->id ? find(&row, q->id, &command, e) : code;
}

static void terminal_run(struct request *r, int fd, const void *early, size_t early_len)
{
	const struct terminal_query *q = r->in_query;
	struct attach *a = attach_new(r, fd, early, early_len);
	struct err e = ERR_INIT;
	int code;

	if (!a)
		return;
	a->plain = true;
	code = attach_sandbox(r, &a->sandbox, &a->project, &e);
	if (!code)
		code = q->id ? attach_again(a, q, &e) : start(a, q, &e);
	if (code < 0)
		attach_error(a, &e, true);
	attach_run(a);
}

const struct socket_route terminal_socket = { terminal_open, terminal_run };
