#include <errno.h>
#include <unistd.h>

#include "base/banned.h"

#include "init/command_priv.h"

enum { READ_SIZE = 64 * 1024 };

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
	uint32_t want = c->state != ENDED && command_stalled(c) ? 0 : EPOLLIN;

	source_want(&c->out[OUT], want);
	source_want(&c->out[ERR], want);
}

static void output_event(struct command *c, int i)
{
	ssize_t n = command_read_output(c, i);

	if (c->state == DRAINING && c->out[OUT].fd < 0 && c->out[ERR].fd < 0) {
		command_finish(c);
		return;
	}
	if (c->state == ENDED)
		return;
	command_watch_output(c);
	if (n > 0)
		command_changed(c);
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
