/*
 * Signals of ours are the command's: it decides what they mean. Who asks twice within two seconds
 * means us.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

#include "stream_priv.h"
#include "tty.h"

enum { TWICE_MS = 2000, PASS_MS = 5000 };

static void leave(struct stream *s, int number, const char *what)
{
	tty_restore();
	s->c->signal = number;
	err_reason(s->e, EINTR, REASON_INTERRUPTED, "interrupted%s%s", *what ? "; " : "", what);
	s->result = -EINTR;
	s->phase = PHASE_OVER;
}

void stream_leave_running(struct stream *s, int number)
{
	if (*s->id) {
		leave(s, number, "the command runs on");
		stream_tell_where(s);
		return;
	}
	leave(s, number, "if the command had begun, it runs on");
	err_hint(s->e, "see: skerry command list %s", s->spec->sandbox);
}

static void pass_on(struct stream *s, int number)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *body = json_pack("{s:s}", "signal", sigabbrev_np(number));
	struct err e = ERR_INIT;
	int r = api_path(s->c, &path, &e, "sandboxes", s->spec->sandbox, "commands", s->id,
			 "signal", NULL);

	if (!r)
		r = api_call(s->c, "POST", &path, body, PASS_MS, NULL, &e);
	if (r < 0 && r != -EINTR && !str_eq(e.reason, "command_ended"))
		outlet_note(&s->out, "SIG%s was not passed on: %s", sigabbrev_np(number), e.text);
}

static bool twice(const struct stream *s)
{
	return s->signal && clock_mono_ns() < s->signal_ns + TWICE_MS * NS_PER_MS;
}

static void remember(struct stream *s, int number)
{
	s->signal = number;
	s->signal_ns = clock_mono_ns();
}

static void running(struct stream *s, int number)
{
	bool end = number == SIGINT || number == SIGTERM;

	if (!s->spec->first && (number == SIGTERM || number == SIGHUP)) {
		pass_on(s, SIGHUP); /* a shell does not end by a SIGTERM */
		leave(s, number, "");
	} else if (end && twice(s)) {
		tty_restore();
		stream_terminate(s, "TERM");
		leave(s, number, "the command was ended");
	} else {
		if (end)
			remember(s, number);
		pass_on(s, number);
	}
}

/* `number` 0: the time of one that waits for the command to begin is over. */
void stream_signal(struct stream *s, int number)
{
	if (s->phase == PHASE_RUNNING && number)
		running(s, number);
	else if (s->phase == PHASE_ASKED && !*s->id && number && !s->signal)
		remember(s, number);
	else if (s->phase == PHASE_ENDED)
		leave(s, number, "");
	else
		stream_leave_running(s, number ? number : s->signal);
}

uint64_t stream_signal_wake_ns(const struct stream *s)
{
	return s->phase == PHASE_ASKED && !*s->id && s->signal ? s->signal_ns + TWICE_MS * NS_PER_MS
							       : UINT64_MAX;
}

void stream_signal_early(struct stream *s)
{
	if (s->signal)
		pass_on(s, s->signal);
}

void stream_send_size(struct stream *s)
{
	unsigned cols, rows;
	json_t *o;

	s->size_due = s->phase != PHASE_RUNNING;
	if (!s->spec->tty || s->size_due || !tty_size(&cols, &rows))
		return;
	o = json_pack("{s:s, s:i, s:i}", "type", "resize", "cols", (int)cols, "rows", (int)rows);
	if (o)
		socket_json(s->socket, o);
	json_decref(o);
}

void stream_signal_terminal(struct stream *s, int number)
{
	if (number == SIGTSTP)
		tty_stop();
	else if (number == SIGCONT)
		tty_resume();
	stream_send_size(s);
}
