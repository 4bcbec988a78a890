#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"

#include "init/command_priv.h"

enum {
	READ_SIZE = 64 * 1024,
	PACE_MOST_US = 250, /* from one read to the next … */
	PACE_LEAST_US = 20, /* … and below this at once */
	LITTLE = 64 * 1024, /* bytes: a longer pause would have brought more */
	MUCH = 128 * 1024,  /* half a pipe: with a longer one the command would wait */
};

bool command_stalled(const struct command *c)
{
	size_t held = outbuf_held(&c->outbuf[OUT]) + outbuf_held(&c->outbuf[ERR]);

	return c->client && (held >= AGENT_WINDOW || (held && outbuf_memory() > AGENT_AHEAD_ALL));
}

/* The oldest commands that nobody reads pay first, with their tails. */
void command_bound_memory(void)
{
	for (struct command *c = command_first(); c && outbuf_memory() > AGENT_KEEP_ALL;
	     c = c->next) {
		if (!c->client) {
			outbuf_drop_tail(&c->outbuf[OUT]);
			outbuf_drop_tail(&c->outbuf[ERR]);
		}
	}
	for (struct command *c = command_first(); c && outbuf_memory() > AGENT_KEEP_ALL;
	     c = c->next) {
		if (!c->client) {
			outbuf_drop_head(&c->outbuf[OUT]);
			outbuf_drop_head(&c->outbuf[ERR]);
		}
	}
}

/* One read, most of it to where it stays. What comes after the end was told is read too, so that
 * nothing left behind blocks on it. */
static ssize_t read_some(struct command *c, int i)
{
	static char data[READ_SIZE];
	struct outbuf *b = &c->outbuf[i];
	struct iovec to[2] = { { 0 }, { data, sizeof(data) } };
	ssize_t n;

	if (c->state != ENDED)
		to[0].iov_base = outbuf_room(b, &to[0].iov_len);
	do
		n = readv(c->out[i].fd, to, 2);
	while (n < 0 && errno == EINTR);
	if (n <= 0 || c->state == ENDED)
		return n < 0 ? -errno : n;
	if ((size_t)n < to[0].iov_len)
		to[0].iov_len = (size_t)n;
	if (to[0].iov_len)
		outbuf_commit(b, to[0].iov_len);
	outbuf_append(b, data, (size_t)n - to[0].iov_len);
	command_bound_memory();
	return n;
}

/* One read. The count, 0 at the end (the source is closed then), -EAGAIN. */
ssize_t command_read_output(struct command *c, int i)
{
	ssize_t n = read_some(c, i);

	if (n > 0 || n == -EAGAIN)
		return n;
	source_close(&c->out[i]);
	return 0;
}

void command_watch_output(struct command *c)
{
	bool hold = c->state != ENDED && (c->pacing || command_stalled(c));

	source_want(&c->out[OUT], hold ? 0 : EPOLLIN);
	source_want(&c->out[ERR], hold ? 0 : EPOLLIN);
}

/* All that is there, up to the window. */
static ssize_t read_all(struct command *c, int i)
{
	ssize_t n, some = 0;

	do {
		n = c->out[i].fd < 0 ? 0 : command_read_output(c, i);
		some += n > 0 ? n : 0;
	} while (n > 0 && some < AGENT_WINDOW && c->state != ENDED && !command_stalled(c));
	return some;
}

static void adapt_pace(struct command *c, size_t some)
{
	if (some >= MUCH)
		c->pace_us /= 2;
	else if (some < LITTLE)
		c->pace_us = c->pace_us ? 2 * c->pace_us : PACE_LEAST_US;
	if (c->pace_us < PACE_LEAST_US)
		c->pace_us = 0;
	if (c->pace_us > PACE_MOST_US)
		c->pace_us = PACE_MOST_US;
}

/* Reads from the streams in `mask`. */
static void take_output(struct command *c, unsigned mask)
{
	ssize_t some = 0;

	for (int i = OUT; i <= ERR; i++)
		some += mask & 1u << i ? read_all(c, i) : 0;
	c->read_ns = clock_mono_ns();
	adapt_pace(c, (size_t)some);
	if (c->state == DRAINING && c->out[OUT].fd < 0 && c->out[ERR].fd < 0) {
		command_finish(c);
		return;
	}
	if (c->state == ENDED)
		return;
	command_watch_output(c);
	if (some > 0)
		command_changed(c);
}

static void pace_over(struct timer *t)
{
	struct command *c = container_of(t, struct command, pace);

	c->pacing = false;
	if (command_stalled(c))
		command_watch_output(c);
	else
		take_output(c, 1u << OUT | 1u << ERR);
}

/* The first bytes after a pause go out at once. What follows closely collects in the pipe for a
 * moment: a writer that is awake makes many small pieces, and each would wake everybody from here to
 * the client. */
static void output_event(struct command *c, int i)
{
	uint64_t next = c->read_ns + c->pace_us * NS_PER_MS / 1000;

	if (c->state != RUNNING || clock_mono_ns() >= next) {
		take_output(c, 1u << i);
		return;
	}
	c->pacing = true;
	timer_set(&c->pace, next, pace_over);
	command_watch_output(c);
}

void command_out_ready(struct source *s, uint32_t events)
{
	(void)events;
	output_event(container_of(s, struct command, out[OUT]), OUT);
}

void command_err_ready(struct source *s, uint32_t events)
{
	(void)events;
	output_event(container_of(s, struct command, out[ERR]), ERR);
}
