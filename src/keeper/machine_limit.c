/*
 * Other limits for a sandbox, while it runs and for its disk.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"

#include "cpuset.h"
#include "machine_parts.h"
#include "pool.h"
#include "record.h"

enum { LIMIT_TIMEOUT_MS = 30 * 1000, AFFINITY_PASSES = 2 };

struct spread {
	uint32_t cpu_milli, slot;
};

static void place(void *arg, int tid)
{
	const struct spread *s = arg;

	cpuset_affinity(tid, s->cpu_milli, s->slot);
}

static int disk_fits(const struct keeper_sandbox_limit *l, struct err *e)
{
	uint64_t used;

	if (pool_sandbox_used(l->id, &used) < 0 || used <= l->disk_bytes)
		return 0;
	return err_reason(e, EBUSY, "disk_in_use", "%llu MiB of the disk are in use",
			  (unsigned long long)(used >> 20));
}

static int processors(const struct machine *m, uint32_t cpu_milli, struct err *e)
{
	struct spread spread = { cpu_milli, m->slot };

	if (cpuset_available())
		return cpuset_set(m->id, cpu_milli, m->slot, e);
	/* whoever is born from one not placed yet is there the second time */
	for (int i = 0; i < AFFINITY_PASSES; i++)
		cgroup_threads(m->id, place, &spread);
	return 0;
}

/* What may be refused comes first. */
static int limit_work(void *arg, struct worker_result *r, struct err *e)
{
	const struct machine *m = arg;
	const struct keeper_sandbox_limit *l = &m->head->req.body.limit;
	const struct cgroup_limits limits = { l->cpu_milli, l->pids, l->memory_bytes };
	struct keeper_limit_reply reply = { 0 };
	int bits = disk_fits(l, e), disk;

	if (!bits && m->state == MACHINE_RUNNING)
		bits = cgroup_limit(m->id, &limits, e);
	if (bits < 0)
		return bits;
	disk = pool_sandbox_limit(m->id, l->disk_bytes, e);
	if (disk < 0 && disk != -ENOENT) /* a disk that is yet to be made is made with it */
		return disk;
	if (m->state == MACHINE_RUNNING && processors(m, l->cpu_milli, e) < 0)
		return -e->code;
	reply.enforced = (uint32_t)bits |
			 (l->disk_bytes && pool_has_quota() ? KEEPER_LIMIT_DISK : 0) |
			 (cpuset_available() ? KEEPER_LIMIT_CPUSET : 0);
	memcpy(r->payload, &reply, sizeof(reply));
	r->len = sizeof(reply);
	return 0;
}

static void limited(void *arg, struct worker_result *r)
{
	struct machine *m = arg;
	struct keeper_limit_reply reply;
	struct record rec = { .pid = m->host_pid, .slot = m->slot };
	struct err e = r->err;
	int status = r->status;

	if (!status && r->len != sizeof(reply))
		status = err_set(&e, EPROTO, "the worker told nothing");
	if (status) {
		job_fail(m->head, &e);
		return;
	}
	memcpy(&reply, r->payload, sizeof(reply));
	if (m->state == MACHINE_RUNNING) {
		m->enforced = rec.enforced = reply.enforced;
		str_copy(rec.id, sizeof(rec.id), m->id);
		if (record_write(&rec, &e))
			log_warn("%s", e.text);
	}
	job_done(m->head, &reply, sizeof(reply), -1);
}

/* Writes numbers of the right form to files whose names are made of the id. */
void machine_limit(struct job *j)
{
	const struct worker_spec spec = { .work = limit_work,
					  .done = limited,
					  .arg = j->machine,
					  .timeout_ms = LIMIT_TIMEOUT_MS,
					  .cgroup = -1 };
	struct err e = ERR_INIT;

	if (worker_start(&spec, &e))
		job_fail(j, &e);
}
