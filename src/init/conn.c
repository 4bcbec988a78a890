#include "init/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include "init/command.h"
#include "init/loop.h"
#include "init/shutdown.h"

enum {
	CONNS_MAX = 256,
	OUT_LOW = 64 * 1024, /* below it more output is fetched from the command */
	/* LIST answers at once: 4096 lines of less than 256 bytes */
	OUT_MAX = 2 * 1024 * 1024,
	ACCEPT_RETRY_MS = 50,
};

enum phase {
	PHASE_HELLO,     /* its HELLO has not come */
	PHASE_IDLE,      /* its operation has not come */
	PHASE_COMMAND,   /* attached to a command, or about to be */
	PHASE_WAITING,   /* TERMINATE, until the tree is gone */
	PHASE_LINGERING, /* answered: what comes is thrown away */
};

struct conn {
	struct conn *next, *prev;
	struct source s;
	enum phase phase;
	struct frame_reader in;
	struct buf out;
	size_t written; /* bytes of `out` */
	bool closing;   /* shut down for writing once `out` is written */
	bool started_sent, exit_sent;
	struct command_client client;
	struct command_waiter waiter;
};

static struct source listener = SOURCE_NONE;
static struct timer accept_again;
static struct conn *first, *last; /* in the order they came */
static unsigned count;

static void listener_ready(struct source *s, uint32_t events);

static void conn_close(struct conn *c)
{
	command_detach(&c->client);
	command_wait_cancel(&c->waiter);
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

/* Fetches from the command what it has to say. */
static void fetch(struct conn *c)
{
	struct command *cmd = c->client.command;
	struct agent_started started;
	struct agent_output output;
	struct agent_exit end;
	uint64_t taken;

	if (!cmd || c->exit_sent)
		return;
	if (!c->started_sent) {
		if (!command_started(cmd, &started))
			return;
		agent_put_started(&c->out, &started);
		c->started_sent = true;
	}
	if (pending(c) < OUT_LOW && command_next_stdin_ack(cmd, &taken))
		agent_put_stdin_ack(&c->out, taken);
	while (pending(c) < OUT_LOW && command_next_output(cmd, &output))
		agent_put_output(&c->out, &output);
	if (pending(c) < OUT_LOW && command_exit(cmd, &end)) {
		agent_put_exit(&c->out, &end);
		c->exit_sent = true;
	}
}

/* Writes what can be written. A negative errno ends the connection. */
static int flush(struct conn *c)
{
	for (;;) {
		ssize_t n;

		fetch(c);
		if (c->out.failed)
			return c->out.failed;
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

static void answered(struct conn *c)
{
	c->closing = true;
}

static void put_fail(struct conn *c, const struct agent_fail *f)
{
	agent_put_fail(&c->out, f);
	answered(c);
}

static void put_err(struct conn *c, const struct err *e)
{
	put_fail(c, &(struct agent_fail){
			    .code = (uint32_t)e->code,
			    .reason = e->reason ? e->reason : "agent_error",
			    .field = e->field,
			    .text = e->text,
		    });
}

static void put_done(struct conn *c)
{
	agent_put_empty(&c->out, AGENT_DONE);
	answered(c);
}

/* Handlers: 0, or a negative errno for a frame no honest peer sends. */

static int on_hello(struct conn *c, const struct message *m)
{
	struct agent_hello h;

	if (agent_get_hello(m, &h) < 0)
		return -EPROTO;
	c->phase = PHASE_IDLE;
	if (agent_hello_check(&h) < 0)
		put_fail(c, &(struct agent_fail){ EPROTONOSUPPORT, "agent_version", "",
						  "the agent does not speak this version" });
	return 0;
}

static bool client_left(const struct conn *c)
{
	struct pollfd p = { .fd = c->s.fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static int on_run(struct conn *c, const struct message *m)
{
	struct agent_run run;
	struct err e = ERR_INIT;

	/* it has given up meanwhile: to run it now would be to run it behind its back */
	if (client_left(c))
		return -EPIPE;
	if (agent_get_run(m, &run) < 0)
		return -EPROTO;
	c->phase = PHASE_COMMAND;
	if (command_run(&c->client, &run, &e) < 0)
		put_err(c, &e);
	agent_run_release(&run);
	return 0;
}

static int on_attach(struct conn *c, const struct message *m)
{
	struct agent_attach a;
	struct err e = ERR_INIT;

	if (agent_get_attach(m, &a) < 0)
		return -EPROTO;
	c->phase = PHASE_COMMAND;
	if (command_attach(&c->client, &a, &e) < 0)
		put_err(c, &e);
	return 0;
}

static int on_stdin(struct conn *c, const struct message *m)
{
	return c->client.command ? command_stdin(c->client.command, m->data, m->len) : 0;
}

static int on_stdin_eof(struct conn *c, const struct message *m)
{
	if (m->len)
		return -EPROTO;
	if (c->client.command)
		command_stdin_eof(c->client.command);
	return 0;
}

static int on_ack(struct conn *c, const struct message *m)
{
	struct agent_ack a;

	if (agent_get_ack(m, &a) < 0)
		return -EPROTO;
	return c->client.command ? command_ack(c->client.command, &a) : 0;
}

static int on_signal(struct conn *c, const struct message *m)
{
	struct agent_signal s;
	struct err e = ERR_INIT;

	if (agent_get_signal(m, &s) < 0)
		return -EPROTO;
	if (command_signal(&s, &e) < 0)
		put_err(c, &e);
	else
		put_done(c);
	return 0;
}

static int on_terminate(struct conn *c, const struct message *m)
{
	struct agent_signal s;
	struct err e = ERR_INIT;

	if (agent_get_signal(m, &s) < 0)
		return -EPROTO;
	c->phase = PHASE_WAITING;
	if (command_terminate(&c->waiter, &s, &e) < 0)
		put_err(c, &e);
	return 0;
}

static void put_line(void *arg, const struct agent_command *line)
{
	struct conn *c = arg;

	agent_put_command(&c->out, line);
}

static int on_list(struct conn *c, const struct message *m)
{
	if (m->len)
		return -EPROTO;
	command_list(put_line, c);
	put_done(c);
	return 0;
}

static int on_forget(struct conn *c, const struct message *m)
{
	const char *id;
	struct err e = ERR_INIT;

	if (agent_get_id(m, &id) < 0)
		return -EPROTO;
	if (command_forget(id, &e) < 0)
		put_err(c, &e);
	else
		put_done(c);
	return 0;
}

static int on_stop(struct conn *c, const struct message *m)
{
	uint32_t grace_ms;

	if (agent_get_stop(m, &grace_ms) < 0)
		return -EPROTO;
	put_done(c);
	shutdown_start(grace_ms);
	return 0;
}

static const struct handler {
	uint8_t type;
	enum phase phase; /* the only one it may come in */
	int (*handle)(struct conn *c, const struct message *m);
} handlers[] = {
	{ AGENT_HELLO, PHASE_HELLO, on_hello },
	{ AGENT_RUN, PHASE_IDLE, on_run },
	{ AGENT_ATTACH, PHASE_IDLE, on_attach },
	{ AGENT_SIGNAL, PHASE_IDLE, on_signal },
	{ AGENT_TERMINATE, PHASE_IDLE, on_terminate },
	{ AGENT_LIST, PHASE_IDLE, on_list },
	{ AGENT_FORGET, PHASE_IDLE, on_forget },
	{ AGENT_STOP, PHASE_IDLE, on_stop },
	{ AGENT_STDIN, PHASE_COMMAND, on_stdin },
	{ AGENT_STDIN_EOF, PHASE_COMMAND, on_stdin_eof },
	{ AGENT_ACK, PHASE_COMMAND, on_ack },
};

static int handle(struct conn *c, const struct message *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(handlers); i++) {
		if (handlers[i].type == m->type)
			return handlers[i].phase == c->phase ? handlers[i].handle(c, m) : -EPROTO;
	}
	return -EPROTO;
}

static int handle_read(struct conn *c)
{
	struct message m;
	int r = 0;

	while (!c->closing) {
		r = frame_reader_next(&c->in, &m);
		if (r <= 0)
			return r;
		r = handle(c, &m);
		if (r < 0)
			return r;
	}
	return 0;
}

/* 0, or a negative errno (-EPIPE at the end of what the peer sends) that ends the connection. */
static int take_input(struct conn *c)
{
	static char waste[16 * 1024];
	ssize_t n;

	if (c->closing) {
		n = recv(c->s.fd, waste, sizeof(waste), MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		return n ? 0 : -EPIPE;
	}
	n = frame_reader_fill(&c->in, c->s.fd);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	return n ? handle_read(c) : -EPIPE;
}

/* Brings everything forward after any change; may end the connection. */
static void advance(struct conn *c, int r)
{
	if (!r && !c->closing)
		r = handle_read(c);
	if (!r)
		r = flush(c);
	if (r < 0) {
		conn_close(c);
		return;
	}
	/* a peer's windows bound what it has under way, so nothing is ever left unread */
	source_want(&c->s, EPOLLIN | (pending(c) ? EPOLLOUT : 0));
}

static void conn_ready(struct source *s, uint32_t events)
{
	struct conn *c = container_of(s, struct conn, s);
	int r = 0;

	if (events & EPOLLIN)
		r = take_input(c);
	else if (events & (EPOLLHUP | EPOLLERR))
		r = -EPIPE;
	advance(c, r);
}

static void client_changed(struct command_client *client)
{
	advance(container_of(client, struct conn, client), 0);
}

static void client_detached(struct command_client *client, const struct agent_fail *fail)
{
	struct conn *c = container_of(client, struct conn, client);

	if (!fail) { /* what it has is no longer ours to add to */
		conn_close(c);
		return;
	}
	put_fail(c, fail);
	advance(c, 0);
}

static void waiter_gone(struct command_waiter *w)
{
	struct conn *c = container_of(w, struct conn, waiter);

	put_done(c);
	advance(c, 0);
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
	c->client.changed = client_changed;
	c->client.detached = client_detached;
	c->waiter.gone = waiter_gone;
	frame_reader_init(&c->in, AGENT_MESSAGE_MAX);
	buf_init(&c->out, OUT_MAX);
	c->prev = last;
	if (last)
		last->next = c;
	else
		first = c;
	last = c;
	count++;
	if (source_open(&c->s, fd, EPOLLIN, conn_ready) < 0) {
		conn_close(c);
		return;
	}
	agent_put_hello(&c->out, 0);
	advance(c, 0);
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
