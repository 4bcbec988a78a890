#include "init/spawn.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"

/* What programs expect that still use select(2); each can raise its own up to the hard limit. */
static uint64_t nofile_soft = 1024;
static bool into_leaf_works = true;

void spawn_init(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	if (l.rlim_cur < nofile_soft)
		nofile_soft = l.rlim_cur;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

/* fork, or clone3 into the leaf. */
static pid_t make_child(const struct leaf *leaf, bool *ret_in_leaf)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)leaf->dir,
	};
	long pid;

	*ret_in_leaf = true;
	if (leaf->dir >= 0 && into_leaf_works) {
		pid = syscall(SYS_clone3, &args, sizeof(args));
		if (pid >= 0)
			return (pid_t)pid;
		/* moving across the border of a delegated tree is refused for good; the rest may
		 * pass */
		if (errno == EACCES || errno == EPERM || errno == ENOSYS)
			into_leaf_works = false;
	}
	*ret_in_leaf = false;
	return fork();
}

pid_t spawn(const struct spawn_plan *plan, struct err *e)
{
	sigset_t all, old;
	bool in_leaf;
	pid_t pid;

	/* no signal may reach the child while it still is a copy of PID 1 */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = make_child(plan->leaf, &in_leaf);
	if (pid == 0)
		spawn_child(plan, in_leaf, nofile_soft);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid > 0)
		return pid;
	if (errno == EAGAIN)
		return err_reason(
			e, EAGAIN, "limit_pids",
			"no process could be made: the limit of processes (pids) is reached");
	return err_reason(e, errno, "limit_memory", "make a process: %m");
}
