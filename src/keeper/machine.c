#include "machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include "launch.h"
#include "net.h"
#include "pool.h"
#include "record.h"
#include "server.h"

enum {
	LAUNCH_TIMEOUT_MS = 30 * 1000,
	SETTLE_TIMEOUT_MS = 60 * 1000,
	SETTLE_TRIES = 100,
	DISK_TIMEOUT_MS = 10 * 60 * 1000,
	AGENT_BACKLOG = 128,
};

static struct {
	const struct conf *conf;
	int init;
	struct machine *all;
	struct slot_ns *ready; /* by slot number */
	uint8_t *admitted;     /* by block of slots: its addresses pass the table */
} km;

int machine_init(const struct conf *c, int init, struct err *e)
{
	km.conf = c;
	km.init = init;
	km.ready = malloc(c->slots_max * sizeof(*km.ready));
	km.admitted = calloc(net_block(c->slots_max) + 1, 1);
	if (!km.ready || !km.admitted)
		return err_set(e, ENOMEM, "make the table of slots: %m");
	for (uint32_t i = 0; i < c->slots_max; i++)
		km.ready[i] = (struct slot_ns)SLOT_NS_INIT;
	return 0;
}

bool slot_ready(uint32_t slot)
{
	return km.ready[slot].userns >= 0;
}

void slot_put(uint32_t slot, struct slot_ns *ns)
{
	slot_ns_close(&km.ready[slot]);
	km.ready[slot] = *ns;
	*ns = (struct slot_ns)SLOT_NS_INIT;
	km.admitted[net_block(slot)] = 1;
}

bool slot_take(uint32_t slot, struct slot_ns *ret)
{
	if (!slot_ready(slot))
		return false;
	*ret = km.ready[slot];
	km.ready[slot] = (struct slot_ns)SLOT_NS_INIT;
	return true;
}

void slot_drop(uint32_t slot)
{
	slot_ns_close(&km.ready[slot]);
}

int slot_make_admitted(uint32_t slot, struct slot_ns *ret, struct err *e)
{
	int r = km.admitted[net_block(slot)] ? 0 : net_admit(km.conf, slot, e);

	return r ? r : slot_make(km.conf, slot, ret, e);
}

struct machine *machine_find(const char *id)
{
	for (struct machine *m = km.all; m; m = m->next) {
		if (str_eq(m->id, id))
			return m;
	}
	return NULL;
}

struct machine *machine_first(void)
{
	return km.all;
}

bool machine_slot_used(uint32_t slot)
{
	for (const struct machine *m = km.all; m; m = m->next) {
		if (m->state != MACHINE_NONE && m->slot == slot)
			return true;
	}
	return false;
}

static void on_end(struct source *s, uint32_t events);
static void on_grace_over(struct source *s);
static void on_status(struct source *s, uint32_t events);

struct machine *machine_get(const char *id)
{
	struct machine *m = machine_find(id);

	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	str_copy(m->id, sizeof(m->id), id);
	m->pid = (struct source){ .fd = -1, .ready = on_end, .late = on_grace_over };
	m->status = (struct source){ .fd = -1, .ready = on_status };
	m->go = m->listen = -1;
	m->ns = (struct slot_ns)SLOT_NS_INIT;
	m->cgroup = (struct cgroup_fds){ .agent = -1, .work = -1, .work_procs = -1 };
	m->next = km.all;
	km.all = m;
	return m;
}

static void machine_free(struct machine *m)
{
	struct machine **at = &km.all;

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

static void close_source(struct source *s)
{
	loop_remove(s);
	s->deadline_ns = 0;
	close_p(&s->fd);
}

/* What only the launch needs. */
static void release_launch(struct machine *m)
{
	close_source(&m->status);
	close_p(&m->go);
	close_p(&m->listen);
	slot_ns_close(&m->ns);
	cgroup_fds_close(&m->cgroup);
}

static void agent_path(const char *id, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.*s/agents/%s.sock", PATH_MAX - 64, km.conf->run_dir, id);
}

/* ---- the end of a machine ---- */

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
	else
		waiting->run(waiting); /* stop, kill or destroy: there is nothing left to end */
}

static void settle(struct machine *m)
{
	const struct worker_spec spec = { .work = settle_work,
					  .done = settled,
					  .arg = m,
					  .timeout_ms = SETTLE_TIMEOUT_MS,
					  .cgroup = -1 };
	struct worker_result failed = { .fds = { -1, -1, -1, -1 } };
	char path[PATH_MAX];

	m->state = MACHINE_ENDING;
	release_launch(m);
	close_source(&m->pid);
	agent_path(m->id, path);
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

static void on_end(struct source *s, uint32_t events)
{
	struct machine *m = (struct machine *)s;

	(void)events;
	read_end(m);
	if (m->state == MACHINE_STARTING && !m->start_error.code)
		err_set(&m->start_error, ECHILD, "PID 1 ended while it was starting");
	settle(m);
}

static void kill_now(struct machine *m)
{
	struct err e = ERR_INIT;

	if (cgroup_kill(m->id, &e))
		log_warn("%s", e.text);
	if (m->pid.fd >= 0)
		syscall(SYS_pidfd_send_signal, m->pid.fd, SIGKILL, NULL, 0);
}

static void on_grace_over(struct source *s)
{
	kill_now((struct machine *)s);
}

/* ---- start ---- */

static void start_failed(struct machine *m, const struct err *e)
{
	m->start_error = *e;
	err_wrap(&m->start_error, "start '%s'", m->id);
	if (m->pid.fd >= 0) {
		kill_now(m); /* its end settles the rest */
		close_p(&m->go);
		return;
	}
	settle(m);
}

static void fill_addresses(uint32_t slot, char out4[16], char out6[46])
{
	struct in_addr a4 = conf_addr4(km.conf, slot);
	struct in6_addr a6 = conf_addr6(km.conf, slot);

	inet_ntop(AF_INET, &a4, out4, 16);
	inet_ntop(AF_INET6, &a6, out6, 46);
}

static int mark_work(void *arg, struct worker_result *r, struct err *e)
{
	(void)r;
	(void)e;
	pool_sandbox_mark_booted(arg);
	return 0;
}

static void mark_done(void *arg, struct worker_result *r)
{
	(void)r;
	free(arg);
}

static void mark_booted(struct machine *m)
{
	const struct worker_spec spec = { .work = mark_work,
					  .done = mark_done,
					  .arg = strdup(m->id),
					  .timeout_ms = SETTLE_TIMEOUT_MS,
					  .cgroup = -1 };

	if (spec.arg && worker_start(&spec, NULL))
		free(spec.arg);
}

static void started(struct machine *m)
{
	struct keeper_start_reply reply = {
		.pid = (uint32_t)m->host_pid,
		.enforced = m->enforced,
		.warm = m->warm,
	};

	fill_addresses(m->slot, reply.address4, reply.address6);
	release_launch(m);
	m->state = MACHINE_RUNNING;
	m->told = true;
	if (m->first_boot)
		mark_booted(m);
	job_done(m->head, &reply, sizeof(reply), -1);
}

/* PID 1 closes its end with a successful exec; before, it writes what failed. */
static void on_status(struct source *s, uint32_t events)
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
	close_source(s);
	text[n > 0 ? n : 0] = '\0';
	err_set(&e, EIO, "%s", n > 0 ? text : "PID 1 ended before its program ran");
	start_failed(m, &e);
}

static int launch_work(void *arg, struct worker_result *r, struct err *e)
{
	struct machine *m = arg;
	struct launch l = {
		.conf = km.conf,
		.start = &m->head->req.body.start,
		.ns = m->ns,
		.root_id = conf_root_id(km.conf, m->slot),
		.init = km.init,
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
	r->len = 2 * sizeof(int);
	memcpy(r->payload, (int[]){ pid1.pid, l.first_boot }, r->len);
	r->fds[0] = pid1.pidfd;
	r->fds_count = 1;
	return 0;
}

static void launched(void *arg, struct worker_result *r)
{
	struct machine *m = arg;
	struct record rec = { .slot = m->slot, .enforced = m->enforced };
	struct err e = r->err;
	int pid[2];
	int status = r->status;

	if (!status && (r->fds_count != 1 || r->len != sizeof(pid)))
		status = err_set(&e, EPROTO, "the launcher told nothing");
	if (!status) {
		memcpy(pid, r->payload, sizeof(pid));
		m->host_pid = rec.pid = pid[0];
		m->first_boot = pid[1];
		m->pid.fd = r->fds[0];
		r->fds[0] = -1;
		status = loop_add(&m->pid, EPOLLIN);
		if (status) {
			err_set(&e, status, "watch PID 1: %m");
			kill_now(m); /* nobody would tell us of its end */
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

	agent_path(m->id, path);
	m->listen = unix_listen(path, SOCK_STREAM, 0660, AGENT_BACKLOG);
	if (m->listen < 0)
		return err_set(e, m->listen, "listen on the agent's socket: %m");
	return chown(path, 0, km.conf->gid) < 0 ? err_set(e, errno, "chown '%s': %m", path) : 0;
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
	int r = cgroup_make(m->id, conf_root_id(km.conf, m->slot), &limits, &m->cgroup, &e);

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
	struct machine *m = arg;
	struct slot_ns ns;
	int status = slot_make_admitted(m->slot, &ns, e);

	if (status)
		return status;
	r->fds[0] = ns.userns;
	r->fds[1] = ns.netns;
	r->fds_count = 2;
	return 0;
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
	km.admitted[net_block(m->slot)] = 1;
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
	m->warm = slot_take(m->slot, &m->ns);
	if (m->warm)
		launch(m);
	else if (worker_start(&spec, &e))
		start_failed(m, &e);
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
		kill_now(m);
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
		kill_now(m);
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
	if (!m || r->slot >= km.conf->slots_max) {
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

	agent_path(r->id, path);
	(void)unlink(path);
	if (cgroup_kill(r->id, &e) || cgroup_remove(r->id, &e))
		log_warn("clean up after '%s': %s", r->id, e.text);
}

int machine_adopt(struct err *e)
{
	return record_each(adopt, bury, e);
}
