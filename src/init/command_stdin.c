#include <errno.h>
#include <unistd.h>

#include "base/banned.h"

#include "init/command_priv.h"

void command_stdin_init(struct command *c)
{
	/* what the pipe has taken is at most half of it */
	buf_init(&c->stdin_ahead, 2 * AGENT_STDIN_KEEP);
}

void command_stdin_close(struct command *c)
{
	source_close(&c->in);
	buf_release(&c->stdin_ahead);
	c->stdin_at = 0;
}

static size_t stdin_left(const struct command *c)
{
	return c->stdin_ahead.len - c->stdin_at;
}

/* Of the client's bytes. Those left by earlier clients lie before them. */
static uint64_t stdin_taken(const struct command *c)
{
	return c->stdin_came > stdin_left(c) ? c->stdin_came - stdin_left(c) : 0;
}

static void stdin_flush(struct command *c)
{
	struct buf *b = &c->stdin_ahead;

	while (c->in.fd >= 0 && stdin_left(c)) {
		ssize_t n = write(c->in.fd, b->data + c->stdin_at, stdin_left(c));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* a reader that closed early is an ordinary end */
			command_stdin_close(c);
			return;
		}
		c->stdin_at += (size_t)n;
	}
	if (c->stdin_at >= b->len / 2) { /* moves each byte once on average */
		buf_consume(b, c->stdin_at);
		c->stdin_at = 0;
	}
	if (c->stdin_ending && !b->len)
		command_stdin_close(c);
	source_want(&c->in, b->len ? EPOLLOUT : EPOLLERR);
}

void command_in_ready(struct source *s, uint32_t events)
{
	struct command *c = container_of(s, struct command, in);

	if (events & EPOLLERR)
		command_stdin_close(c);
	else
		stdin_flush(c);
	command_changed(c);
}

int command_stdin(struct command *c, const void *data, size_t len)
{
	if (len > AGENT_STDIN_WINDOW - (c->stdin_came - c->stdin_acked))
		return -EPROTO;
	c->stdin_came += len;
	if (c->in.fd < 0 || c->stdin_ending)
		return 0;
	/* clients that come, fill their window and go, with nobody reading */
	if (len > AGENT_STDIN_KEEP - stdin_left(c))
		return -ENOBUFS;
	if (buf_add(&c->stdin_ahead, data, len) < 0)
		return c->stdin_ahead.failed;
	stdin_flush(c);
	return 0;
}

void command_stdin_eof(struct command *c)
{
	c->stdin_ending = true;
	stdin_flush(c);
}

bool command_next_stdin_ack(struct command *c, uint64_t *ret_taken)
{
	uint64_t taken = stdin_taken(c), fresh = taken - c->stdin_acked;

	if (c->state == STARTING || !fresh || (fresh < AGENT_STDIN_ACK_AT && stdin_left(c)))
		return false;
	c->stdin_acked = *ret_taken = taken;
	return true;
}

void command_stdin_attach(struct command *c)
{
	c->stdin_came = c->stdin_acked = 0;
}
