#include "socket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <wslay/wslay.h>

#include "base/cleanup.h"
#include "base/clock.h"

#include "handshake.h"

enum {
	MESSAGE_MAX = 16 * 1024 * 1024, /* a record with its command, escaped */
	IN_SIZE = 64 * 1024,
	SILENCE_MS = 60000, /* the server pings every 20 s */
	AWAY = 1000,
};

struct socket {
	struct line *line;
	wslay_event_context_ptr ctx;
	const struct socket_handler *handler;
	void *arg;
	char in[IN_SIZE]; /* received, not decoded yet */
	size_t in_at, in_len;
	struct buf early; /* came with the handshake */
	bool paused;
	unsigned pongs;
	const char *why; /* it was lost; or NULL */
	uint64_t heard_ns;
};

static ssize_t stop(wslay_event_context_ptr ctx, int why)
{
	wslay_event_set_error(ctx, why);
	return -1;
}

static void lose(struct socket *s, const char *why)
{
	if (!s->why)
		s->why = why;
}

/* More bytes in `in`. 1, or 0 when there are none now. */
static int fill(struct socket *s)
{
	ssize_t n = s->line->recv(s->line, s->in, sizeof(s->in));

	if (n <= 0) {
		if (n != -EAGAIN)
			lose(s, n ? strerror((int)-n) : "the other end hung up");
		return 0;
	}
	s->heard_ns = clock_mono_ns();
	s->in_at = 0;
	s->in_len = (size_t)n;
	return 1;
}

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *arg)
{
	struct socket *s = arg;
	size_t n;

	(void)flags;
	if (s->paused)
		return stop(ctx, WSLAY_ERR_WOULDBLOCK);
	if (s->early.len) {
		n = s->early.len < len ? s->early.len : len;
		memcpy(buf, s->early.data, n);
		buf_consume(&s->early, n);
		return (ssize_t)n;
	}
	if (s->in_at == s->in_len && !fill(s))
		return stop(ctx, s->why ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
	n = s->in_len - s->in_at < len ? s->in_len - s->in_at : len;
	memcpy(buf, s->in + s->in_at, n);
	s->in_at += n;
	return (ssize_t)n;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
		       void *arg)
{
	struct socket *s = arg;
	ssize_t n = s->line->send(s->line, data, len);

	(void)flags;
	if (n == -EAGAIN)
		return stop(ctx, WSLAY_ERR_WOULDBLOCK);
	return n < 0 ? stop(ctx, WSLAY_ERR_CALLBACK_FAILURE) : n;
}

static int on_mask(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, void *arg)
{
	(void)arg;
	if (getrandom(buf, len, 0) == (ssize_t)len)
		return 0;
	wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
		       void *arg)
{
	struct socket *s = arg;

	(void)ctx;
	if (m->opcode == WSLAY_TEXT_FRAME)
		s->handler->text(s->arg, (const char *)m->msg, m->msg_length);
	else if (m->opcode == WSLAY_BINARY_FRAME)
		s->handler->bytes(s->arg, m->msg, m->msg_length);
	else if (m->opcode == WSLAY_PONG)
		s->pongs++;
}

static int begin(struct socket *s)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_recv,
		.send_callback = on_send,
		.genmask_callback = on_mask,
		.on_msg_recv_callback = on_message,
	};

	if (wslay_event_context_client_init(&s->ctx, &callbacks, s) != 0)
		return -ENOMEM;
	wslay_event_config_set_max_recv_msg_length(s->ctx, MESSAGE_MAX);
	s->heard_ns = clock_mono_ns();
	return 0;
}

int socket_open(struct cli *c, const char *path, const struct socket_handler *handler, void *arg,
		struct socket **ret, struct err *e)
{
	struct socket *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ENOMEM, "out of memory");
	s->handler = handler;
	s->arg = arg;
	buf_init(&s->early, MESSAGE_MAX);
	r = c->client->dial(c->client, &s->line, e);
	if (!r)
		r = handshake(c, s->line, path, &s->early, e);
	if (!r && begin(s) < 0)
		r = err_set(e, ENOMEM, "out of memory");
	if (r < 0) {
		socket_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void socket_free(struct socket *s)
{
	if (!s)
		return;
	if (s->ctx && !s->why && wslay_event_queue_close(s->ctx, AWAY, NULL, 0) == 0)
		wslay_event_send(s->ctx);
	if (s->ctx)
		wslay_event_context_free(s->ctx);
	line_free(s->line);
	buf_release(&s->early);
	free(s);
}

static void queue(struct socket *s, uint8_t opcode, const void *data, size_t len)
{
	const struct wslay_event_msg m = { .opcode = opcode, .msg = data, .msg_length = len };
	int r = wslay_event_queue_msg(s->ctx, &m);

	if (r == WSLAY_ERR_NOMEM)
		lose(s, "out of memory");
}

void socket_json(struct socket *s, const json_t *object)
{
	_cleanup_free_ char *text = json_dumps(object, JSON_COMPACT);

	if (text)
		queue(s, WSLAY_TEXT_FRAME, text, strlen(text));
	else
		lose(s, "out of memory");
}

void socket_bytes(struct socket *s, const void *data, size_t len)
{
	queue(s, WSLAY_BINARY_FRAME, data, len);
}

void socket_ping(struct socket *s)
{
	queue(s, WSLAY_PING, "", 0);
}

unsigned socket_pongs(const struct socket *s)
{
	return s->pongs;
}

size_t socket_pending(const struct socket *s)
{
	return wslay_event_get_queued_msg_length(s->ctx);
}

void socket_pause(struct socket *s, bool paused)
{
	if (s->paused && !paused)
		s->heard_ns = clock_mono_ns(); /* it was we who did not listen */
	s->paused = paused;
}

int socket_fd(const struct socket *s)
{
	return s->line->fd;
}

short socket_events(const struct socket *s)
{
	return (short)((s->paused ? 0 : POLLIN) | (wslay_event_want_write(s->ctx) ? POLLOUT : 0));
}

uint64_t socket_wake_ns(const struct socket *s)
{
	if (!s->paused && (s->early.len || s->in_at < s->in_len))
		return 0; /* nothing tells that these wait */
	return s->paused ? UINT64_MAX : s->heard_ns + SILENCE_MS * NS_PER_MS;
}

int socket_code(const struct socket *s)
{
	return wslay_event_get_close_received(s->ctx) ? wslay_event_get_status_code_received(s->ctx)
						      : 0;
}

const char *socket_why(const struct socket *s)
{
	return s->why ? s->why : "the server closed it";
}

enum socket_state socket_turn(struct socket *s)
{
	if (!s->paused && !s->why && wslay_event_want_read(s->ctx) && wslay_event_recv(s->ctx) != 0)
		lose(s, "what came is no WebSocket");
	if (socket_code(s))
		return SOCKET_CLOSED;
	if (!s->paused && clock_mono_ns() >= s->heard_ns + SILENCE_MS * NS_PER_MS)
		lose(s, "nothing came for a minute");
	if (!s->why && wslay_event_want_write(s->ctx) && wslay_event_send(s->ctx) != 0)
		lose(s, "the other end hung up");
	/* an error wslay found itself: it has queued a close and reads no more */
	if (!s->why && !wslay_event_want_read(s->ctx))
		lose(s, "what came is no WebSocket");
	return s->why ? SOCKET_LOST : SOCKET_OPEN;
}
