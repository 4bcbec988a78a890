#include "api/websocket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <wslay/wslay.h>

#include "base/banned.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "api/errors.h"

enum {
	OUT_MAX = 4 * 1024 *
		  1024, /* bytes of frames a client has not taken; the caller keeps below */
	SEND_BUFFER = 256 * 1024, /* bytes the kernel may hold for a client, as far as it allows */
	HEAD_MAX = 4,             /* bytes before the payload of a frame of ours */
	SHORT_MAX = 125,          /* bytes of a payload whose head has two bytes */
};

struct websocket {
	int fd;
	wslay_event_context_ptr ctx;
	const struct websocket_handler *handler;
	void *arg;
	char *early; /* read before us */
	size_t early_at, early_len;
	bool paused, gone, closing;
	bool shut;        /* all is said */
	unsigned words;   /* text that came in this turn */
	uint64_t left_ns; /* when it left while it was paused; 0: it did not */
	struct buf out;   /* frames … */
	size_t sent;      /* … of which the kernel has so many bytes */
	uint64_t heard_ns, pinged_ns;
	uint64_t moved_ns; /* when the client last took a byte, or was left to */
};

static ssize_t stop(wslay_event_context_ptr ctx, int why)
{
	wslay_event_set_error(ctx, why);
	return -1;
}

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *arg)
{
	struct websocket *w = arg;
	ssize_t n;

	(void)flags;
	if (w->paused || w->words) /* words may take long: the rest has its turn between them */
		return stop(ctx, WSLAY_ERR_WOULDBLOCK);
	if (w->early_at < w->early_len) {
		size_t piece = w->early_len - w->early_at;

		piece = piece < len ? piece : len;
		memcpy(buf, w->early + w->early_at, piece);
		w->early_at += piece;
		return (ssize_t)piece;
	}
	do
		n = recv(w->fd, buf, len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		w->heard_ns = clock_mono_ns();
		return n;
	}
	if (n < 0 && errno == EAGAIN)
		return stop(ctx, WSLAY_ERR_WOULDBLOCK);
	w->gone = true;
	return stop(ctx, WSLAY_ERR_CALLBACK_FAILURE);
}

/* The client's time to take bytes begins when there are some. */
static void mark_first(struct websocket *w)
{
	if (w->sent == w->out.len)
		w->moved_ns = clock_mono_ns();
}

/* Whole frames go behind what is there, so those of the library and ours keep their order. */
static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
		       void *arg)
{
	struct websocket *w = arg;

	(void)flags;
	mark_first(w);
	if (buf_add(&w->out, data, len) < 0)
		return stop(ctx, WSLAY_ERR_CALLBACK_FAILURE);
	return (ssize_t)len;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
		       void *arg)
{
	struct websocket *w = arg;

	(void)ctx;
	w->words += m->opcode == WSLAY_TEXT_FRAME;
	if (m->opcode == WSLAY_TEXT_FRAME)
		w->handler->text(w->arg, (const char *)m->msg, m->msg_length);
	else if (m->opcode == WSLAY_BINARY_FRAME)
		w->handler->bytes(w->arg, m->msg, m->msg_length);
}

struct websocket *websocket_new(int fd, const void *early, size_t early_len,
				const struct websocket_handler *handler, void *arg)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_recv,
		.send_callback = on_send,
		.on_msg_recv_callback = on_message,
	};
	struct websocket *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	*w = (struct websocket){ .fd = fd, .handler = handler, .arg = arg };
	buf_init(&w->out, OUT_MAX);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ SEND_BUFFER }, sizeof(int));
	w->heard_ns = w->pinged_ns = w->moved_ns = clock_mono_ns();
	if (early_len)
		w->early = malloc(early_len);
	if ((early_len && !w->early) ||
	    wslay_event_context_server_init(&w->ctx, &callbacks, w) != 0) {
		free(w->early);
		free(w);
		return NULL;
	}
	if (early_len)
		memcpy(w->early, early, early_len);
	w->early_len = early_len;
	wslay_event_config_set_max_recv_msg_length(w->ctx, WEBSOCKET_MESSAGE_MAX);
	return w;
}

void websocket_free(struct websocket *w)
{
	if (!w)
		return;
	wslay_event_context_free(w->ctx);
	buf_release(&w->out);
	free(w->early);
	free(w);
}

static void queue(struct websocket *w, uint8_t opcode, const void *data, size_t len)
{
	const struct wslay_event_msg m = { .opcode = opcode, .msg = data, .msg_length = len };

	if (websocket_closing(w))
		return;
	/* only for want of memory: a message that is missing must not go unnoticed */
	if (wslay_event_queue_msg(w->ctx, &m) != 0 || wslay_event_send(w->ctx) != 0)
		w->gone = true;
}

void websocket_json(struct websocket *w, json_t *object)
{
	_cleanup_free_ char *text = object ? json_dumps(object, JSON_ANSWER) : NULL;

	json_decref(object);
	if (text)
		queue(w, WSLAY_TEXT_FRAME, text, strlen(text));
	else
		websocket_close(w, WEBSOCKET_FAULT);
}

/* A server's frame of up to 64 KiB: FIN and opcode, length. */
static size_t frame_head(unsigned char head[HEAD_MAX], size_t len)
{
	head[0] = 0x80 | WSLAY_BINARY_FRAME;
	if (len <= SHORT_MAX) {
		head[1] = (unsigned char)len;
		return 2;
	}
	head[1] = 126;
	head[2] = (unsigned char)(len >> 8);
	head[3] = (unsigned char)len;
	return HEAD_MAX;
}

/* Bytes that the kernel took. */
static size_t send_parts(struct websocket *w, struct iovec *parts, size_t count)
{
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = count };
	ssize_t n;

	do
		n = sendmsg(w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		w->gone = true;
	w->moved_ns = clock_mono_ns();
	return n > 0 ? (size_t)n : 0;
}

void websocket_bytes(struct websocket *w, const char *channel, const void *data, size_t len)
{
	unsigned char head[HEAD_MAX];
	struct iovec parts[] = {
		{ head, frame_head(head, len + !!channel) },
		{ (void *)channel, !!channel },
		{ (void *)data, len },
	};
	size_t sent;

	if (websocket_closing(w))
		return;
	sent = websocket_pending(w) ? 0 : send_parts(w, parts, ARRAY_SIZE(parts));
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;

		buf_add(&w->out, (char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
		sent -= skip;
	}
	if (w->out.failed)
		w->gone = true;
}

void websocket_close(struct websocket *w, enum websocket_code code)
{
	if (websocket_closing(w))
		return;
	w->closing = true;
	w->moved_ns = clock_mono_ns();
	if (wslay_event_queue_close(w->ctx, (uint16_t)code, NULL, 0) != 0 ||
	    wslay_event_send(w->ctx) != 0)
		w->gone = true;
}

size_t websocket_pending(const struct websocket *w)
{
	return w->out.len - w->sent;
}

void websocket_pause(struct websocket *w, bool paused)
{
	if (w->paused && !paused)
		w->heard_ns = clock_mono_ns(); /* it was we who did not listen */
	w->paused = paused;
}

bool websocket_closing(const struct websocket *w)
{
	return w->closing || w->gone || wslay_event_get_close_received(w->ctx) ||
	       wslay_event_get_close_sent(w->ctx);
}

bool websocket_over(const struct websocket *w)
{
	return w->gone || w->shut;
}

uint64_t websocket_moved_ns(const struct websocket *w)
{
	return w->moved_ns;
}

int websocket_fd(const struct websocket *w)
{
	return w->fd;
}

short websocket_events(const struct websocket *w)
{
	short reads = !w->paused ? POLLIN : w->left_ns ? 0 : POLLRDHUP;

	return (short)((wslay_event_want_read(w->ctx) ? reads : 0) |
		       (websocket_pending(w) ? POLLOUT : 0));
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* When the client is given up. What it has not read yet may lie before our ping or close, so it is
 * alive while it takes bytes, and then has as long to answer. */
static uint64_t lost_ns(const struct websocket *w)
{
	if (w->paused && w->left_ns)
		return w->left_ns + WEBSOCKET_LEFT_MS * NS_PER_MS;
	if (w->paused && !w->closing)
		return UINT64_MAX;
	return later(w->heard_ns, w->moved_ns) + WEBSOCKET_LOST_MS * NS_PER_MS;
}

/* When no answer to our close is waited for any more. */
static uint64_t unanswered_ns(const struct websocket *w)
{
	if (!w->closing || websocket_pending(w))
		return UINT64_MAX;
	return w->moved_ns + WEBSOCKET_CLOSE_MS * NS_PER_MS;
}

static uint64_t ping_ns(const struct websocket *w)
{
	if (w->closing)
		return UINT64_MAX;
	return later(w->heard_ns, w->pinged_ns) + WEBSOCKET_PING_MS * NS_PER_MS;
}

uint64_t websocket_wake_ns(const struct websocket *w)
{
	const uint64_t times[] = { lost_ns(w), ping_ns(w), unanswered_ns(w) };
	uint64_t first = UINT64_MAX;

	if (w->early_at < w->early_len && !w->paused)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		first = times[i] < first ? times[i] : first;
	return first;
}

static void send_pending(struct websocket *w)
{
	while (!w->gone && websocket_pending(w)) {
		ssize_t n = send(w->fd, w->out.data + w->sent, websocket_pending(w),
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			w->gone = true;
			return;
		}
		w->sent += (size_t)n;
		w->moved_ns = clock_mono_ns();
	}
	if (w->sent >= w->out.len / 2) { /* moves each byte once at most */
		buf_consume(&w->out, w->sent);
		w->sent = 0;
	}
}

/* That the kernel takes a ping says nothing about the client. */
static void ping(struct websocket *w)
{
	uint64_t moved = w->moved_ns;
	bool alone = !websocket_pending(w);

	queue(w, WSLAY_PING, "", 0);
	if (!alone)
		return;
	send_pending(w);
	w->moved_ns = moved;
}

static void watch_the_clock(struct websocket *w)
{
	uint64_t now = clock_mono_ns();

	w->gone |= now >= lost_ns(w);
	if (w->gone || now < ping_ns(w))
		return;
	ping(w);
	w->pinged_ns = now;
}

/* What is no WebSocket is told so, and not listened to any more. By hand: for some of it the library
 * has queued a close without a code. */
static void receive(struct websocket *w)
{
	static const unsigned char garbage[] = { 0x80 | WSLAY_CONNECTION_CLOSE, 2,
						 WEBSOCKET_GARBAGE >> 8, WEBSOCKET_GARBAGE & 0xff };

	if (!wslay_event_want_read(w->ctx) || wslay_event_recv(w->ctx) == 0 || w->gone)
		return;
	wslay_event_shutdown_read(w->ctx);
	if (w->closing || wslay_event_get_close_sent(w->ctx))
		return;
	wslay_event_shutdown_write(w->ctx);
	mark_first(w);
	w->closing = true;
	if (buf_add(&w->out, garbage, sizeof(garbage)) < 0)
		w->gone = true;
}

static void finish(struct websocket *w)
{
	bool answered = !wslay_event_want_read(w->ctx);

	if (w->gone || websocket_pending(w) || (!answered && clock_mono_ns() < unanswered_ns(w)))
		return;
	shutdown(w->fd, SHUT_WR);
	w->shut = true;
}

void websocket_turn(struct websocket *w, short revents)
{
	bool early = w->early_at < w->early_len;

	w->words = 0;
	if (early || (revents & (POLLIN | POLLHUP | POLLERR)))
		receive(w);
	if (w->paused && (revents & (POLLHUP | POLLERR)))
		w->gone = true;
	if (w->paused && (revents & POLLRDHUP) && !w->left_ns)
		w->left_ns = clock_mono_ns();
	watch_the_clock(w);
	/* the library's own answers: a pong, a close */
	if (!w->gone && wslay_event_want_write(w->ctx) && wslay_event_send(w->ctx) != 0)
		w->gone = true;
	send_pending(w);
	finish(w);
}

void websocket_linger(const struct websocket *w)
{
	uint64_t until = clock_mono_ns() + WEBSOCKET_LINGER_MS * NS_PER_MS;
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	char waste[4096];
	ssize_t n = w->gone ? 0 : 1;

	while (n > 0 && poll(&p, 1, clock_left_ms(until)) != 0) {
		n = recv(w->fd, waste, sizeof(waste), MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			n = 1;
	}
}
