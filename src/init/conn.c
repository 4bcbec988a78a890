#include "init/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "init/conn_priv.h"
#include "init/send_pages.h"

enum {
	CONNS_MAX = 2048,
	LONG_MAX_CONNS = CONNS_MAX - 128, /* the rest is for what answers at once */
	OUT_LOW = 64 * 1024,              /* below it more output is fetched from the command */
	COPY_BELOW = 16 * 1024, /* bytes of output that go together with what comes next */
	/* LIST answers at once: 4096 lines of less than 256 bytes */
	OUT_MAX = 2 * 1024 * 1024,
	ACCEPT_RETRY_MS = 50,
};

static struct source listener = SOURCE_NONE;
static struct timer accept_again;
static struct conn *first, *last; /* in the order they came */
static unsigned count;

static void listener_ready(struct source *s, uint32_t events);

static void conn_close(struct conn *c)
{
	conn_ops_release(c);
	source_close(&c->s);
	frame_reader_release(&c->in);
	buf_release(&c->out);
	if (c->prev)
		c->prev->next = c->next;
	else
		first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		last = c->prev;
	count--;
	free(c);
	source_want(&listener, EPOLLIN);
}

static size_t pending(const struct conn *c)
{
	return c->out.len - c->written;
}

/* By reference: it stays in its chunk until it is acknowledged. Only what the socket does not take
 * is copied. */
static int send_output(struct conn *c, const struct agent_output *o)
{
	unsigned char head[AGENT_OUTPUT_HEAD];
	struct iovec parts[2] = { { head, sizeof(head) }, { (void *)o->data, o->len } };
	size_t sent;
	ssize_t n;

	agent_output_head(o, head);
	do
		n = send(c->s.fd, head, sizeof(head), MSG_NOSIGNAL | MSG_MORE);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return -errno;
	sent = n > 0 ? (size_t)n : 0;
	if (sent == sizeof(head))
		sent += send_pages(c->s.fd, o->data, o->len);
	for (int i = 0; i < 2; i++) {
		size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;

		buf_add(&c->out, (char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
		sent -= skip;
	}
	return 0;
}

/* Fetches from the command what it has to say. A negative errno ends the connection. */
static int fetch(struct conn *c)
{
	struct command *cmd = c->client.command;
	struct agent_started started;
	struct agent_output output;
	struct agent_exit end;
	uint64_t taken;
	int r = 0;

	if (!cmd || c->exit_sent)
		return 0;
	if (!c->started_sent) {
		if (!command_started(cmd, &started))
			return 0;
		agent_put_started(&c->out, &started);
		c->started_sent = true;
	}
	if (pending(c) < OUT_LOW && command_next_stdin_ack(cmd, &taken))
		agent_put_stdin_ack(&c->out, taken);
	while (!r && pending(c) < OUT_LOW && command_next_output(cmd, &output)) {
		if (pending(c) || output.len < COPY_BELOW)
			agent_put_output(&c->out, &output);
		else
			r = send_output(c, &output);
	}
	if (pending(c) < OUT_LOW && command_exit(cmd, &end)) {
		agent_put_exit(&c->out, &end);
		c->exit_sent = true;
	}
	return r;
}

/* Writes what can be written. A negative errno ends the connection. */
static int flush(struct conn *c)
{
	for (;;) {
		int r = fetch(c);
		ssize_t n;

		if (r < 0 || c->out.failed)
			return r < 0 ? r : c->out.failed;
		if (!pending(c))
			break;
		n = send(c->s.fd, c->out.data + c->written, pending(c), MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		c->written += (size_t)n;
		if (pending(c) < OUT_LOW / 2) { /* little is left to move */
			buf_consume(&c->out, c->written);
			c->written = 0;
		}
	}
	if (c->closing && c->phase != PHASE_LINGERING) {
		shutdown(c->s.fd, SHUT_WR);
		c->phase = PHASE_LINGERING;
	}
	return 0;
}

static int handle_read(struct conn *c)
{
	struct message m;
	int r = 0;

	while (!c->closing && !conn_holds(c)) {
		r = frame_reader_next(&c->in, &m);
		if (r < 0)
			return r;
		if (!r)
			return !c->ended ? 0 : frame_reader_idle(&c->in) ? conn_end(c) : -EPIPE;
		r = conn_handle(c, &m);
		if (r < 0)
			return r;
	}
	return 0;
}

/* 0, or a negative errno (-EPIPE at the end of what the peer sends) that ends the connection. */
static int waste_input(struct conn *c)
{
	static char waste[16 * 1024];
	ssize_t n = recv(c->s.fd, waste, sizeof(waste), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return n ? 0 : -EPIPE;
}

static int take_input(struct conn *c)
{
	ssize_t n;

	if (c->closing)
		return waste_input(c);
	n = frame_reader_fill(&c->in, c->s.fd);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	c->ended = !n;
	return 0;
}

/* A peer's windows bound what it has under way, so nothing of it is ever left unread; one without a
 * window waits, and is seen to leave. */
static uint32_t wanted(struct conn *c)
{
	uint32_t events = pending(c) ? EPOLLOUT : 0;

	return events | (conn_holds(c) || c->ended ? EPOLLERR : EPOLLIN);
}

void conn_advance(struct conn *c, int r)
{
	if (!r)
		r = handle_read(c);
	if (!r)
		r = flush(c);
	if (r < 0)
		conn_close(c);
	else
		source_want(&c->s, wanted(c));
}

static void conn_ready(struct source *s, uint32_t events)
{
	struct conn *c = container_of(s, struct conn, s);
	int r = 0;

	if (events & EPOLLIN)
		r = take_input(c);
	else if (events & (EPOLLHUP | EPOLLERR))
		r = -EPIPE;
	conn_advance(c, r);
}

bool conn_room_to_stay(void)
{
	unsigned n = 0;

	for (struct conn *c = first; c; c = c->next)
		n += c->phase == PHASE_COMMAND || c->phase == PHASE_INPUT;
	return n < LONG_MAX_CONNS;
}

/* An answered peer that does not close gives way. */
static bool drop_lingering(void)
{
	for (struct conn *c = first; c; c = c->next) {
		if (c->phase == PHASE_LINGERING) {
			conn_close(c);
			return true;
		}
	}
	return false;
}

static void conn_new(int fd)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c) {
		close(fd);
		return;
	}
	c->s = (struct source)SOURCE_NONE;
	conn_ops_init(c);
	frame_reader_init(&c->in, AGENT_MESSAGE_MAX);
	buf_init(&c->out, OUT_MAX);
	c->prev = last;
	if (last)
		last->next = c;
	else
		first = c;
	last = c;
	count++;
	/* so that a window can be under way as a whole; as far as the kernel allows */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ AGENT_WINDOW }, sizeof(int));
	if (source_open(&c->s, fd, EPOLLIN, conn_ready) < 0) {
		conn_close(c);
		return;
	}
	agent_put_hello(&c->out, 0);
	conn_advance(c, 0);
}

static void accept_timer(struct timer *t)
{
	(void)t;
	source_want(&listener, EPOLLIN);
}

static void listener_ready(struct source *s, uint32_t events)
{
	int fd;

	(void)events;
	if (count >= CONNS_MAX && !drop_lingering()) {
		source_want(s, 0); /* until one is closed; the rest wait in the backlog */
		return;
	}
	fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		conn_new(fd);
		return;
	}
	if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
		return;
	log_warn("accept: errno=%d", errno);
	source_want(s, 0);
	timer_set(&accept_again, clock_mono_ns() + ACCEPT_RETRY_MS * NS_PER_MS, accept_timer);
}

int conn_listen(int fd)
{
	return source_open(&listener, fd, EPOLLIN, listener_ready);
}

bool conn_any_pending(void)
{
	for (struct conn *c = first; c; c = c->next) {
		if (pending(c) || (c->client.command && !c->exit_sent))
			return true;
	}
	return false;
}
