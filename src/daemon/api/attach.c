#include "api/attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "api/errors.h"
#include "api/view.h"
#include "sandbox/identifier.h"
#include "sandbox/lifecycle.h"

enum {
	BLOCK = WEBSOCKET_FRAME_MAX - 1, /* bytes of output in one frame */
	HURRY_MS = 200,
	OUT_AHEAD = 256 * 1024,   /* bytes given to a client that has not taken them */
	INPUT_AHEAD = 256 * 1024, /* bytes taken from a client for a command that does not read */
};

static const char *const stream_names[] = { "stdout", "stderr" };

int attach_sandbox(struct request *r, struct sandbox_row *row, struct project_row *project,
		   struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int code = request_sandbox(r, row, e);

	if (!code && (row->deleting || row->status != RUNNING))
		code = status_conflict(row->identifier, row->deleting ? STOPPING : row->status, e);
	if (!code)
		code = tx_begin(&t, STORE_READ, e);
	return code < 0 ? code : project_by_id(&t, row->project, project, e);
}

void attach_error(struct attach *a, const struct err *e, bool final)
{
	json_t *list = error_json(e), *o = json_object();

	put(&o, "type", json_string("error"));
	put(&o, "status", json_integer(error_status(e)));
	if (o)
		json_object_update(o, json_array_get(json_object_get(list, "errors"), 0));
	json_decref(list);
	if (error_status(e) == 500)
		log_error("request %s: %s", a->r->id, e->text);
	websocket_json(a->ws, o);
	if (final)
		websocket_close(a->ws, error_status(e) < 500 ? WEBSOCKET_REFUSED : WEBSOCKET_FAULT);
}

static json_t *message(const struct attach *a, const char *type)
{
	json_t *o = json_object(), *record = view_command(&a->sandbox, &a->row);

	put(&o, "type", json_string(type));
	if (o && record)
		json_object_update(o, record);
	json_decref(record);
	return record ? o : NULL;
}

static command_sink on_output;

void attach_started(struct attach *a, const char *warning, uint64_t timeout_ms)
{
	json_t *o = message(a, "started"), *warnings = json_array();

	if (*warning)
		json_array_append_new(warnings, json_any_string(warning, strlen(warning)));
	put(&o, "warnings", warnings);
	if (timeout_ms)
		put(&o, "timeout", json_real((double)timeout_ms / 1000));
	for (int s = 0; s < 2; s++)
		output_reader_init(&a->out[s], a->sandbox.id, a->row.id, s + 1);
	websocket_json(a->ws, o);
	if (a->live)
		command_set_sink(a->live, on_output, a);
}

/* -- the command's output ------------------------------------------------------------------------ */

/* The client has all before `offset` of this stream, or is told of it. */
static void tell_gap(struct attach *a, int s, uint64_t offset)
{
	if (offset <= a->at[s])
		return;
	websocket_json(a->ws, json_pack("{ss ss sI}", "type", "dropped", "stream", stream_names[s],
					"bytes", (json_int_t)(offset - a->at[s])));
	a->at[s] = offset;
}

/* From the pump. */
static void on_output(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
	struct attach *a = arg;
	const char channel = (char)stream;

	tell_gap(a, stream - 1, offset);
	websocket_bytes(a->ws, a->plain ? NULL : &channel, data, len);
	a->at[stream - 1] = offset + len;
}

/* The next frame of a stream. 1: one was sent, 0: nothing there. */
static int send_block(struct attach *a, int s, struct err *e)
{
	const char channel = (char)(s + 1);
	struct output_view v = { 0 };
	char data[BLOCK];
	ssize_t n;
	int code = output_reader_stat(&a->out[s], &v, e);

	if (code < 0)
		return code;
	if (a->at[s] >= v.head && a->at[s] < v.tail_at)
		tell_gap(a, s, v.tail_at);
	if (a->at[s] >= v.total)
		return 0;
	n = output_reader_read(&a->out[s], a->at[s], data, sizeof(data), e);
	if (n < 0)
		return (int)n;
	if (n)
		websocket_bytes(a->ws, a->plain ? NULL : &channel, data, (size_t)n);
	a->at[s] += (uint64_t)n;
	return 1; /* n is 0 where the ring was overwritten meanwhile: the view tells more */
}

/* As much as the client is given ahead. 1: all that is there now. */
static int send_output(struct attach *a, struct err *e)
{
	const uint64_t before[2] = { a->at[0], a->at[1] };
	bool more = true;

	while (more && websocket_pending(a->ws) < OUT_AHEAD) {
		more = false;
		for (int s = 0; s < 2; s++) {
			int code = send_block(a, s, e);

			if (code < 0)
				return code;
			more |= code;
		}
	}
	if (before[0] != a->at[0] || before[1] != a->at[1])
		live_passed(&a->viewer, a->at);
	return !more;
}

/* `total`: bytes of each stream that the command wrote. */
static void send_exit(struct attach *a, const uint64_t total[2])
{
	json_t *o = message(a, "exit");

	a->told = true;
	put(&o, "timed_out", json_boolean(str_eq(a->row.reason, "TIMED_OUT")));
	put(&o, "oom_killed", json_boolean(a->row.oom));
	put(&o, "stdout_bytes", json_integer((json_int_t)total[0]));
	put(&o, "stderr_bytes", json_integer((json_int_t)total[1]));
	websocket_json(a->ws, o);
	websocket_close(a->ws, WEBSOCKET_DONE);
}

/* A client that takes nothing does not hold the command up for ever: it is pumped by others then,
 * and this client follows as far as it can. */
static void leave_pump(struct attach *a, bool patience_is_over)
{
	struct command *live = a->live;
	struct err e = ERR_INIT;

	a->live = NULL;
	if (patience_is_over && live_view(&a->viewer, a->row.id, a->at, true, &e) < 0)
		attach_error(a, &e, true);
	a->viewer.released = true;
	exec_stream_leave(live);
}

static bool may_pump(const struct attach *a)
{
	return a->live && websocket_pending(a->ws) < OUT_AHEAD;
}

static void pump(struct attach *a, short revents)
{
	struct command_result result;
	uint64_t now = clock_mono_ns();

	if (!may_pump(a)) {
		if (a->live && (now >= websocket_moved_ns(a->ws) + LIVE_PATIENCE_MS * NS_PER_MS ||
				live_hurried(a->row.id)))
			leave_pump(a, true);
		return;
	}
	command_turn(a->live, revents, now);
	if (!command_ended(a->live, &result))
		return;
	for (int s = 0; s < 2; s++)
		tell_gap(a, s, result.exit.total[s]);
	exec_stream_end(a->live, &a->row, &result);
	a->live = NULL;
	send_exit(a, result.exit.total);
}

/* What is final now. */
static int end_view(struct attach *a, uint64_t total[2], struct err *e)
{
	int code = 0;

	for (int s = 0; !code && s < 2; s++) {
		struct output_view v = { 0 };

		code = output_reader_stat(&a->out[s], &v, e);
		total[s] = v.total;
	}
	if (code < 0)
		return code;
	command_row_release(&a->row);
	return exec_get(a->sandbox.id, a->out[0].id, &a->row, e);
}

static void follow(struct attach *a)
{
	uint64_t total[2];
	/* asked before the files are read: an end means that they are final */
	bool ended = !live_more(&a->viewer);
	struct err e = ERR_INIT;
	int all = send_output(a, &e);

	if (all < 0) {
		attach_error(a, &e, true);
		return;
	}
	if (!ended || !all)
		return;
	if (end_view(a, total, &e) < 0)
		attach_error(a, &e, true); /* its sandbox was deleted meanwhile */
	else
		send_exit(a, total);
}

/* -- what the client sends ----------------------------------------------------------------------- */

struct word {
	const char *type, *signal;
	uint32_t cols, rows;
};

static const char *const word_types[] = { "eof", "signal", "resize", NULL };

static const struct field word_fields[] = {
	FIELD_ENUM(struct word, type, word_types, .required = true),
	FIELD_STR(struct word, signal, .check = signal_check),
	FIELD_U32(struct word, cols, .max = AGENT_TERMINAL_MAX),
	FIELD_U32(struct word, rows, .max = AGENT_TERMINAL_MAX),
	{ 0 },
};

/* What became of the input's connection: not an end of the session. */
static void input_failed(struct attach *a, struct err *e)
{
	a->input_over = true;
	command_input_release(&a->input);
	websocket_pause(a->ws, false);
	exec_input_err(&a->sandbox, a->row.id, e);
	/* a command that ended early has what it wanted */
	if (!str_eq(e->reason ? e->reason : "", "command_ended"))
		attach_error(a, e, false);
}

static bool input_open(struct attach *a)
{
	struct err e = ERR_INIT;

	if (a->input_over || command_input_is_open(&a->input))
		return !a->input_over;
	if (command_input_open(&a->input, a->sandbox.id, a->row.id, &e) < 0)
		input_failed(a, &e);
	return !a->input_over;
}

static void input_turn(struct attach *a, short revents)
{
	struct err e = ERR_INIT;
	int code;

	if (!command_input_is_open(&a->input))
		return;
	code = command_input_turn(&a->input, revents, &e);
	if (code < 0) {
		input_failed(a, &e);
	} else if (code > 0) {
		a->input_over = true;
		command_input_release(&a->input);
	}
	websocket_pause(a->ws, command_input_pending(&a->input) > INPUT_AHEAD);
}

/* On a terminal it is one thing more that is typed. */
static void end_input(struct attach *a)
{
	if (a->row.terminal)
		command_input_eof(&a->input);
	else
		command_input_end(&a->input, true);
}

static int take_word(struct attach *a, const struct word *w, struct err *e)
{
	if (str_eq(w->type, "eof")) {
		if (input_open(a))
			end_input(a);
		return 0;
	}
	if (str_eq(w->type, "resize"))
		return exec_resize(&a->sandbox, a->row.id, w->cols ? w->cols : TERMINAL_COLS,
				   w->rows ? w->rows : TERMINAL_ROWS, e);
	if (!w->signal) {
		err_reason(e, EINVAL, "invalid_field", "'signal' is required");
		return err_field(e, "signal");
	}
	return exec_signal(&a->sandbox, a->row.id, signal_number(w->signal), &a->r->actor, e);
}

/* Nothing was done for it yet, or something it asks for cannot be done. */
static void take_text(struct attach *a, const char *text, size_t len)
{
	json_t *object = NULL;
	struct word w = { 0 };
	struct err e = ERR_INIT;

	if (json_parse_object(text, len, &object, &e) < 0 ||
	    fields_decode(word_fields, object, &w, &e) < 0)
		attach_error(a, &e, true);
	else if (take_word(a, &w, &e) < 0)
		attach_error(a, &e, false);
	json_decref(object);
}

static void on_text(void *arg, const char *text, size_t len)
{
	struct attach *a = arg;
	struct err e = ERR_INIT;

	if (websocket_closing(a->ws))
		return;
	if (a->row.id[0])
		take_text(a, text, len);
	else if (a->first(a, text, len, &e) < 0)
		attach_error(a, &e, true);
}

static void on_bytes(void *arg, const void *data, size_t len)
{
	const char *bytes = data;
	struct attach *a = arg;
	struct err e = ERR_INIT;

	if (websocket_closing(a->ws))
		return;
	if (!a->row.id[0] || (!a->plain && (!len || bytes[0]))) {
		err_reason(&e, EINVAL, "bad_request",
			   a->row.id[0] ? "a binary frame begins with the channel 0, stdin"
					: "the first frame is text: what to run");
		attach_error(a, &e, true);
		return;
	}
	if (!input_open(a))
		return;
	if (a->input.ending) {
		err_reason(&e, EBUSY, "stdin_closed",
			   "standard input has ended: 'eof' came before");
		attach_error(a, &e, false);
		return;
	}
	if (command_input_add(&a->input, bytes + !a->plain, len - !a->plain, &e) < 0)
		input_failed(a, &e);
	else /* the next message may lie ready */
		websocket_pause(a->ws, command_input_pending(&a->input) > INPUT_AHEAD);
}

/* -- the session --------------------------------------------------------------------------------- */

struct attach *attach_new(struct request *r, int fd, const void *early, size_t early_len)
{
	static const struct websocket_handler handler = { on_text, on_bytes };
	struct attach *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	*a = (struct attach){ .r = r, .viewer = LIVE_VIEWER_INIT, .wait_ns = UINT64_MAX };
	a->out[0].fd = a->out[1].fd = -1;
	command_input_init(&a->input);
	a->ws = websocket_new(fd, early, early_len, &handler, a);
	if (!a->ws) {
		free(a);
		return NULL;
	}
	return a;
}

static void attach_free(struct attach *a)
{
	live_view_end(&a->viewer);
	for (int s = 0; s < 2; s++)
		output_reader_release(&a->out[s]);
	command_input_release(&a->input);
	websocket_free(a->ws);
	command_row_release(&a->row);
	sandbox_row_release(&a->sandbox);
	free(a);
}

static void first_is_late(struct attach *a)
{
	struct err e = ERR_INIT;

	err_reason(&e, ETIME, "request_timeout", "no frame said in time what to run");
	attach_error(a, &e, true);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t wake_ns(const struct attach *a)
{
	uint64_t wake = websocket_wake_ns(a->ws);

	if (!a->row.id[0])
		return earlier(wake, a->wait_ns);
	if (may_pump(a))
		return earlier(wake, command_wake_ns(a->live));
	if (a->live) /* looks whether its end is wanted */
		return earlier(wake, clock_mono_ns() + HURRY_MS * NS_PER_MS);
	return wake;
}

/* Waits for whatever moves next, and moves it. */
static void wait_turn(struct attach *a)
{
	bool follows = !a->live && !a->told && websocket_pending(a->ws) < OUT_AHEAD;
	struct pollfd p[] = {
		{ .fd = websocket_fd(a->ws), .events = websocket_events(a->ws) },
		{ .fd = follows ? a->viewer.event : -1, .events = POLLIN },
		{ .fd = a->input.conn.fd, .events = command_input_events(&a->input) },
		{ .fd = may_pump(a) ? command_fd(a->live) : -1,
		  .events = a->live ? command_events(a->live) : 0 },
	};

	if (poll(p, ARRAY_SIZE(p), clock_left_ms(wake_ns(a))) <= 0)
		p[0].revents = p[2].revents = p[3].revents = 0;
	websocket_turn(a->ws, p[0].revents);
	input_turn(a, p[2].revents);
	if (a->live) {
		pump(a, p[3].revents);
		websocket_turn(a->ws, 0); /* what came goes out at once */
	}
}

void attach_run(struct attach *a)
{
	struct err ignored = ERR_INIT;

	while (!websocket_over(a->ws)) {
		if (a->row.id[0] && !a->live && !a->told && !websocket_closing(a->ws))
			follow(a);
		wait_turn(a);
		if (!a->row.id[0] && !websocket_closing(a->ws) && clock_mono_ns() >= a->wait_ns)
			first_is_late(a);
	}
	if (a->live)
		leave_pump(a, false);
	if (a->kill && a->row.id[0] && !a->told)
		command_terminate(a->sandbox.id, a->row.id, SIGKILL, 0, &ignored);
	websocket_linger(a->ws);
	attach_free(a);
}
