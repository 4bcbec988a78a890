#include "init/file_calls.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"

#include "init/file_job.h"
#include "init/loop.h"

struct file_call {
	struct file_call *next;
	pid_t pid;
	struct timer end;
	void (*gone)(void *arg); /* NULL: nobody is to be told */
	void *arg;
};

static struct file_call *all;
static unsigned count;

static struct file_call *no_room(struct err *e)
{
	err_reason(e, EAGAIN, "too_many_file_calls", "too many file calls are under way");
	return NULL;
}

struct file_call *file_call_start(const struct message *m, int sock, struct frame_reader *in,
				  void (*gone)(void *arg), void *arg, struct err *e)
{
	struct file_call *c = count < FILE_CALLS_MAX ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return no_room(e);
	c->pid = fork();
	if (c->pid == 0)
		file_job_run(m, sock, in);
	if (c->pid < 0) {
		free(c);
		return no_room(e);
	}
	c->gone = gone;
	c->arg = arg;
	c->next = all;
	all = c;
	count++;
	return c;
}

static void end(struct timer *t)
{
	kill(container_of(t, struct file_call, end)->pid, SIGKILL);
}

void file_call_leave(struct file_call *c)
{
	timer_set(&c->end, clock_mono_ns() + FILE_LEAVE_MS * NS_PER_MS, end);
}

void file_call_forget(struct file_call *c)
{
	c->gone = NULL;
	if (!c->end.armed)
		file_call_leave(c);
}

void file_call_reaped(pid_t pid)
{
	for (struct file_call **at = &all; *at; at = &(*at)->next) {
		struct file_call *c = *at;

		if (c->pid != pid)
			continue;
		*at = c->next;
		count--;
		timer_cancel(&c->end);
		if (c->gone)
			c->gone(c->arg);
		free(c);
		return;
	}
}
