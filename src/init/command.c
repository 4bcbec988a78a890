#include "init/command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/command_priv.h"
#include "init/lxcfs.h"
#include "init/procs.h"
#include "init/spawn.h"

enum { COMMANDS_MAX = 4096, PID_SLOTS = 1024 };

static struct command *first, *last;
static unsigned total;                    /* forgotten ones that live on included */
static struct command *by_pid[PID_SLOTS]; /* those not reaped */
static bool stopping;

void command_init(void)
{
	cgroup_init();
	procs_init();
	lxcfs_init();
	command_terminal_init();
	spawn_init();
}

struct command *command_find(const char *id)
{
	for (struct command *c = last; c; c = c->prev) {
		if (!c->forgotten && str_eq(c->id, id))
			return c;
	}
	return NULL;
}

void command_changed(struct command *c)
{
	if (c->client)
		c->client->changed(c->client);
}

struct command *command_first(void)
{
	return first;
}

bool command_stopping(void)
{
	return stopping;
}

void command_expect(struct command *c)
{
	c->pid_next = by_pid[c->pid % PID_SLOTS];
	by_pid[c->pid % PID_SLOTS] = c;
}

struct command *command_new(const struct agent_run *run)
{
	struct command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	str_copy(c->id, sizeof(c->id), run->id);
	c->out[OUT] = c->out[ERR] = c->in = c->status = c->events = (struct source)SOURCE_NONE;
	c->leaf = (struct leaf)LEAF_NONE;
	c->slave = -1;
	c->terminal = run->flags & RUN_TERMINAL;
	c->takes_stdin = run->flags & (RUN_STDIN | RUN_TERMINAL);
	outbuf_init(&c->outbuf[OUT], run->keep);
	outbuf_init(&c->outbuf[ERR], run->keep);
	command_stdin_init(c);
	buf_init(&c->reports, 2 * sizeof(struct spawn_report));
	c->prev = last;
	if (last)
		last->next = c;
	else
		first = c;
	last = c;
	total++;
	return c;
}

void command_free(struct command *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		last = c->prev;
	total--;
	source_close(&c->out[OUT]);
	source_close(&c->out[ERR]);
	source_close(&c->status);
	source_close(&c->events);
	leaf_close(&c->leaf);
	timer_cancel(&c->limit);
	timer_cancel(&c->drain);
	timer_cancel(&c->grace);
	timer_cancel(&c->retry);
	timer_cancel(&c->pace);
	outbuf_release(&c->outbuf[OUT]);
	outbuf_release(&c->outbuf[ERR]);
	command_stdin_close(c);
	close_p(&c->slave);
	buf_release(&c->reports);
	free(c->cwd);
	free(c->user);
	free(c->warning);
	free(c);
}

bool command_free_if_over(struct command *c)
{
	if (c->forgotten && c->state == ENDED && c->reaped && !command_has_leaf(c) && !c->client &&
	    !c->waiters) {
		command_free(c);
		return true;
	}
	return false;
}

/* A visible command more: the oldest ended ones make room. */
int command_make_room(struct err *e)
{
	unsigned visible = 0;

	if (total < COMMANDS_MAX)
		return 0;
	for (struct command *c = first; c; c = c->next)
		visible += !c->forgotten;
	for (struct command *c = first, *next; c && visible >= COMMANDS_MAX; c = next) {
		next = c->next;
		if (c->state != ENDED || c->forgotten || c->client)
			continue;
		visible--;
		c->forgotten = true;
		command_free_if_over(c);
	}
	if (visible < COMMANDS_MAX && total < 2 * COMMANDS_MAX)
		return 0;
	return err_reason(e, EAGAIN, "too_many_commands", "%d commands are running", COMMANDS_MAX);
}

/* Clients. */

int command_attach(struct command_client *client, const struct agent_attach *a, struct err *e)
{
	struct command *c = command_find(a->id);
	struct command_client *old;

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", a->id);
	if (a->offset[OUT] > c->outbuf[OUT].total || a->offset[ERR] > c->outbuf[ERR].total)
		return err_reason(e, EINVAL, "offset_invalid",
				  "command '%s' has not written that much", a->id);
	old = c->client;
	c->client = client;
	client->command = c;
	if (old) {
		old->command = NULL;
		old->detached(old, NULL);
	}
	outbuf_attach(&c->outbuf[OUT], a->offset[OUT]);
	outbuf_attach(&c->outbuf[ERR], a->offset[ERR]);
	command_stdin_attach(c);
	command_watch_output(c);
	return 0;
}

void command_detach(struct command_client *client)
{
	struct command *c = client->command;

	if (!c)
		return;
	client->command = NULL;
	c->client = NULL;
	/* nobody was told that it runs, and whoever asked has given up: it must not run later */
	if (c->state == STARTING) {
		if (!command_read_status(c))
			return;
		if (c->state == STARTING) {
			command_start_failed(c, NULL);
			return;
		}
	}
	outbuf_detach(&c->outbuf[OUT]);
	outbuf_detach(&c->outbuf[ERR]);
	command_bound_memory();
	if (!command_free_if_over(c))
		command_watch_output(c);
}

bool command_started(const struct command *c, struct agent_started *ret)
{
	if (c->state == STARTING)
		return false;
	*ret = (struct agent_started){
		.pid = (uint32_t)c->pid,
		.age_us = (clock_mono_ns() - c->started_ns) / 1000,
		.cwd = c->cwd,
		.user = c->user,
		.warning = c->warning,
	};
	return true;
}

bool command_next_output(struct command *c, struct agent_output *ret)
{
	size_t unacked = c->outbuf[OUT].unacked + c->outbuf[ERR].unacked;
	size_t most = unacked < AGENT_WINDOW ? AGENT_WINDOW - unacked : 0;

	if (c->state == STARTING)
		return false;
	for (int n = 0; n < 2; n++) {
		int i = c->turn ^= 1;

		ret->len = outbuf_peek(&c->outbuf[i],
				       most < AGENT_OUTPUT_DATA ? most : AGENT_OUTPUT_DATA,
				       &ret->offset, &ret->data);
		if (ret->len) {
			ret->stream = (uint8_t)(i + 1);
			outbuf_sent(&c->outbuf[i], ret->offset, ret->len);
			return true;
		}
	}
	return false;
}

bool command_exit(const struct command *c, struct agent_exit *ret)
{
	const void *data;
	uint64_t offset;

	if (c->state != ENDED || outbuf_peek(&c->outbuf[OUT], 1, &offset, &data) ||
	    outbuf_peek(&c->outbuf[ERR], 1, &offset, &data))
		return false;
	*ret = c->exit;
	command_fill_totals(c, ret);
	return true;
}

int command_ack(struct command *c, const struct agent_ack *a)
{
	if (outbuf_ack(&c->outbuf[OUT], a->offset[OUT]) < 0 ||
	    outbuf_ack(&c->outbuf[ERR], a->offset[ERR]) < 0)
		return -EPROTO;
	command_watch_output(c);
	return 0;
}

/* Operations. */

int command_signal(const struct agent_signal *s, struct err *e)
{
	struct command *c = command_find(s->id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", s->id);
	if (c->reaped || c->state == STARTING)
		return err_reason(e, ESRCH, "command_ended", "command '%s' %s", s->id,
				  c->reaped ? "has ended" : "has not started yet");
	if (c->terminal && s->signal == SIGHUP) {
		command_hang_up(c);
		return 0;
	}
	if (kill(-command_foreground(c), (int)s->signal) < 0)
		return err_reason(e, errno, "signal_failed", "signal command '%s': %m", s->id);
	return 0;
}

int command_forget(const char *id, struct err *e)
{
	struct command *c = command_find(id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", id);
	if (c->state != ENDED)
		return err_reason(e, EBUSY, "command_running", "command '%s' is running", id);
	if (command_tree_left(c)) {
		/* still known, so that what it left can be terminated */
		c->forget_later = true;
		if (!c->client) {
			outbuf_release(&c->outbuf[OUT]);
			outbuf_release(&c->outbuf[ERR]);
		}
		return 0;
	}
	c->forgotten = true;
	command_free_if_over(c);
	return 0;
}

void command_list(void (*each)(void *arg, const struct agent_command *c), void *arg)
{
	for (struct command *c = first; c; c = c->next) {
		struct agent_command line = {
			.id = c->id,
			.pid = (uint32_t)c->pid,
			.ended = c->state == ENDED,
			.left = c->state == ENDED && command_tree_left(c),
			.exit = c->exit,
		};

		if (c->forgotten)
			continue;
		command_fill_totals(c, &line.exit);
		each(arg, &line);
	}
}

/* PID 1. */

void command_reaped(pid_t pid, int status)
{
	struct command **p = &by_pid[pid % PID_SLOTS], *c;

	while (*p && (*p)->pid != pid)
		p = &(*p)->pid_next;
	c = *p;
	if (!c)
		return;
	*p = c->pid_next;
	c->reaped = true;
	c->wait_status = status;
	c->ended_ns = c->ended_ns ? c->ended_ns : clock_mono_ns();
	if (c->state == STARTING && !command_read_status(c))
		return;
	if (c->state == RUNNING)
		command_drain(c);
	else
		command_settle(c);
}

void command_stop_all(int sig, void (*each)(void *arg, pid_t pid), void *arg)
{
	stopping = true;
	for (struct command *c = last; c; c = c->prev) {
		command_tree_signal(c, sig, each, arg);
		command_mark_killed(c, sig);
	}
}

bool command_any_running(void)
{
	for (struct command *c = first; c; c = c->next) {
		if (c->state != ENDED)
			return true;
	}
	return false;
}
