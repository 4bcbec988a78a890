#include "stream.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

#include "exec.h"
#include "out.h"
#include "signals.h"
#include "stream_priv.h"
#include "tty.h"

enum { TERMINATE_GRACE = 1, TERMINATE_MS = 15000 };

int stream_fail(struct stream *s, int r)
{
	s->phase = PHASE_ENDED;
	s->result = r;
	return r;
}

void stream_fault(struct stream *s)
{
	*s->e = s->fault;
	snprintf(s->c->reason, sizeof(s->c->reason), "%s", s->fault_reason);
	s->e->reason = s->c->reason;
	stream_fail(s, -s->e->code);
}

void stream_tell_where(struct stream *s)
{
	if (s->spec->first)
		err_hint(s->e, "it runs on: skerry command logs %s %s --follow", s->spec->sandbox,
			 s->id);
	else
		err_hint(s->e, "it runs on: skerry shell %s --attach %s", s->spec->sandbox, s->id);
}

/* Its connection goes first: a command that writes to nobody does not end as long as we listen. */
void stream_terminate(struct stream *s, const char *signal)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *body =
		json_pack("{s:s, s:i}", "signal", signal, "grace", TERMINATE_GRACE);
	char reason[sizeof(s->c->reason)];
	struct err ignored = ERR_INIT;

	socket_free(take_ptr(s->socket));
	if (!*s->id || s->phase == PHASE_ENDED)
		return;
	memcpy(reason, s->c->reason, sizeof(reason));
	if (api_path(s->c, &path, &ignored, "sandboxes", s->spec->sandbox, "commands", s->id,
		     "terminate", NULL) == 0)
		api_call(s->c, "POST", &path, body, TERMINATE_MS, NULL, &ignored);
	memcpy(s->c->reason, reason, sizeof(reason));
}

/* As a program ends whose reader has gone; what writes in the sandbox ends too. */
void stream_output_failed(struct stream *s, int r)
{
	tty_restore();
	stream_terminate(s, r == -EPIPE ? "PIPE" : "TERM");
	if (r == -EPIPE && !s->c->signal)
		s->c->signal = SIGPIPE;
	s->result = err_reason(s->e, r, REASON_OUTPUT, "write output: %s", strerror(-r));
	s->phase = PHASE_OVER;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t wake_ns(const struct stream *s)
{
	uint64_t wake = s->phase == PHASE_LOST ? s->retry_ns : UINT64_MAX;

	if (s->phase == PHASE_ASKED || s->phase == PHASE_RUNNING)
		wake = earlier(wake, socket_wake_ns(s->socket));
	wake = earlier(wake, stream_input_wake_ns(s));
	return earlier(wake, stream_signal_wake_ns(s));
}

/* A close without an end before it, or no close at all. */
static void hung_up(struct stream *s)
{
	if (s->phase != PHASE_ASKED && s->phase != PHASE_RUNNING)
		return;
	if (s->fault.code && (s->phase == PHASE_ASKED || socket_code(s->socket)))
		stream_fault(s);
	else
		stream_lost(s);
}

static void turn_socket(struct stream *s)
{
	socket_pause(s->socket, outlet_pending(&s->out) > STREAM_OUT_AHEAD);
	if (socket_turn(s->socket) != SOCKET_OPEN)
		hung_up(s);
	else if (s->phase == PHASE_RUNNING)
		stream_input_settle(s);
}

static void turn_signals(struct stream *s)
{
	int number;

	while (s->phase != PHASE_OVER && (number = signals_next(s->c)))
		stream_signal(s, number);
	while (s->phase != PHASE_OVER && (number = signals_read(s->terminal_fd)))
		stream_signal_terminal(s, number);
	if (s->phase != PHASE_OVER && clock_mono_ns() >= stream_signal_wake_ns(s))
		stream_signal(s, 0);
}

static void turn_output(struct stream *s)
{
	int r = outlet_flush(&s->out);

	if (r < 0)
		stream_output_failed(s, r);
	else if (s->phase == PHASE_ENDED && !outlet_pending(&s->out))
		s->phase = PHASE_OVER;
}

static void turn(struct stream *s)
{
	/* not looked at while it is paused: that it hung up would be told again and again */
	short events = s->socket && s->phase != PHASE_ENDED ? socket_events(s->socket) : 0;
	struct pollfd p[] = {
		{ .fd = events ? socket_fd(s->socket) : -1, .events = events },
		{ .fd = stream_input_fd(s), .events = POLLIN },
		{ .fd = outlet_fd(&s->out), .events = POLLOUT },
		{ .fd = s->c->client->cancel_fd, .events = POLLIN },
		{ .fd = s->terminal_fd, .events = POLLIN },
	};

	if (poll(p, ARRAY_SIZE(p), clock_left_ms(wake_ns(s))) < 0)
		p[1].revents = 0;
	turn_signals(s);
	if (s->phase == PHASE_RUNNING && p[1].revents)
		stream_input_turn(s);
	if (s->phase != PHASE_OVER)
		turn_output(s);
	if (s->phase == PHASE_ASKED || s->phase == PHASE_RUNNING)
		turn_socket(s);
	if (s->phase == PHASE_LOST && clock_mono_ns() >= s->retry_ns)
		stream_retry(s);
	if (s->phase == PHASE_ENDED || (s->phase == PHASE_RUNNING && s->out.data.failed))
		turn_output(s);
}

static int begin(struct stream *s)
{
	int r = signals_hold(s->c, s->e);

	if (!r && s->spec->tty)
		r = s->terminal_fd = signals_terminal(s->e);
	if (r < 0)
		return r;
	r = stream_open(s);
	if (r == -EINTR)
		stream_leave_running(s, signals_next(s->c));
	return r;
}

static int end(struct stream *s)
{
	int r = s->result;

	if (r < 0 || !s->exit)
		return r;
	if (s->timeout > 0)
		json_object_set_new(s->exit, "timeout", json_real(s->timeout));
	return exec_outcome(s->exit, s->spec->sandbox, s->e);
}

int stream_run(struct cli *c, const struct stream_spec *spec, struct err *e)
{
	struct stream s = {
		.c = c, .spec = spec, .e = e, .plain = !spec->first, .terminal_fd = -1
	};
	int r;

	fflush(stdout);
	outlet_init(&s.out);
	r = begin(&s);
	while (!r && s.phase != PHASE_OVER)
		turn(&s);
	if (r < 0)
		s.result = r;
	if (s.result < 0 && tty_is_raw())
		outlet_add(&s.out, STDERR_FILENO, "\r\n", 2);
	tty_restore();
	socket_free(s.socket);
	r = end(&s);
	close_p(&s.terminal_fd);
	outlet_release(&s.out);
	json_decref(s.exit);
	return r;
}
