#include <errno.h>
#include <unistd.h>

#include "base/banned.h"

#include "init/command_priv.h"

void command_stdin_init(struct command *c)
{
	/* what the pipe has taken is at most half of it */
	buf_init(&c->stdin[CLIENT].ahead, 2 * AGENT_STDIN_KEEP);
	buf_init(&c->stdin[WRITERS].ahead, 4 * AGENT_STDIN_WINDOW);
}

static size_t left(const struct stdin_queue *q)
{
	return q->ahead.len - q->at;
}

void command_stdin_close(struct command *c)
{
	source_close(&c->in);
	for (int i = CLIENT; i <= WRITERS; i++) {
		buf_release(&c->stdin[i].ahead);
		c->stdin[i].at = 0;
	}
}

/* Of the client's bytes. Those left by earlier clients lie before them. */
static uint64_t stdin_taken(const struct command *c)
{
	size_t waits = left(&c->stdin[CLIENT]);

	return c->stdin_came > waits ? c->stdin_came - waits : 0;
}

/* 0, or a negative errno: -EAGAIN when the command has enough. */
static int flush_queue(struct command *c, struct stdin_queue *q)
{
	while (left(q)) {
		ssize_t n = write(c->in.fd, q->ahead.data + q->at, left(q));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		q->at += (size_t)n;
	}
	return 0;
}

static void compact(struct stdin_queue *q)
{
	if (q->at < q->ahead.len / 2) /* so each byte is moved once on average */
		return;
	buf_consume(&q->ahead, q->at);
	q->at = 0;
}

static void stdin_flush(struct command *c)
{
	bool all;
	int r;

	if (c->in.fd < 0)
		return;
	c->stdin_turn ^= 1; /* whose reader stops in the middle is the first one the next time */
	r = flush_queue(c, &c->stdin[c->stdin_turn]);
	if (!r)
		r = flush_queue(c, &c->stdin[!c->stdin_turn]);
	if (r < 0 && r != -EAGAIN) { /* a reader that closed early is an ordinary end */
		command_stdin_close(c);
		return;
	}
	all = !left(&c->stdin[CLIENT]) && !left(&c->stdin[WRITERS]);
	compact(&c->stdin[CLIENT]);
	compact(&c->stdin[WRITERS]);
	if (c->stdin_ending && all)
		command_stdin_close(c);
	source_want(&c->in, all ? EPOLLERR : EPOLLOUT);
}

static bool has_room(const struct command *c)
{
	return left(&c->stdin[WRITERS]) < AGENT_STDIN_WINDOW;
}

static void tell_room(struct command *c)
{
	struct command_writer *w = c->writers;

	while (w && has_room(c)) {
		if (!w->waits) {
			w = w->next;
			continue;
		}
		w->waits = false;
		w->room(w);
		w = c->writers; /* it may have ended others */
	}
}

void command_in_ready(struct source *s, uint32_t events)
{
	struct command *c = container_of(s, struct command, in);

	if (events & (EPOLLERR | EPOLLHUP))
		command_stdin_close(c);
	else
		stdin_flush(c);
	tell_room(c);
	command_changed(c);
}

static int add(struct command *c, struct stdin_queue *q, const void *data, size_t len)
{
	if (c->in.fd < 0 || c->stdin_ending)
		return 0;
	if (buf_add(&q->ahead, data, len) < 0)
		return q->ahead.failed;
	stdin_flush(c);
	return 0;
}

int command_stdin(struct command *c, const void *data, size_t len)
{
	if (len > AGENT_STDIN_WINDOW - (c->stdin_came - c->stdin_acked))
		return -EPROTO;
	c->stdin_came += len;
	/* clients that come, fill their window and go, with nobody reading */
	if (len > AGENT_STDIN_KEEP - left(&c->stdin[CLIENT]))
		return -ENOBUFS;
	return add(c, &c->stdin[CLIENT], data, len);
}

/* The end of a writer, the last word to it. */
static void tell_over(struct command *c, struct command_writer *except, const char *reason,
		      const char *text)
{
	struct command_writer **p = &c->writers, *w;

	while ((w = *p)) {
		if (w == except) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		w->command = NULL;
		w->over(w, &(struct agent_fail){ EPIPE, reason, "", text });
	}
}

static void end(struct command *c, struct command_writer *by)
{
	if (c->terminal || c->stdin_ending)
		return;
	c->stdin_ending = true;
	stdin_flush(c);
	tell_over(c, by, "stdin_closed", "standard input of the command has ended");
}

void command_stdin_eof(struct command *c)
{
	end(c, NULL);
}

bool command_next_stdin_ack(struct command *c, uint64_t *ret_taken)
{
	uint64_t taken = stdin_taken(c), fresh = taken - c->stdin_acked;

	if (c->state == STARTING || !fresh ||
	    (fresh < AGENT_STDIN_ACK_AT && left(&c->stdin[CLIENT])))
		return false;
	c->stdin_acked = *ret_taken = taken;
	return true;
}

void command_stdin_attach(struct command *c)
{
	c->stdin_came = c->stdin_acked = 0;
}

/* Writers. */

int command_input(struct command_writer *w, const char *id, struct err *e)
{
	struct command *c = command_find(id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", id);
	if (c->reaped || c->state == ENDED)
		return err_reason(e, ESRCH, "command_ended", "command '%s' has ended", id);
	if (!c->takes_stdin || c->stdin_ending)
		return err_reason(e, EPIPE, "stdin_closed",
				  c->takes_stdin
					  ? "standard input of command '%s' has ended"
					  : "command '%s' was started without standard input",
				  id);
	w->command = c;
	w->next = c->writers;
	c->writers = w;
	return 0;
}

bool command_input_room(struct command_writer *w)
{
	w->waits = w->command && !has_room(w->command);
	return !w->waits;
}

int command_input_add(struct command_writer *w, const void *data, size_t len)
{
	if (len > AGENT_STDIN_WINDOW)
		return -EPROTO;
	return w->command ? add(w->command, &w->command->stdin[WRITERS], data, len) : 0;
}

void command_input_eof(struct command_writer *w)
{
	if (w->command)
		end(w->command, w);
}

void command_input_cancel(struct command_writer *w)
{
	struct command_writer **p;

	if (!w->command)
		return;
	for (p = &w->command->writers; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	w->command = NULL;
}

void command_writers_end(struct command *c)
{
	tell_over(c, NULL, "command_ended", "the command has ended");
}
