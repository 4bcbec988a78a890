#include "verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "launch.h"
#include "machine.h"
#include "pool.h"
#include "ready.h"
#include "record.h"

enum {
	LIST_TIMEOUT_MS = 30 * 1000,
	SLOT_TIMEOUT_MS = 30 * 1000,
	/* under classic quotas an engine's files are copied one by one */
	CREATE_TIMEOUT_MS = 300 * 1000,
	DELETE_TIMEOUT_MS = 600 * 1000,
};

static const struct conf *conf;
static const struct verbs_info *info;

void verbs_init(const struct conf *c, const struct verbs_info *i)
{
	conf = c;
	info = i;
}

static const char *machine_of(const struct job *j)
{
	return j->req.body.sandbox.id;
}

/* ---- workers that finish their job ---- */

static void finish(void *arg, struct worker_result *r)
{
	if (r->status)
		job_fail(arg, &r->err);
	else
		job_done(arg, r->payload, r->len, r->fds_count ? r->fds[0] : -1);
}

static void run_worker(struct job *j, int (*work)(void *, struct worker_result *, struct err *),
		       uint32_t timeout_ms)
{
	const struct worker_spec spec = {
		.work = work, .done = finish, .arg = j, .timeout_ms = timeout_ms, .cgroup = -1
	};
	struct err e = ERR_INIT;

	if (worker_start(&spec, &e))
		job_fail(j, &e);
}

static void put_payload(struct worker_result *r, const void *payload, size_t len)
{
	memcpy(r->payload, payload, len);
	r->len = len;
}

/* ---- the verbs ---- */

/* Tells settings and abilities of the host; changes nothing. */
static void run_hello(struct job *j)
{
	struct keeper_hello_reply r = {
		.version = KEEPER_VERSION,
		.slots_max = conf->slots_max,
		.id_base = conf->id_base,
		.limits = info->limits,
		.cgroup_v2 = info->v2,
		.quota = info->quota,
		.host_cpus = (uint32_t)get_nprocs(),
	};
	struct in_addr gateway4 = conf_gateway4(conf);
	struct in6_addr gateway6 = conf_gateway6(conf);
	struct sysinfo si;

	if (!sysinfo(&si))
		r.host_memory = (uint64_t)si.totalram * si.mem_unit;
	snprintf(r.agent_dir, sizeof(r.agent_dir), "%.90s/agents", conf->run_dir);
	inet_ntop(AF_INET, &gateway4, r.gateway4, sizeof(r.gateway4));
	inet_ntop(AF_INET6, &gateway6, r.gateway6, sizeof(r.gateway6));
	str_copy(r.boot_id, sizeof(r.boot_id), record_boot_id());
	str_copy(r.notes, sizeof(r.notes), info->notes);
	job_done(j, &r, sizeof(r), -1);
}

/* Reads two counters. */
static void run_pool(struct job *j)
{
	struct keeper_pool_reply r;
	struct err e = ERR_INIT;

	if (pool_usage(&r, &e))
		job_fail(j, &e);
	else
		job_done(j, &r, sizeof(r), -1);
}

static int pool_list_work(void *arg, struct worker_result *r, struct err *e)
{
	int fd = memfd_create("pool", MFD_CLOEXEC);

	(void)arg;
	if (fd < 0)
		return err_set(e, errno, "memfd: %m");
	r->fds[0] = fd;
	r->fds_count = 1;
	return pool_list(fd, e);
}

/* Tells names that this program gave; the descriptor is a memory file. */
static void run_pool_list(struct job *j)
{
	run_worker(j, pool_list_work, LIST_TIMEOUT_MS);
}

static int layer_create_work(void *arg, struct worker_result *r, struct err *e)
{
	struct job *j = arg;
	struct keeper_layer_reply reply;
	int status = unpack_run(conf, j->req.body.layer_create.layer, info->init, j->fd,
				conf_root_id(conf, conf->slots_max), &reply, e);

	if (!status)
		put_payload(r, &reply, sizeof(reply));
	return status;
}

/* The archive is never looked at here: skerry-init reads it in a sandbox that has the new layer and
 * nothing else. The caller chooses an unused id of the form of ours, so nothing is overwritten. */
static void run_layer_create(struct job *j)
{
	run_worker(j, layer_create_work, j->req.body.layer_create.timeout_ms);
}

static int layer_delete_work(void *arg, struct worker_result *r, struct err *e)
{
	(void)r;
	return pool_layer_delete(((struct job *)arg)->req.body.layer.layer, e);
}

/* Deletes a subvolume below layers/ by an id of our form. Mounted ones live on until unmounted. */
static void run_layer_delete(struct job *j)
{
	run_worker(j, layer_delete_work, DELETE_TIMEOUT_MS);
}

static int create_work(void *arg, struct worker_result *r, struct err *e)
{
	const struct keeper_sandbox_create *c = &((struct job *)arg)->req.body.create;

	(void)r;
	return pool_sandbox_create(c->id, c->layer, c->disk_bytes, e);
}

/* Makes two subvolumes under a new name of our form; an existing one is refused. What lies in the
 * second comes from an engine of ours, read-only since its layer was made (engine.h). */
static void run_create(struct job *j)
{
	run_worker(j, create_work, CREATE_TIMEOUT_MS);
}

static int stats_work(void *arg, struct worker_result *r, struct err *e)
{
	const char *id = ((struct job *)arg)->req.body.sandbox.id;
	struct keeper_stats_reply reply = { 0 };
	struct cgroup_stats c;

	(void)e;
	cgroup_stats(id, &c);
	reply.cpu_ns = c.cpu_ns;
	reply.memory_bytes = c.memory_bytes;
	reply.pids = c.pids;
	reply.oom_kills = c.oom_kills;
	(void)pool_sandbox_used(id, &reply.disk_bytes); /* 0 where there are no quotas */
	put_payload(r, &reply, sizeof(reply));
	return 0;
}

/* Reads counters, past the queue of the sandbox: a stop that takes long does not hide them. */
static void run_stats(struct job *j)
{
	run_worker(j, stats_work, LIST_TIMEOUT_MS);
}

static int write_live(int fd, const struct machine *m)
{
	struct keeper_live l = {
		.pid = (uint32_t)m->host_pid,
		.slot = m->slot,
		.enforced = m->enforced,
	};

	str_copy(l.id, sizeof(l.id), m->id);
	conf_addresses(conf, m->slot, l.address4, l.address6);
	return write_all(fd, &l, sizeof(l));
}

/* Tells the running sandboxes; the descriptor is a memory file. */
static void run_sandbox_list(struct job *j)
{
	_cleanup_close_ int fd = memfd_create("sandboxes", MFD_CLOEXEC);
	struct err e = ERR_INIT;
	int r = fd < 0 ? err_set(&e, errno, "memfd: %m") : 0;

	for (const struct machine *m = machine_first(); m && !r; m = m->next) {
		if (m->state == MACHINE_RUNNING && (r = write_live(fd, m)))
			err_set(&e, r, "list the sandboxes: %m");
	}
	if (r)
		job_fail(j, &e);
	else
		job_done(j, NULL, 0, fd);
}

static int slot_prepare_work(void *arg, struct worker_result *r, struct err *e)
{
	return ready_make(((struct job *)arg)->req.body.slot.slot, r, e);
}

static void slot_prepared(void *arg, struct worker_result *r)
{
	struct job *j = arg;
	struct slot_ns ns = { r->fds[0], r->fds[1] };

	if (r->status) {
		job_fail(j, &r->err);
		return;
	}
	r->fds[0] = r->fds[1] = -1;
	ready_admitted(j->req.body.slot.slot);
	/* a start may have taken the number, or the client left: then this is one too many */
	if (machine_slot_used(j->req.body.slot.slot) || !j->client)
		slot_ns_close(&ns);
	else
		ready_put(j->req.body.slot.slot, &ns, j->client);
	job_done(j, NULL, 0, -1);
}

/* Makes namespaces and a link whose names follow from the number. */
static void run_slot_prepare(struct job *j)
{
	const uint32_t slot = j->req.body.slot.slot;
	const struct worker_spec spec = {
		.work = slot_prepare_work,
		.done = slot_prepared,
		.arg = j,
		.timeout_ms = SLOT_TIMEOUT_MS,
		.cgroup = -1,
	};
	struct err e = ERR_INIT;
	int r = 0;

	if (machine_slot_used(slot))
		r = err_reason(&e, EBUSY, "slot_busy", "slot %u is in use", slot);
	else if (ready_has(slot))
		r = err_reason(&e, EEXIST, "slot_ready", "slot %u is prepared already", slot);
	else
		r = worker_start(&spec, &e);
	if (r)
		job_fail(j, &e);
}

/* Closes descriptors of our own. */
static void run_slot_drop(struct job *j)
{
	ready_drop(j->req.body.slot.slot);
	job_done(j, NULL, 0, -1);
}

/* The form of each verb's request stands in request.c. start, stop, kill and destroy: everything
 * that they touch has a name made of the id and the slot (machine.c). */
static const struct verb verbs[KEEPER_VERB_END] = {
	[KEEPER_HELLO] = { "hello", NULL, run_hello },
	[KEEPER_POOL] = { "pool", NULL, run_pool },
	[KEEPER_POOL_LIST] = { "pool list", NULL, run_pool_list },
	[KEEPER_LAYER_CREATE] = { "layer create", NULL, run_layer_create },
	[KEEPER_LAYER_DELETE] = { "layer delete", NULL, run_layer_delete },
	[KEEPER_SANDBOX_CREATE] = { "create", machine_of, run_create },
	[KEEPER_SANDBOX_START] = { "start", machine_of, machine_start },
	[KEEPER_SANDBOX_STOP] = { "stop", machine_of, machine_stop },
	[KEEPER_SANDBOX_KILL] = { "kill", machine_of, machine_kill },
	[KEEPER_SANDBOX_DESTROY] = { "destroy", machine_of, machine_destroy },
	[KEEPER_SANDBOX_LIMIT] = { "limit", machine_of, machine_limit },
	[KEEPER_SANDBOX_STATS] = { "stats", NULL, run_stats },
	[KEEPER_SANDBOX_LIST] = { "list", NULL, run_sandbox_list },
	[KEEPER_SLOT_PREPARE] = { "slot prepare", NULL, run_slot_prepare },
	[KEEPER_SLOT_DROP] = { "slot drop", NULL, run_slot_drop },
};

const struct verb *verb_find(uint32_t number)
{
	return &verbs[number];
}
