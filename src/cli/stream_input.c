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

enum {
	PIECE = 64 * 1024,
	IN_AHEAD = 256 * 1024,
	QUIET_MS = 1000, /* after which the server is asked whether it is there */
	HELD_MAX = 64 * 1024,
};

void stream_input_begin(struct stream *s)
{
	s->in.open = s->spec->input;
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

void stream_input_turn(struct stream *s)
{
	char data[1 + PIECE];
	size_t head = s->plain ? 0 : 1; /* channel 0 */
	ssize_t n;

	data[0] = 0;
	n = read(STDIN_FILENO, data + head, PIECE);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 && errno != EIO && errno != EBADF) /* a terminal that hung up; a closed one */
		outlet_note(&s->out, "read standard input: %s", strerror(errno));
	if (n <= 0) {
		send_eof(s);
		return;
	}
	socket_bytes(s->socket, data, head + (size_t)n);
	s->in.sent += (uint64_t)n;
	s->in.sent_ns = clock_mono_ns();
	s->in.pinged = s->in.settled = false;
}

static bool may_ask(const struct stream *s)
{
	return s->phase == PHASE_RUNNING && s->in.sent && !s->in.pinged && !s->in.settled &&
	       !socket_pending(s->socket);
}

uint64_t stream_input_wake_ns(const struct stream *s)
{
	return may_ask(s) ? s->in.sent_ns + QUIET_MS * NS_PER_MS : UINT64_MAX;
}

void stream_input_settle(struct stream *s)
{
	if (may_ask(s) && clock_mono_ns() >= stream_input_wake_ns(s)) {
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
