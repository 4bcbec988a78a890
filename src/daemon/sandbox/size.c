/*
 * How large a sandbox is: what may be asked for, and other limits for one that is there.
 */
#include <errno.h>
#include <string.h>

#include "base/banned.h"

#include "sandbox/identifier.h"
#include "sandbox/internal.h"

static int too_big(struct err *e, const char *field, const char *unit, uint64_t asked,
		   uint64_t have)
{
	err_reason(e, EINVAL, "above_host", "%llu %s are asked for, this host has %llu",
		   (unsigned long long)asked, unit, (unsigned long long)have);
	return err_field(e, "%s", field);
}

int size_resolve(const struct size_request *in, const struct backend_info *host,
		 struct sandbox_row *row, struct err *e)
{
	const struct size *size = in->resources ? size_find(in->resources) : NULL;
	uint64_t host_mb = host->host_memory >> 20;
	uint64_t cpus = row->cpu_milli / 1000, mb = row->memory_mb;
	bool asked = in->resources || in->cpus || in->memory_mb;

	if (size) {
		cpus = size->cpus;
		mb = (uint64_t)size->memory_gb * 1024;
	}
	if (in->cpus)
		cpus = in->cpus;
	if (in->memory_mb)
		mb = in->memory_mb;
	if (host->host_cpus && cpus > host->host_cpus)
		return too_big(e, in->cpus ? "cpus" : "resources", "cpus", cpus, host->host_cpus);
	if (host_mb && mb > host_mb)
		return too_big(e, in->memory_mb ? "memory_mb" : "resources", "MiB of memory", mb,
			       host_mb);
	if (asked) {
		row->cpu_milli = (uint32_t)cpus * 1000;
		row->memory_mb = (uint32_t)mb;
		str_copy(row->resources, sizeof(row->resources),
			 size && !in->cpus && !in->memory_mb ? in->resources : "CUSTOM");
	}
	row->disk_gb = in->disk_gb ? in->disk_gb : row->disk_gb;
	row->pids = in->pids ? in->pids : row->pids;
	return 0;
}

int memory_check(struct tx *t, const char *except, uint32_t memory_mb, struct err *e)
{
	struct backend_info host = { 0 };
	uint64_t promised, most;
	int r = sandbox_context.backend->info(&host, e);

	if (r < 0)
		return backend_fault(e, EHOSTDOWN, "backend_failed");
	r = sandboxes_memory_mb(t, except, &promised, e);
	if (r < 0)
		return r;
	most = (host.host_memory >> 20) * sandbox_context.config->overcommit_memory;
	if (!most || promised + memory_mb <= most)
		return 0;
	err_reason(e, EAGAIN, "host_full",
		   "%llu MiB of memory are promised to sandboxes, %u more exceed the %llu of this "
		   "host",
		   (unsigned long long)promised, memory_mb, (unsigned long long)most);
	return err_hint(e, "stop or delete a sandbox, ask for less, or raise overcommit_memory");
}

struct backend_limits size_limits(const struct sandbox_row *row)
{
	return (struct backend_limits){
		.cpu_milli = row->cpu_milli,
		.pids = row->pids,
		.memory_bytes = (uint64_t)row->memory_mb << 20,
		.disk_bytes = (uint64_t)row->disk_gb << 30,
	};
}

/* -- a change ------------------------------------------------------------------------------ */

static bool holds_memory(const struct sandbox_row *row)
{
	return row->status == RUNNING || row->status == PAUSED;
}

int size_apply(const struct sandbox_row *row, bool *ret_enforced, struct err *e)
{
	const struct backend_limits limits = size_limits(row);

	if (sandbox_context.backend->limit(row->id, &limits, ret_enforced, e) >= 0)
		return 0;
	if (e->code == EBUSY)
		return err_hint(e, "ask for more, or free some first");
	return backend_fault(e, EHOSTDOWN, "backend_failed");
}

static int write_change(const struct sandbox_change *c, struct sandbox_row *row, bool resized,
			const struct actor *a, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	_cleanup_sandbox_ struct sandbox_row now = { 0 };
	int r = tx_begin(&t, STORE_DURABLE, e);

	/* others may have changed the rest meanwhile */
	if (!r)
		r = sandbox_by_id(&t, row->id, &now, e);
	if (!r && resized && holds_memory(row) && row->memory_mb > now.memory_mb)
		r = memory_check(&t, row->id, row->memory_mb, e);
	if (r < 0)
		return r;
	if (c->name)
		str_copy(now.name, sizeof(now.name), c->name);
	if (c->tags) {
		free(now.tags);
		now.tags = json_dumps(c->tags, JSON_COMPACT);
		if (!now.tags)
			return err_set(e, ENOMEM, "out of memory");
	}
	if (resized) {
		str_copy(now.resources, sizeof(now.resources), row->resources);
		now.cpu_milli = row->cpu_milli;
		now.memory_mb = row->memory_mb;
		now.disk_gb = row->disk_gb;
		now.pids = row->pids;
		now.enforced = row->enforced;
	}
	r = sandbox_update_settings(&t, &now, e);
	if (!r)
		r = event_add(&t, row->id, "changed", "", a, e);
	if (!r)
		r = audit_add(&t, a, "sandbox.update", row->id, e);
	return r < 0 ? r : tx_commit(&t, e);
}

/* Under the lock. The limits come first: what the record says is in force, but for a moment; cut off
 * in it, the record's are set again at the next start. */
static int resize(const struct sandbox_change *c, struct sandbox_row *row, const struct actor *a,
		  struct err *e)
{
	const struct sandbox_row before = *row;
	struct backend_info host = { 0 };
	struct err ignored = ERR_INIT;
	bool enforced = row->enforced;
	int r = sandbox_context.backend->info(&host, e);

	if (r < 0)
		return backend_fault(e, EHOSTDOWN, "backend_failed");
	r = size_resolve(&c->size, &host, row, e);
	if (!r)
		r = size_apply(row, &enforced, e);
	if (r < 0)
		return r;
	if (row->status == RUNNING)
		row->enforced = enforced;
	r = write_change(c, row, true, a, e);
	if (r < 0)
		(void)size_apply(&before, &enforced, &ignored);
	return r;
}

static bool has_size(const struct size_request *s)
{
	return s->resources || s->cpus || s->memory_mb || s->disk_gb || s->pids;
}

int sandbox_change(const char *id, const struct sandbox_change *c, const struct actor *a,
		   struct sandbox_row *ret, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	int r;

	if (!has_size(&c->size)) {
		str_copy(row.id, sizeof(row.id), id);
		r = write_change(c, &row, false, a, e);
	} else {
		r = sandbox_lock_row(id, LOCK_BRIEF, &row, e);
		if (r < 0)
			return r;
		r = resize(c, &row, a, e);
		sandbox_unlock(id);
	}
	return r < 0 ? r : sandbox_get(id, ret, e);
}
