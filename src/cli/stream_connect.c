/* Connections: the first, and those that take up what a broken one has left. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

#include "stream_priv.h"
#include "tty.h"

enum {
	RETRY_FIRST_MS = 50,
	RETRY_MAX_MS = 2000,
	GIVE_UP_MS = 30000,
	STEADY_MS = 5000, /* a connection that held so long was none of the failed attempts */
};

int stream_open(struct stream *s)
{
	int r = socket_open(s->c, s->spec->path, &stream_frames, s, &s->socket, s->e);

	if (!r && s->spec->first)
		socket_json(s->socket, s->spec->first);
	return r;
}

static void fail_first(struct stream *s, const char *why)
{
	err_reason(s->e, EIO, REASON_CONNECTION, "connection to %s lost: %s", s->c->conf.url.text,
		   why);
	err_hint(s->e, "the command may have begun; see: skerry command list %s", s->spec->sandbox);
	stream_fail(s, -EIO);
}

static void fail_input(struct stream *s, const char *why)
{
	err_reason(
		s->e, EIO, REASON_CONNECTION,
		"connection to %s lost: %s; what was read of standard input may not have arrived",
		s->c->conf.url.text, why);
	stream_tell_where(s);
	stream_fail(s, -EIO);
}

static bool gives_up(const struct stream *s)
{
	return clock_mono_ns() >= s->lost_ns + GIVE_UP_MS * NS_PER_MS;
}

static void retry_later(struct stream *s)
{
	s->phase = PHASE_LOST;
	s->retry_ms = s->retry_ms ? s->retry_ms * 2 : RETRY_FIRST_MS;
	if (s->retry_ms > RETRY_MAX_MS)
		s->retry_ms = RETRY_MAX_MS;
	s->retry_ns = clock_mono_ns() + s->retry_ms * NS_PER_MS;
}

void stream_lost(struct stream *s)
{
	uint64_t now = clock_mono_ns();
	char why[96];

	snprintf(why, sizeof(why), "%s", socket_why(s->socket));
	socket_free(take_ptr(s->socket));
	if (!s->lost_ns ||
	    (s->phase == PHASE_RUNNING && now >= s->attached_ns + STEADY_MS * NS_PER_MS)) {
		s->lost_ns = now;
		s->retry_ms = 0;
	}
	if (!*s->id) {
		fail_first(s, why);
	} else if (stream_input_at_risk(s)) {
		fail_input(s, why);
	} else if (gives_up(s)) {
		err_reason(s->e, EIO, REASON_CONNECTION, "connection to %s lost, and not back: %s",
			   s->c->conf.url.text, why);
		stream_tell_where(s);
		stream_fail(s, -EIO);
	} else {
		retry_later(s);
	}
}

/* By offsets, also for a terminal: nothing is shown twice. One that we did not see from its beginning
 * is shown as a first look at it. */
static int attach(struct stream *s, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *first = NULL;
	int r;

	s->plain = s->spec->replayed;
	if (s->plain)
		return socket_open(s->c, s->spec->path, &stream_frames, s, &s->socket, e);
	first = json_pack("{s:s, s:{s:I, s:I}}", "id", s->id, "offset", "stdout",
			  (json_int_t)s->at[0], "stderr", (json_int_t)s->at[1]);
	if (!first)
		return err_set(e, ENOMEM, "out of memory");
	r = api_path(s->c, &path, e, "sandboxes", s->spec->sandbox, "exec", NULL);
	if (!r)
		r = socket_open(s->c, buf_str(&path), &stream_frames, s, &s->socket, e);
	if (!r)
		socket_json(s->socket, first);
	return r;
}

/* Nobody there, or not yet: the daemon may be starting. */
static bool passes(const struct err *e)
{
	return str_eq(e->reason, REASON_CONNECTION) || e->code == EAGAIN || e->code == EIO;
}

void stream_retry(struct stream *s)
{
	struct err e = ERR_INIT;
	int r = attach(s, &e);

	if (!r) {
		s->phase = PHASE_ASKED;
		return;
	}
	if (r == -EINTR) /* the signal says what to do */
		return;
	if (!passes(&e) || gives_up(s)) {
		*s->e = e;
		err_wrap(s->e, "connection lost, and not back");
		stream_tell_where(s);
		stream_fail(s, r);
		return;
	}
	if (!s->told_lost)
		outlet_note(&s->out, "connection to %s lost, trying again", s->c->conf.url.text);
	s->told_lost = true;
	retry_later(s);
}
