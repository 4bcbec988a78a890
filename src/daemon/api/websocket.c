#include "api/websocket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <wslay/wslay.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

struct websocket {
	int fd;
	wslay_event_context_ptr ctx;
	const struct websocket_handler *handler;
	void *arg;
	char *early; /* read before us */
	size_t early_at, early_len;
	bool paused, gone, closing;
	uint16_t goodbye; /* the code of a close that waits for what lies before it; 0: none */
	uint64_t heard_ns, pinged_ns;
	uint64_t closed_ns; /* closing: when it last moved */
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
	if (w->paused)
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

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
		       void *arg)
{
	const int more = flags & WSLAY_MSG_MORE ? MSG_MORE : 0;
	struct websocket *w = arg;
	ssize_t n;

	do
		n = send(w->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL | more);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		w->closed_ns = clock_mono_ns(); /* where it matters: the client still reads */
		return n;
	}
	if (n < 0 && errno == EAGAIN)
		return stop(ctx, WSLAY_ERR_WOULDBLOCK);
	w->gone = true;
	return stop(ctx, WSLAY_ERR_CALLBACK_FAILURE);
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
		       void *arg)
{
	struct websocket *w = arg;

	(void)ctx;
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
	w->heard_ns = w->pinged_ns = clock_mono_ns();
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
	free(w->early);
	free(w);
}

static void queue(struct websocket *w, uint8_t opcode, const void *data, size_t len)
{
	const struct wslay_event_msg m = { .opcode = opcode, .msg = data, .msg_length = len };

	if (websocket_closing(w))
		return;
	/* only for want of memory: a message that is missing must not go unnoticed */
	if (wslay_event_queue_msg(w->ctx, &m) != 0)
		w->gone = true;
}

void websocket_json(struct websocket *w, json_t *object)
{
	_cleanup_free_ char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	if (text)
		queue(w, WSLAY_TEXT_FRAME, text, strlen(text));
	else
		websocket_close(w, WEBSOCKET_FAULT);
}

void websocket_bytes(struct websocket *w, const void *data, size_t len)
{
	queue(w, WSLAY_BINARY_FRAME, data, len);
}

void websocket_close(struct websocket *w, enum websocket_code code)
{
	if (websocket_closing(w))
		return;
	w->closing = true;
	w->closed_ns = clock_mono_ns();
	w->goodbye = (uint16_t)code;
}

size_t websocket_pending(const struct websocket *w)
{
	return wslay_event_get_queued_msg_length(w->ctx);
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
	return w->gone ||
	       (!w->goodbye && !wslay_event_want_read(w->ctx) && !wslay_event_want_write(w->ctx));
}

int websocket_fd(const struct websocket *w)
{
	return w->fd;
}

short websocket_events(const struct websocket *w)
{
	return (short)((wslay_event_want_read(w->ctx) && !w->paused ? POLLIN : 0) |
		       (wslay_event_want_write(w->ctx) ? POLLOUT : 0));
}

uint64_t websocket_wake_ns(const struct websocket *w)
{
	uint64_t last = w->heard_ns > w->pinged_ns ? w->heard_ns : w->pinged_ns;

	if (w->closing && w->goodbye)
		return w->closed_ns + WEBSOCKET_LOST_MS * NS_PER_MS;
	if (w->closing)
		return w->closed_ns + WEBSOCKET_CLOSE_MS * NS_PER_MS;
	if (w->early_at < w->early_len && !w->paused)
		return 0;
	return last + WEBSOCKET_PING_MS * NS_PER_MS;
}

static void watch_the_clock(struct websocket *w)
{
	uint64_t now = clock_mono_ns();
	uint64_t last = w->heard_ns > w->pinged_ns ? w->heard_ns : w->pinged_ns;

	if (w->closing) {
		/* what lies before the close has as long as it takes: the client reads, or is lost */
		w->gone |= !w->goodbye && now >= w->closed_ns + WEBSOCKET_CLOSE_MS * NS_PER_MS;
		w->gone |= now >= w->closed_ns + WEBSOCKET_LOST_MS * NS_PER_MS;
		return;
	}
	if (!w->paused && now >= w->heard_ns + WEBSOCKET_LOST_MS * NS_PER_MS)
		w->gone = true;
	if (now < last + WEBSOCKET_PING_MS * NS_PER_MS)
		return;
	queue(w, WSLAY_PING, "", 0);
	w->pinged_ns = now;
}

/* The library sends control frames before everything else, so a close is queued last. */
static void say_goodbye(struct websocket *w)
{
	if (!w->goodbye || wslay_event_want_write(w->ctx))
		return;
	if (wslay_event_queue_close(w->ctx, w->goodbye, NULL, 0) != 0)
		w->gone = true;
	w->goodbye = 0;
	w->closed_ns = clock_mono_ns();
}

static void send_all(struct websocket *w)
{
	if (!w->gone && wslay_event_want_write(w->ctx) && wslay_event_send(w->ctx) != 0)
		w->gone = true;
}

/* What is no WebSocket is told so, and not listened to any more. */
static void receive(struct websocket *w)
{
	if (!wslay_event_want_read(w->ctx) || wslay_event_recv(w->ctx) == 0 || w->gone)
		return;
	wslay_event_shutdown_read(w->ctx);
	websocket_close(w, WEBSOCKET_GARBAGE);
}

void websocket_turn(struct websocket *w, short revents)
{
	bool early = w->early_at < w->early_len;

	if (early || (revents & (POLLIN | POLLHUP | POLLERR))) {
		receive(w);
	}
	if (w->paused && (revents & (POLLHUP | POLLERR)))
		w->gone = true;
	watch_the_clock(w);
	send_all(w);
	say_goodbye(w);
	send_all(w);
}
