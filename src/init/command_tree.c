#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/command_priv.h"
#include "init/procs.h"

enum { LEAF_RETRY_MS = 20 };

bool command_tree_left(struct command *c)
{
	if (command_has_leaf(c))
		return leaf_populated(&c->leaf);
	/* a leaf that is no more was empty */
	if (!c->leafless || c->empty)
		return false;
	/* once nothing is left its pid may come to be another's */
	c->empty = procs_signal_tree(c->pid, 0) <= 0 && c->reaped;
	return !c->empty;
}

/* Shells on a terminal do not end by a TERM: their line goes dead as well. */
void command_tree_signal(struct command *c, int sig, void (*each)(void *arg, pid_t pid), void *arg)
{
	if (c->terminal && !c->reaped && sig == SIGTERM)
		command_hang_up(c);
	if (command_has_leaf(c))
		leaf_signal(&c->leaf, sig, each, arg);
}

void command_tree_kill(struct command *c)
{
	if (command_has_leaf(c) && leaf_kill(&c->leaf) < 0)
		leaf_signal(&c->leaf, SIGKILL, NULL, NULL);
	else if (c->leafless)
		procs_signal_tree(c->pid, SIGKILL);
	/* it may be born and not in its leaf yet */
	if (!c->reaped)
		kill(c->pid, SIGKILL);
}

static void tell_waiters(struct command *c)
{
	while (c->waiters) {
		struct command_waiter *w = c->waiters;

		c->waiters = w->next;
		w->command = NULL;
		w->gone(w);
	}
}

static void retry_settle(struct timer *t);

/* The leaf goes when it is empty and can get no more processes from us. */
void command_settle(struct command *c)
{
	if (c->state != ENDED)
		return;
	if (command_has_leaf(c)) {
		if (leaf_populated(&c->leaf))
			return;
		/* the last process may need a moment until the kernel lets go of the leaf */
		if (leaf_remove(&c->leaf) == -EBUSY) {
			timer_set(&c->retry, clock_mono_ns() + LEAF_RETRY_MS * NS_PER_MS,
				  retry_settle);
			return;
		}
		source_close(&c->events);
		leaf_close(&c->leaf);
	} else if (c->leafless && c->waiters && command_tree_left(c)) {
		timer_set(&c->retry, clock_mono_ns() + LEAF_RETRY_MS * NS_PER_MS, retry_settle);
		return;
	}
	timer_cancel(&c->grace);
	tell_waiters(c);
	c->forgotten |= c->forget_later;
	command_free_if_over(c);
}

static void retry_settle(struct timer *t)
{
	command_settle(container_of(t, struct command, retry));
}

void command_leaf_ready(struct source *s, uint32_t events)
{
	struct command *c = container_of(s, struct command, events);
	char text[256];

	(void)events;
	/* reading re-arms the notification */
	if (pread(s->fd, text, sizeof(text), 0) < 0)
		source_want(s, 0);
	command_settle(c);
}

static void grace_over(struct timer *t)
{
	command_tree_kill(container_of(t, struct command, grace));
}

void command_mark_killed(struct command *c, int sig)
{
	if (c->reaped)
		return;
	c->killed = true;
	c->kill_signal = sig;
}

int command_terminate(struct command_waiter *w, const struct agent_signal *s, struct err *e)
{
	uint64_t kill_at = clock_mono_ns() + s->grace_ms * NS_PER_MS;
	struct command *c = command_find(s->id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", s->id);
	if (c->state == ENDED && !command_tree_left(c))
		return err_reason(e, ESRCH, "nothing_left",
				  "command '%s' has ended and left no process", s->id);
	w->command = c;
	w->next = c->waiters;
	c->waiters = w;
	command_mark_killed(c, (int)s->signal);
	command_tree_signal(c, (int)s->signal, NULL, NULL);
	if (c->leafless)
		procs_signal_tree(c->pid, (int)s->signal);
	if (s->signal == SIGKILL || !s->grace_ms)
		command_tree_kill(c);
	else if (!c->grace.armed || kill_at < c->grace.at)
		timer_set(&c->grace, kill_at, grace_over);
	if (c->leafless)
		timer_set(&c->retry, clock_mono_ns() + LEAF_RETRY_MS * NS_PER_MS, retry_settle);
	return 0;
}

void command_wait_cancel(struct command_waiter *w)
{
	struct command_waiter **p;

	if (!w->command)
		return;
	for (p = &w->command->waiters; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	w->command = NULL;
}
