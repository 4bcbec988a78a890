#include "daemon/sandbox/command_conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include "daemon/backend/backend.h"

enum { FULL_PAUSE_MS = 2, OUT_KEEP = 256 * 1024 };

static const struct backend *backend;

/* The reasons an honest agent gives; a foreign word never becomes part of our API. */
static const char *const reasons[] = {
	"args_too_long",     "bad_archive",         "cgroup_failed",
	"command_ended",     "command_exists",      "command_not_executable",
	"command_not_found", "command_running",     "command_unknown",
	"cwd_invalid",       "env_invalid",         "exec_failed",
	"file_failed",       "limit_descriptors",   "limit_memory",
	"limit_pids",        "limit_terminals",     "not_a_terminal",
	"not_started",       "nothing_left",        "offset_invalid",
	"runtime_missing",   "script_too_long",     "signal_failed",
	"spawn_failed",      "stdin_closed",        "stopping",
	"too_many_commands", "too_many_file_calls", "user_invalid",
	"user_not_found",
};

void agent_conn_set_backend(const struct backend *b)
{
	backend = b;
}

void agent_conn_init(struct agent_conn *c)
{
	*c = (struct agent_conn){ .fd = -1, .out = BUF_INIT(CONN_OUT_MAX) };
	frame_reader_init(&c->in, CONN_IN_MAX);
}

void agent_conn_release(struct agent_conn *c)
{
	close_p(&c->fd);
	buf_release(&c->out);
	frame_reader_release(&c->in);
	c->sent = 0;
	c->greeted = c->deaf = false;
}

int agent_conn_open(struct agent_conn *c, const char *sandbox, uint64_t deadline_ns, struct err *e)
{
	const struct timespec pause = { .tv_nsec = FULL_PAUSE_MS * (long)NS_PER_MS };
	int fd;

	while ((fd = backend->dial(sandbox, e)) == -EAGAIN && clock_left_ms(deadline_ns))
		nanosleep(&pause, NULL);
	if (fd == -EAGAIN && deadline_ns)
		return agent_conn_err(-ETIMEDOUT, e);
	if (fd < 0)
		return fd;
	c->fd = fd;
	agent_put_hello(&c->out, 0);
	return 0;
}

bool agent_conn_pending(const struct agent_conn *c)
{
	return c->sent < c->out.len;
}

static void out_clear(struct agent_conn *c)
{
	c->sent = 0;
	buf_clear(&c->out);
	if (c->out.cap > OUT_KEEP)
		buf_release(&c->out);
}

/* Moves each byte once at most. */
static void compact(struct agent_conn *c)
{
	if (c->sent < c->out.len / 2)
		return;
	buf_consume(&c->out, c->sent);
	c->sent = 0;
}

int agent_conn_flush(struct agent_conn *c)
{
	if (c->out.failed)
		return c->out.failed;
	while (agent_conn_pending(c) && !c->deaf) {
		ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			compact(c);
			return 0;
		}
		if (n < 0)
			c->deaf = true;
		else
			c->sent += (size_t)n;
	}
	out_clear(c);
	return 0;
}

int agent_conn_fill(struct agent_conn *c)
{
	ssize_t n = frame_reader_fill(&c->in, c->fd);

	if (n == -EAGAIN)
		return 0;
	if (n == 0)
		return -ECONNRESET;
	return n < 0 ? (int)n : 1;
}

int agent_conn_next(struct agent_conn *c, struct message *ret)
{
	struct agent_hello hello;
	int r = frame_reader_next(&c->in, ret);

	if (r <= 0 || c->greeted)
		return r == -EMSGSIZE ? -EPROTO : r;
	r = agent_get_hello(ret, &hello);
	if (!r)
		r = agent_hello_check(&hello);
	if (r < 0)
		return r;
	c->greeted = true;
	c->version = hello.version;
	r = frame_reader_next(&c->in, ret);
	return r == -EMSGSIZE ? -EPROTO : r;
}

int agent_conn_wait(struct agent_conn *c, uint64_t deadline_ns, struct message *ret, struct err *e)
{
	for (;;) {
		struct pollfd p = { .fd = c->fd, .events = POLLIN };
		int r = agent_conn_next(c, ret);

		if (r > 0)
			return 0;
		if (!r)
			r = agent_conn_flush(c);
		if (r < 0)
			return agent_conn_err(r, e);
		if (agent_conn_pending(c))
			p.events |= POLLOUT;
		r = poll(&p, 1, clock_left_ms(deadline_ns));
		if (r < 0 && errno != EINTR)
			return err_set(e, errno, "wait for the sandbox's agent: %m");
		if (r == 0)
			return agent_conn_err(-ETIMEDOUT, e);
		if (r > 0 && (p.revents & ~POLLOUT)) {
			r = agent_conn_fill(c);
			if (r < 0)
				return agent_conn_err(r, e);
		}
	}
}

int agent_conn_err(int r, struct err *e)
{
	switch (r) {
	case -ETIMEDOUT:
		err_reason(e, ETIMEDOUT, "agent_silent", "the sandbox's agent does not answer");
		break;
	case -EPROTO:
		err_reason(e, EPROTO, "agent_garbage",
			   "the sandbox's agent does not speak the protocol");
		break;
	case -EPROTONOSUPPORT:
		err_reason(e, EPROTONOSUPPORT, "agent_version",
			   "the sandbox's agent speaks another version of the protocol");
		break;
	case -ENOMEM:
	case -EMSGSIZE:
		return err_set(e, r, "talk to the sandbox's agent: %s", strerror(-r));
	default:
		err_reason(e, r, "agent_lost", "the sandbox's agent hung up");
	}
	if (e)
		err_hint(e, "restart the sandbox");
	return r;
}

/* Text of the agent's as text that JSON can carry. */
static void clean_text(char *s)
{
	bool utf8 = utf8_valid(s, strlen(s));

	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f || (!utf8 && (*s & 0x80)))
			*s = '?';
}

int agent_fail_err(const struct message *m, struct err *e)
{
	const char *reason = "agent_refused";
	struct agent_fail f;

	if (agent_get_fail(m, &f) < 0)
		return agent_conn_err(-EPROTO, e);
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (str_eq(f.reason, reasons[i]))
			reason = reasons[i];
	if (!e)
		return -(int)f.code;
	err_reason(e, (int)f.code, reason, "%s", f.text[0] ? f.text : strerror((int)f.code));
	clean_text(e->text);
	if (f.field[0]) {
		err_field(e, "%s", f.field);
		clean_text(e->field);
	}
	return -(int)f.code;
}
