#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/command_priv.h"

enum { DRAIN_MS = 100, TERMINAL_HOLDS = 128 * 1024 };

/* Whose process it was the kernel does not tell, so this is the best guess: `oom` says that the
 * kernel killed for memory in the sandbox while the command ran, and REASON_OOM that its own process
 * ended by a KILL which nobody here had asked for as well. A neighbour's memory may be taken for the
 * command's; a shell that outlived its child is EXITED with `oom`. */
static bool memory_ran_out(const struct command *c)
{
	return c->oom_before >= 0 && cgroup_oom_kills() > c->oom_before;
}

static void set_outcome(struct command *c)
{
	struct agent_exit *x = &c->exit;

	if (WIFSIGNALED(c->wait_status)) {
		x->signal = (uint32_t)WTERMSIG(c->wait_status);
		x->code = 128 + x->signal;
		x->reason = REASON_SIGNALED;
	} else {
		x->code = (uint32_t)WEXITSTATUS(c->wait_status);
		x->reason = REASON_EXITED;
	}
	if (c->timed_out)
		*x = (struct agent_exit){ REASON_TIMED_OUT, 128 + SIGKILL, SIGKILL };
	else if (c->killed) {
		x->reason = REASON_KILLED;
		x->signal = x->signal ? x->signal : (uint32_t)c->kill_signal;
	}
	x->oom = memory_ran_out(c);
	if (x->oom && x->reason == REASON_SIGNALED && x->signal == SIGKILL)
		x->reason = REASON_OOM;
	x->duration_us = (c->ended_ns - c->started_ns) / 1000;
}

void command_fill_totals(const struct command *c, struct agent_exit *x)
{
	for (int i = 0; i < 2; i++) {
		x->total[i] = c->outbuf[i].total;
		x->dropped[i] = c->outbuf[i].dropped;
	}
}

void command_finish(struct command *c)
{
	if (!c->ended_ns)
		c->ended_ns = clock_mono_ns();
	set_outcome(c);
	c->state = ENDED;
	timer_cancel(&c->limit);
	timer_cancel(&c->drain);
	command_stdin_close(c);
	command_writers_end(c);
	close_p(&c->slave);
	command_watch_output(c);
	command_changed(c);
	command_settle(c);
}

/* Bytes that a stream may hold now: a terminal does not tell all that is on its way. */
static int held(const struct command *c, int i)
{
	int left = 0;

	if (c->terminal)
		return TERMINAL_HOLDS;
	if (c->out[i].fd >= 0)
		ioctl(c->out[i].fd, FIONREAD, &left);
	return left;
}

/* Whether or not the client keeps up: it is bounded by the size of the pipes. */
static void read_held(struct command *c)
{
	for (int i = 0; i < 2; i++) {
		ssize_t n = 1;
		int left = held(c, i);

		while (c->out[i].fd >= 0 && n > 0 && left >= 0) {
			n = command_read_output(c, i);
			left -= (int)n;
		}
	}
}

static void drain_over(struct timer *t)
{
	struct command *c = container_of(t, struct command, drain);

	if (c->state == STARTING)
		command_start_failed(
			c, &(struct agent_fail){ ETIMEDOUT, "not_started", "",
						 "the time limit passed before the program "
						 "was executed" });
	else {
		read_held(c); /* at a time limit it may not be reaped yet */
		command_finish(c);
	}
}

/* Its own process ended: whatever the pipes hold now was written before, and is read whether or not
 * the client keeps up. It is bounded by the size of the pipes. */
void command_drain(struct command *c)
{
	c->state = DRAINING;
	timer_cancel(&c->limit);
	close_p(&c->slave);
	read_held(c);
	if (c->out[OUT].fd < 0 && c->out[ERR].fd < 0) {
		command_finish(c);
		return;
	}
	timer_set(&c->drain, clock_mono_ns() + DRAIN_MS * NS_PER_MS, drain_over);
	command_watch_output(c);
	command_changed(c);
}

void command_time_over(struct timer *t)
{
	struct command *c = container_of(t, struct command, limit);

	c->timed_out = true;
	command_tree_kill(c);
	/* told even when the kernel cannot end it at once */
	timer_set(&c->drain, clock_mono_ns() + DRAIN_MS * NS_PER_MS, drain_over);
}
