/*
 * Our standard input, on its way to the command.
 *
 * The server answers for no byte of it, so a broken connection may have lost some: all that was sent
 * counts as at risk, until the server was heard behind it and it is so little that the command's
 * pipe holds it, read or not. What somebody types is at no risk: it is seen what became of it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#include "stream_priv.h"
#include "tty.h"

enum {
	PIECE = 64 * 1024,
	IN_AHEAD = 256 * 1024,
	QUIET_MS = 1000, /* after which the server is asked whether it is there */
	FAULT_MS = 1000, /* in which a command that ended is told to have ended */
	HELD_MAX = 64 * 1024,
};

void stream_input_begin(struct stream *s)
{
	s->in.open = s->spec->input;
	s->in.detach = s->spec->detach;
	s->in.terminal = isatty(STDIN_FILENO);
}

int stream_input_fd(const struct stream *s)
{
	return s->phase == PHASE_RUNNING && s->in.open && socket_pending(s->socket) < IN_AHEAD
		       ? STDIN_FILENO
		       : -1;
}

static void send_eof(struct stream *s)
{
	json_t *o = json_pack("{s:s}", "type", "eof");

	s->in.open = false;
	s->in.eof_sent = true;
	socket_json(s->socket, o);
	json_decref(o);
}

static void send_bytes(struct stream *s, char *data, size_t n)
{
	if (!n)
		return;
	data[0] = 0; /* the channel, where there is one */
	socket_bytes(s->socket, data + s->plain, n + !s->plain);
	s->in.sent += n;
	s->in.sent_ns = clock_mono_ns();
	s->in.pinged = s->in.settled = false;
}

/* The end of the session and of nothing else. */
static void leave(struct stream *s)
{
	outlet_note(&s->out, "detached; back: skerry shell %s --attach %s", s->spec->sandbox,
		    s->id);
	tty_restore();
	s->phase = PHASE_ENDED;
}

static void take(struct stream *s, const char *data, size_t n)
{
	char out[1 + PIECE + DETACH_MAX];
	size_t len = 0;
	bool found = detach_feed(&s->in.detach, data, n, out + 1, &len);

	send_bytes(s, out, len);
	if (found)
		leave(s);
}

void stream_input_turn(struct stream *s)
{
	char data[PIECE];
	ssize_t n = read(STDIN_FILENO, data, sizeof(data));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 && errno != EIO && errno != EBADF) /* a terminal that hung up; a closed one */
		outlet_note(&s->out, "read standard input: %s", strerror(errno));
	if (n <= 0)
		send_eof(s);
	else
		take(s, data, (size_t)n);
}

static bool may_ask(const struct stream *s)
{
	return s->phase == PHASE_RUNNING && s->in.sent && !s->in.pinged && !s->in.settled &&
	       !socket_pending(s->socket);
}

/* Without a terminal nothing else is asked for that could fail after the start. */
bool stream_input_failed(const struct stream *s)
{
	return s->phase == PHASE_RUNNING && s->fault.code && s->in.sent && !s->spec->tty;
}

uint64_t stream_input_wake_ns(const struct stream *s)
{
	if (stream_input_failed(s))
		return s->fault_ns + FAULT_MS * NS_PER_MS;
	return may_ask(s) ? s->in.sent_ns + QUIET_MS * NS_PER_MS : UINT64_MAX;
}

void stream_input_settle(struct stream *s)
{
	bool due = clock_mono_ns() >= stream_input_wake_ns(s);

	if (stream_input_failed(s)) {
		if (!due)
			return;
		stream_fault(s);
		err_wrap(s->e, "standard input was not passed on");
		stream_tell_where(s);
	} else if (due) {
		s->in.pinged = true;
		s->in.pongs = socket_pongs(s->socket);
		socket_ping(s->socket);
	} else if (s->in.pinged && socket_pongs(s->socket) != s->in.pongs) {
		s->in.settled = true;
	}
}

bool stream_input_at_risk(const struct stream *s)
{
	return s->in.sent && !s->in.terminal && !(s->in.settled && s->in.sent <= HELD_MAX);
}

/* Its end may be what was lost; said twice it means the same. */
void stream_input_again(struct stream *s)
{
	s->in.pinged = false;
	if (s->in.eof_sent)
		send_eof(s);
}
