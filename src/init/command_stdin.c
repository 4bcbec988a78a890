#include <errno.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/banned.h"

#include "init/command_priv.h"

static size_t left(const struct stdin_queue *q)
{
	return q->ahead.len - q->at;
}

static size_t ahead_of_all; /* bytes that writers are ahead of all commands */

void command_stdin_init(struct command *c)
{
	/* what the pipe has taken is at most half of it */
	buf_init(&c->stdin[CLIENT].ahead, 2 * AGENT_STDIN_KEEP);
	buf_init(&c->stdin[WRITERS].ahead, 2 * (AGENT_STDIN_KEEP + AGENT_STDIN_WINDOW));
}

void command_stdin_close(struct command *c)
{
	source_close(&c->in);
	ahead_of_all -= left(&c->stdin[WRITERS]);
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
		bool writers = q == &c->stdin[WRITERS];
		ssize_t n = write(c->in.fd, q->ahead.data + q->at, left(q));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		q->at += (size_t)n;
		ahead_of_all -= writers ? (size_t)n : 0;
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
	size_t waits = left(&c->stdin[WRITERS]);

	return waits < AGENT_STDIN_KEEP && (!waits || ahead_of_all < AGENT_AHEAD_ALL);
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
	ahead_of_all += q == &c->stdin[WRITERS] ? len : 0;
	if (len)
		c->line_open = !strchr("\r\n", ((const char *)data)[len - 1]);
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

/* Writers have done what they could: only one that comes with more is told. */
static void release_writers(struct command *c, enum writer_end why)
{
	struct command_writer *w;

	while ((w = c->writers)) {
		c->writers = w->next;
		w->command = NULL;
		w->why = why;
		if (w->waits)
			w->room(w);
	}
}

/* Behind a line that is not finished the first one only hands that over. */
static void type_eof(struct command *c, struct stdin_queue *q)
{
	struct termios t;

	if (c->in.fd < 0 || tcgetattr(c->in.fd, &t) < 0 || !(t.c_lflag & ICANON) ||
	    t.c_cc[VEOF] == _POSIX_VDISABLE)
		return;
	(void)add(c, q, (char[]){ (char)t.c_cc[VEOF], (char)t.c_cc[VEOF] }, c->line_open ? 2 : 1);
	c->line_open = false;
}

static void end(struct command *c, struct stdin_queue *q)
{
	if (c->terminal)
		type_eof(c, q);
	if (c->terminal || c->stdin_ending)
		return;
	c->stdin_ending = true;
	stdin_flush(c);
	release_writers(c, WRITER_CLOSED);
}

void command_stdin_eof(struct command *c)
{
	end(c, &c->stdin[CLIENT]);
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

static int refuse(enum writer_end why, struct err *e)
{
	if (why == WRITER_ENDED)
		return err_reason(e, ESRCH, "command_ended", "the command has ended");
	return err_reason(e, EPIPE, "stdin_closed", "standard input of the command has ended");
}

int command_input(struct command_writer *w, const char *id, struct err *e)
{
	struct command *c = command_find(id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", id);
	if (c->reaped || c->state == ENDED)
		return refuse(WRITER_ENDED, e);
	if (!c->takes_stdin)
		return err_reason(e, EPIPE, "stdin_closed",
				  "the command was started without standard input");
	if (c->stdin_ending)
		return refuse(WRITER_CLOSED, e);
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

int command_input_add(struct command_writer *w, const void *data, size_t len, struct err *e)
{
	int r;

	if (!w->command)
		return refuse(w->why, e);
	r = add(w->command, &w->command->stdin[WRITERS], data, len);
	return r < 0 ? err_reason(e, r, "limit_memory", "out of memory") : 0;
}

void command_input_eof(struct command_writer *w)
{
	if (w->command)
		end(w->command, &w->command->stdin[WRITERS]);
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
	release_writers(c, WRITER_ENDED);
}
