/*
 * The end of a machine, however it came: what is left of it goes, then whoever waits is told.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"

#include "machine_parts.h"
#include "pool.h"
#include "record.h"
#include "server.h"

enum { SETTLE_TRIES = 100 };

/* Worker: everything of a machine that ended goes; `sync` first for an orderly stop. */
static int settle_work(void *arg, struct worker_result *r, struct err *e)
{
	struct timespec pause = { .tv_nsec = 250 * 1000 };
	struct machine *m = arg;
	int status;

	(void)r;
	if (m->head && m->head->req.verb == KEEPER_SANDBOX_STOP && (status = pool_sync(e)))
		return status;
	for (int i = 0; i < SETTLE_TRIES; i++) {
		status = cgroup_kill(m->id, e);
		if (!status)
			status = cgroup_remove(m->id, e);
		if (status != -EBUSY)
			return status;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 100 * 1000 * 1000)
			pause.tv_nsec *= 2;
	}
	return status;
}

static void settled(void *arg, struct worker_result *r)
{
	struct machine *m = arg;
	struct job *waiting = m->head;
	bool told = m->told;

	if (r->status)
		log_warn("clean up after '%s': %s", m->id, r->err.text);
	record_remove(m->id);
	m->state = MACHINE_NONE;
	m->told = false;
	if (told)
		server_event(KEEPER_EVENT_EXIT, &m->end, sizeof(m->end));
	if (!waiting) {
		machine_free(m);
		return;
	}
	if (waiting->req.verb == KEEPER_SANDBOX_START)
		job_fail(waiting, &m->start_error);
	else if (waiting->req.verb != KEEPER_SANDBOX_LIMIT) /* whose worker is at work */
		waiting->run(waiting); /* stop, kill or destroy: there is nothing left to end */
}

void machine_settle(struct machine *m)
{
	const struct worker_spec spec = { .work = settle_work,
					  .done = settled,
					  .arg = m,
					  .timeout_ms = SETTLE_TIMEOUT_MS,
					  .cgroup = -1 };
	struct worker_result failed = { .fds = { -1, -1, -1, -1 } };
	char path[PATH_MAX];

	m->state = MACHINE_ENDING;
	machine_release_launch(m);
	machine_close_source(&m->pid);
	machine_agent_path(m->id, path);
	(void)unlink(path);
	failed.status = worker_start(&spec, &failed.err);
	if (failed.status)
		settled(m, &failed);
}

static void read_end(struct machine *m)
{
	struct cgroup_stats stats;
	siginfo_t info = { 0 };
	int status = -1;

	m->end = (struct keeper_event_exit){ .slot = m->slot };
	str_copy(m->end.id, sizeof(m->end.id), m->id);
	cgroup_stats(m->id, &stats);
	m->end.oom = stats.oom_kills > 0;
	if (!waitid(P_PIDFD, (id_t)m->pid.fd, &info, WEXITED | WNOHANG) && info.si_pid) {
		m->end.exit_known = 1;
		m->end.code = info.si_code == CLD_EXITED ? (uint32_t)info.si_status : 0;
		m->end.signal = info.si_code == CLD_EXITED ? 0 : (uint32_t)info.si_status;
		return;
	}
	status = record_exit_status(m->pid.fd);
	if (status < 0)
		return;
	m->end.exit_known = 1;
	m->end.code = WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 0;
	m->end.signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
}

void machine_on_end(struct source *s, uint32_t events)
{
	struct machine *m = (struct machine *)s;

	(void)events;
	read_end(m);
	if (m->state == MACHINE_STARTING && !m->start_error.code)
		err_set(&m->start_error, ECHILD, "PID 1 ended while it was starting");
	machine_settle(m);
}

void machine_kill_now(struct machine *m)
{
	struct err e = ERR_INIT;

	if (cgroup_kill(m->id, &e))
		log_warn("%s", e.text);
	if (m->pid.fd >= 0)
		syscall(SYS_pidfd_send_signal, m->pid.fd, SIGKILL, NULL, 0);
}

void machine_on_grace_over(struct source *s)
{
	machine_kill_now((struct machine *)s);
}
