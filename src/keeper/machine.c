#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include "machine_parts.h"
#include "pool.h"
#include "record.h"

struct machine_context machines;

static struct machine *all;

void machine_init(const struct conf *c, int init)
{
	machines = (struct machine_context){ .conf = c, .init = init };
}

struct machine *machine_find(const char *id)
{
	for (struct machine *m = all; m; m = m->next) {
		if (str_eq(m->id, id))
			return m;
	}
	return NULL;
}

struct machine *machine_first(void)
{
	return all;
}

bool machine_slot_used(uint32_t slot)
{
	for (const struct machine *m = all; m; m = m->next) {
		if (m->state != MACHINE_NONE && m->slot == slot)
			return true;
	}
	return false;
}

struct machine *machine_get(const char *id)
{
	struct machine *m = machine_find(id);

	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	str_copy(m->id, sizeof(m->id), id);
	m->pid =
		(struct source){ .fd = -1, .ready = machine_on_end, .late = machine_on_grace_over };
	m->status = (struct source){ .fd = -1, .ready = machine_on_status };
	m->go = m->listen = -1;
	m->ns = (struct slot_ns)SLOT_NS_INIT;
	m->cgroup =
		(struct cgroup_fds){ .agent = -1, .work = -1, .work_procs = -1, .work_oom = -1 };
	m->next = all;
	all = m;
	return m;
}

void machine_free(struct machine *m)
{
	struct machine **at = &all;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	free(m);
}

void machine_enqueue(struct machine *m, struct job *j, void (*run)(struct job *j))
{
	j->machine = m;
	j->run = run;
	if (m->tail)
		m->tail->next = j;
	else
		m->head = j;
	m->tail = j;
	if (m->head == j)
		run(j);
	else if (run == machine_kill || run == machine_destroy)
		m->pid.deadline_ns =
			m->pid.fd >= 0 ? 1 : 0; /* whoever waits for its end need not */
}

void machine_dequeue(struct machine *m)
{
	m->head = m->head->next;
	if (!m->head)
		m->tail = NULL;
	if (m->head)
		m->head->run(m->head);
	else if (m->state == MACHINE_NONE)
		machine_free(m);
}

void machine_close_source(struct source *s)
{
	loop_remove(s);
	s->deadline_ns = 0;
	close_p(&s->fd);
}

void machine_agent_path(const char *id, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.*s/agents/%s.sock", PATH_MAX - 64, machines.conf->run_dir, id);
}

/* ---- stop, kill, destroy: each runs again once the machine has settled ---- */

void machine_stop(struct job *j)
{
	struct machine *m = j->machine;

	if (m->state == MACHINE_NONE)
		job_done(j, NULL, 0, -1);
	else if (m->state == MACHINE_RUNNING)
		m->pid.deadline_ns =
			clock_mono_ns() + (uint64_t)j->req.body.stop.timeout_ms * NS_PER_MS + 1;
}

void machine_kill(struct job *j)
{
	struct machine *m = j->machine;

	if (m->state == MACHINE_NONE)
		job_done(j, NULL, 0, -1);
	else if (m->state == MACHINE_RUNNING)
		machine_kill_now(m);
}

static int destroy_work(void *arg, struct worker_result *r, struct err *e)
{
	struct machine *m = arg;
	int status;

	(void)r;
	status = cgroup_kill(m->id, e); /* of a start that another keeper did not finish */
	if (!status)
		status = cgroup_remove(m->id, e);
	if (!status)
		status = pool_sandbox_destroy(m->id, e);
	return status;
}

static void destroyed(void *arg, struct worker_result *r)
{
	struct machine *m = arg;

	if (r->status)
		job_fail(m->head, &r->err);
	else
		job_done(m->head, NULL, 0, -1);
}

void machine_destroy(struct job *j)
{
	const struct worker_spec spec = { .work = destroy_work,
					  .done = destroyed,
					  .arg = j->machine,
					  .timeout_ms = DISK_TIMEOUT_MS,
					  .cgroup = -1 };
	struct machine *m = j->machine;
	struct err e = ERR_INIT;

	if (m->state == MACHINE_RUNNING)
		machine_kill_now(m);
	else if (m->state == MACHINE_NONE && worker_start(&spec, &e))
		job_fail(j, &e);
}

/* ---- adoption ---- */

static void adopt(const struct record *r)
{
	int pidfd = (int)syscall(SYS_pidfd_open, r->pid, 0);
	struct machine *m;

	if (pidfd < 0 || record_start_time(r->pid) != r->start_time) {
		close_p(&pidfd);
		return;
	}
	m = machine_get(r->id);
	if (!m || r->slot >= machines.conf->slots_max) {
		log_error("adopt '%s': %s", r->id, m ? "its slot does not exist" : "out of memory");
		close(pidfd);
		return;
	}
	m->host_pid = r->pid;
	m->slot = r->slot;
	m->enforced = r->enforced;
	m->state = MACHINE_RUNNING;
	m->told = true;
	m->pid.fd = pidfd;
	if (loop_add(&m->pid, EPOLLIN))
		log_error("watch '%s': %m", r->id);
}

/* A record whose process is gone: its groups and socket go; skerryd sees it missing in the list. */
static void bury(const struct record *r)
{
	struct err e = ERR_INIT;
	char path[PATH_MAX];

	machine_agent_path(r->id, path);
	(void)unlink(path);
	if (cgroup_kill(r->id, &e) || cgroup_remove(r->id, &e))
		log_warn("clean up after '%s': %s", r->id, e.text);
}

int machine_adopt(struct err *e)
{
	return record_each(adopt, bury, e);
}
