#include <errno.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"

#include "init/command_priv.h"

enum { READ_SIZE = 64 * 1024, PACE_US = 250, PACE_BELOW = 64 * 1024 };

bool command_stalled(const struct command *c)
{
	return c->client &&
	       outbuf_held(&c->outbuf[OUT]) + outbuf_held(&c->outbuf[ERR]) >= AGENT_WINDOW;
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

/* One read. The count, 0 at the end (the source is closed then), -EAGAIN. */
ssize_t command_read_output(struct command *c, int i)
{
	static char data[READ_SIZE];
	ssize_t n;

	do
		n = read(c->out[i].fd, data, sizeof(data));
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n <= 0) {
		source_close(&c->out[i]);
		return 0;
	}
	/* what comes after the end was told is read, so that nothing left behind blocks on it */
	if (c->state != ENDED) {
		outbuf_append(&c->outbuf[i], data, (size_t)n);
		command_bound_memory();
	}
	return n;
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

/* Reads from the streams in `mask`. */
static void take_output(struct command *c, unsigned mask)
{
	ssize_t some = 0;

	for (int i = OUT; i <= ERR; i++)
		some += mask & 1u << i ? read_all(c, i) : 0;
	c->read_ns = some < PACE_BELOW ? clock_mono_ns() : 0;
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
	uint64_t next = c->read_ns + PACE_US * NS_PER_MS / 1000;

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
