/*
 * From a request to a running PID 1: slot, groups and socket, launcher, record, go.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#include "cpuset.h"
#include "launch.h"
#include "machine_parts.h"
#include "pool.h"
#include "ready.h"
#include "record.h"

enum { LAUNCH_TIMEOUT_MS = 30 * 1000, AGENT_BACKLOG = 128 };

void machine_release_launch(struct machine *m)
{
	machine_close_source(&m->status);
	close_p(&m->go);
	close_p(&m->listen);
	slot_ns_close(&m->ns);
	cgroup_fds_close(&m->cgroup);
}

static void start_failed(struct machine *m, const struct err *e)
{
	m->start_error = *e;
	err_wrap(&m->start_error, "start '%s'", m->id);
	if (m->pid.fd >= 0) {
		machine_kill_now(m); /* its end settles the rest */
		close_p(&m->go);
		return;
	}
	machine_settle(m);
}

static void started(struct machine *m)
{
	struct keeper_start_reply reply = {
		.pid = (uint32_t)m->host_pid,
		.enforced = m->enforced,
		.warm = m->warm,
	};

	conf_addresses(machines.conf, m->slot, reply.address4, reply.address6);
	machine_release_launch(m);
	m->state = MACHINE_RUNNING;
	m->told = true;
	job_done(m->head, &reply, sizeof(reply), -1);
}

/* PID 1 closes its end with a successful exec; before, it writes what failed. */
void machine_on_status(struct source *s, uint32_t events)
{
	struct machine *m = (struct machine *)((char *)s - offsetof(struct machine, status));
	struct pollfd ended = { .fd = m->pid.fd, .events = POLLIN };
	struct err e = ERR_INIT;
	char text[200];
	ssize_t n = read(s->fd, text, sizeof(text) - 1);

	(void)events;
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0 && poll(&ended, 1, 0) == 0) {
		started(m);
		return;
	}
	machine_close_source(s);
	text[n > 0 ? n : 0] = '\0';
	err_set(&e, EIO, "%s", n > 0 ? text : "PID 1 ended before its program ran");
	start_failed(m, &e);
}

static int launch_work(void *arg, struct worker_result *r, struct err *e)
{
	struct machine *m = arg;
	struct launch l = {
		.conf = machines.conf,
		.start = &m->head->req.body.start,
		.ns = m->ns,
		.root_id = conf_root_id(machines.conf, m->slot),
		.init = machines.init,
		.listen = m->listen,
		.in = -1,
		.out = -1,
		.err = -1,
		.go = m->launch_go,
		.status = m->launch_status,
		.cgroup = &m->cgroup,
		.cgns = -1,
	};
	struct launched pid1;
	int status;

	close_p(&m->go); /* PID 1 must see the keeper's end close */
	status = launch_run(&l, &pid1, e);
	if (status)
		return status;
	r->len = sizeof(pid1.pid);
	memcpy(r->payload, &pid1.pid, r->len);
	r->fds[0] = pid1.pidfd;
	r->fds_count = 1;
	return 0;
}

static void launched(void *arg, struct worker_result *r)
{
	struct machine *m = arg;
	struct record rec = { .slot = m->slot, .enforced = m->enforced };
	struct err e = r->err;
	int pid;
	int status = r->status;

	if (!status && (r->fds_count != 1 || r->len != sizeof(pid)))
		status = err_set(&e, EPROTO, "the launcher told nothing");
	if (!status) {
		memcpy(&pid, r->payload, sizeof(pid));
		m->host_pid = rec.pid = pid;
		m->pid.fd = r->fds[0];
		r->fds[0] = -1;
		status = loop_add(&m->pid, EPOLLIN);
		if (status) {
			err_set(&e, status, "watch PID 1: %m");
			machine_kill_now(m); /* nobody would tell us of its end */
			close_p(&m->pid.fd);
		}
	}
	if (!status) {
		str_copy(rec.id, sizeof(rec.id), m->id);
		status = record_write(&rec, &e);
	}
	if (!status && (status = loop_add(&m->status, EPOLLIN)))
		err_set(&e, status, "watch PID 1: %m");
	if (!status && (status = write_all(m->go, "g", 1)))
		err_set(&e, status, "let PID 1 go on: %m");
	if (status)
		start_failed(m, &e);
}

static int agent_socket(struct machine *m, struct err *e)
{
	char path[PATH_MAX];

	machine_agent_path(m->id, path);
	m->listen = unix_listen(path, SOCK_STREAM, 0660, AGENT_BACKLOG);
	if (m->listen < 0)
		return err_set(e, m->listen, "listen on the agent's socket: %m");
	return chown(path, 0, machines.conf->gid) < 0 ? err_set(e, errno, "chown '%s': %m", path)
						      : 0;
}

static void launch(struct machine *m)
{
	const struct keeper_sandbox_start *s = &m->head->req.body.start;
	const struct cgroup_limits limits = { s->cpu_milli, s->pids, s->memory_bytes };
	struct worker_spec spec = { .work = launch_work,
				    .done = launched,
				    .arg = m,
				    .timeout_ms = LAUNCH_TIMEOUT_MS,
				    .clone_flags = CLONE_NEWNS };
	struct err e = ERR_INIT;
	int go[2] = { -1, -1 }, status[2] = { -1, -1 };
	int r = cgroup_make(m->id, conf_root_id(machines.conf, m->slot),
			    conf_key_group(machines.conf), &limits, &m->cgroup, &e);

	if (r >= 0 && cpuset_available()) {
		int set = cpuset_set(m->id, s->cpu_milli, m->slot, &e);

		r = set < 0 ? set : r | KEEPER_LIMIT_CPUSET;
	}
	if (r >= 0) {
		m->enforced =
			(uint32_t)r | (s->disk_bytes && pool_has_quota() ? KEEPER_LIMIT_DISK : 0);
		r = agent_socket(m, &e);
	}
	if (!r && (pipe2(go, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0))
		r = err_set(&e, errno, "pipe: %m");
	if (!r) {
		m->go = go[1];
		m->status.fd = status[0];
		m->launch_go = go[0];
		m->launch_status = status[1];
		spec.cgroup = m->cgroup.work;
		r = worker_start(&spec, &e);
	}
	close_p(&go[0]);
	close_p(&status[1]);
	if (r)
		start_failed(m, &e);
}

static int slot_work(void *arg, struct worker_result *r, struct err *e)
{
	return ready_make(((struct machine *)arg)->slot, r, e);
}

static void slot_made(void *arg, struct worker_result *r)
{
	struct machine *m = arg;

	if (!r->status && r->fds_count != 2)
		r->status = err_set(&r->err, EPROTO, "the slot's worker told nothing");
	if (r->status) {
		start_failed(m, &r->err);
		return;
	}
	m->ns = (struct slot_ns){ r->fds[0], r->fds[1] };
	r->fds[0] = r->fds[1] = -1;
	ready_admitted(m->slot);
	launch(m);
}

void machine_start(struct job *j)
{
	const struct worker_spec spec = { .work = slot_work,
					  .done = slot_made,
					  .arg = j->machine,
					  .timeout_ms = LAUNCH_TIMEOUT_MS,
					  .cgroup = -1 };
	struct machine *m = j->machine;
	struct err e = ERR_INIT;

	if (m->state != MACHINE_NONE) {
		err_reason(&e, EALREADY, "already_running", "'%s' runs already", m->id);
		job_fail(j, &e);
		return;
	}
	if (machine_slot_used(j->req.body.start.slot)) {
		err_reason(&e, EBUSY, "slot_busy", "slot %u is in use", j->req.body.start.slot);
		job_fail(j, &e);
		return;
	}
	m->slot = j->req.body.start.slot;
	m->state = MACHINE_STARTING;
	m->start_error = (struct err)ERR_INIT;
	m->warm = ready_take(m->slot, &m->ns);
	if (m->warm)
		launch(m);
	else if (worker_start(&spec, &e))
		start_failed(m, &e);
}
