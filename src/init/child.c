/*
 * The child between fork and exec. One pass from top to bottom; the first failure is reported and
 * ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include "init/environment.h"
#include "init/spawn.h"
#include "init/user.h"

enum { STATUS_FD = 3 };

static int status_fd;

static void report(struct spawn_report *r)
{
	while (write(status_fd, r, sizeof(*r)) < 0 && errno == EINTR)
		;
}

static _Noreturn void fail(const struct err *e)
{
	static struct spawn_report r; /* large, and the heap may be what failed */

	r.kind = SPAWN_FAILED;
	r.code = (uint32_t)e->code;
	str_copy(r.reason, sizeof(r.reason), e->reason ? e->reason : "spawn_failed");
	str_copy(r.field, sizeof(r.field), e->field);
	str_copy(r.text, sizeof(r.text), e->text);
	report(&r);
	_exit(127);
}

static void warn(struct spawn_report *r, const char *fmt, const char *a, const char *b)
{
	size_t used = strlen(r->warning);

	if (used && used + 2 < sizeof(r->warning)) {
		memcpy(r->warning + used, "; ", 3);
		used += 2;
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(r->warning + used, sizeof(r->warning) - used, fmt, a, b);
#pragma GCC diagnostic pop
}

static void reset_signals(void)
{
	/* All zero is SIG_DFL. The C library's function refuses its own two signals, which a
	 * posix_spawn before us leaves ignored. */
	static const long dfl[8];
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)syscall(SYS_rt_sigaction, sig, dfl, NULL, (NSIG - 1) / 8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What PID 1 has for itself and a command shall not have. */
static void reset_privileges(uint64_t nofile_soft)
{
	struct rlimit l;

	umask(022);
	setpriority(PRIO_PROCESS, 0, 0);
	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = nofile_soft < l.rlim_max ? nofile_soft : l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

/* The terminal becomes that of its session, which setsid(2) began. */
static int take_terminal(const struct agent_run *run)
{
	return run->flags & RUN_TERMINAL && ioctl(0, TIOCSCTTY, 0) < 0 ? -errno : 0;
}

/* Leaves the child with 0, 1, 2 and the status pipe. Really closed, not only on exec: a child that
 * hangs before its exec would hold the pipes of other commands. */
static int keep_stdio(const struct spawn_plan *plan)
{
	for (int i = 0; i < 3; i++) {
		if (dup2(plan->stdio[i], i) < 0)
			return -errno;
	}
	if (plan->status != STATUS_FD && dup3(plan->status, STATUS_FD, O_CLOEXEC) < 0)
		return -errno;
	status_fd = STATUS_FD;
	return syscall(SYS_close_range, STATUS_FD + 1, ~0U, 0) < 0 ? -errno : 0;
}

static int find_user(const struct agent_run *run, struct user *u, struct spawn_report *out,
		     struct err *e)
{
	const char *who = run->user[0] ? run->user : run->default_user;
	bool root = str_eq(who, "root") || str_eq(who, "0");
	int r = who[0] ? user_lookup("/etc", who, u) : -ENOENT;

	if (r == 0)
		return 0;
	if (run->user[0] && !root) {
		if (r == -ENOENT)
			err_reason(e, EINVAL, "user_not_found", "user '%s' does not exist", who);
		else
			err_reason(e, EINVAL, "user_not_found", "user '%s': read /etc/passwd: %s",
				   who, strerror(-r));
		return err_field(e, "user");
	}
	if (who[0] && !root)
		warn(out, "user '%s' does not exist, using '%s'", who, "root");
	if (root || user_lookup("/etc", "root", u) < 0)
		user_root(u);
	return 0;
}

static int become(const struct agent_run *run, const struct user *u, struct err *e)
{
	struct stat st;

	/* so that /dev/stdout and its like can be opened by name */
	for (int i = 0; i < 3; i++) {
		if (fstat(i, &st) == 0 && S_ISFIFO(st.st_mode))
			(void)!fchown(i, u->uid, u->gid);
	}
	if (run->flags & RUN_TERMINAL) /* its group stays that of all terminals */
		(void)!fchown(0, u->uid, (gid_t)-1);
	if (setgroups(u->groups_count, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
	    setresuid(u->uid, u->uid, u->uid) < 0) {
		err_reason(e, EINVAL, "user_invalid", "become user '%s' (uid %u, gid %u): %m",
			   u->name, u->uid, u->gid);
		return err_field(e, "user");
	}
	return 0;
}

static int enter_cwd(const struct agent_run *run, const struct user *u, struct spawn_report *out,
		     struct err *e)
{
	const char *tries[] = { run->default_cwd, u->home, "/" };
	const char *missed = NULL;
	int missed_errno = 0;

	if (run->cwd[0]) {
		int code = run->cwd[0] != '/' ? EINVAL : chdir(run->cwd) < 0 ? errno : 0;

		if (code) {
			err_reason(e, EINVAL, "cwd_invalid", "work directory '%s': %s", run->cwd,
				   run->cwd[0] != '/' ? "not an absolute path" : strerror(code));
			return err_field(e, "cwd");
		}
		str_copy(out->cwd, sizeof(out->cwd), run->cwd);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		if (!tries[i][0])
			continue;
		if (tries[i][0] == '/' && chdir(tries[i]) == 0) {
			str_copy(out->cwd, sizeof(out->cwd), tries[i]);
			break;
		}
		if (!missed) {
			missed = tries[i];
			missed_errno = tries[i][0] == '/' ? errno : EINVAL;
		}
	}
	if (missed) {
		warn(out, "work directory '%.255s' cannot be entered: %s", missed,
		     strerror(missed_errno));
		warn(out, "using '%.255s'%s", out->cwd, "");
	}
	return 0;
}

void spawn_child(const struct spawn_plan *plan, bool in_leaf, uint64_t nofile_soft)
{
	static struct spawn_report ready;
	static struct user u;
	struct environment env;
	struct err e = ERR_INIT;
	int r;

	status_fd = plan->status;
	r = cgroup_enter(plan->leaf, in_leaf);
	if (r < 0) {
		err_reason(&e, r, "cgroup_failed", "enter the command's cgroup: %s", strerror(-r));
		fail(&e);
	}
	setsid();
	reset_signals();
	reset_privileges(nofile_soft);
	r = keep_stdio(plan);
	if (!r)
		r = take_terminal(plan->run);
	if (r < 0) {
		err_set(&e, r, "set up standard input and output: %s", strerror(-r));
		fail(&e);
	}
	if (find_user(plan->run, &u, &ready, &e) < 0 || become(plan->run, &u, &e) < 0 ||
	    enter_cwd(plan->run, &u, &ready, &e) < 0 ||
	    environment_make(plan->run, &u, &env, &e) < 0)
		fail(&e);
	ready.kind = SPAWN_READY;
	str_copy(ready.user, sizeof(ready.user), u.name);
	report(&ready);
	environment_exec(&env, plan->run, &e);
	fail(&e);
}
