#include "init/shutdown.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/command.h"
#include "init/conn.h"
#include "init/loop.h"
#include "init/procs.h"

enum {
	POLL_MS = 20,
	FLUSH_MS = 1000, /* for peers to take what they were promised */
	GONE_MS = 2000,  /* after KILL: the kernel ends what is left with PID 1 */
};

static bool active, killed;
static struct timer kill_timer, check_timer;
static uint64_t kill_at, give_up_at, empty_since;

struct pid_set {
	pid_t *pids;
	size_t n, room;
};

static void remember(void *arg, pid_t pid)
{
	struct pid_set *s = arg;

	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 256;
		pid_t *more = realloc(s->pids, room * sizeof(*more));

		if (!more)
			return; /* it gets TERM twice */
		s->pids = more;
		s->room = room;
	}
	s->pids[s->n++] = pid;
}

static int by_pid(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* Commands first, the last started first; then everything else, once each. */
static void terminate_all(void)
{
	_cleanup_free_ struct proc *list = NULL;
	struct pid_set told = { 0 };
	ssize_t n;

	command_stop_all(SIGTERM, remember, &told);
	n = procs_list(&list);
	if (n < 0)
		kill(-1, SIGTERM);
	if (told.n)
		qsort(told.pids, told.n, sizeof(pid_t), by_pid);
	for (ssize_t i = 0; i < n; i++) {
		if (!told.n || !bsearch(&list[i].pid, told.pids, told.n, sizeof(pid_t), by_pid))
			kill(list[i].pid, SIGTERM);
	}
	free(told.pids);
}

static bool no_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

static void check(struct timer *t)
{
	uint64_t now = clock_mono_ns();
	bool empty = no_children() && !command_any_running();

	if (empty && !empty_since)
		empty_since = now;
	if ((empty && (!conn_any_pending() || now - empty_since > FLUSH_MS * NS_PER_MS)) ||
	    (killed && now > give_up_at)) {
		loop_quit();
		return;
	}
	timer_set(t, now + POLL_MS * NS_PER_MS, check);
}

static void kill_all(struct timer *t)
{
	(void)t;
	killed = true;
	give_up_at = clock_mono_ns() + GONE_MS * NS_PER_MS;
	kill(-1, SIGKILL);
}

void shutdown_start(uint32_t grace_ms)
{
	uint64_t at = clock_mono_ns() + grace_ms * NS_PER_MS;

	if (!active) {
		active = true;
		kill_at = at;
		terminate_all();
		timer_set(&check_timer, 0, check);
	} else if (killed || at >= kill_at) {
		return;
	}
	kill_at = at;
	timer_set(&kill_timer, at, kill_all);
}

void shutdown_reaped(void)
{
	if (active)
		timer_set(&check_timer, 0, check);
}
