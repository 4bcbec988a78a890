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
#include "record.h"

enum { LIST_TIMEOUT_MS = 30 * 1000, SLOT_TIMEOUT_MS = 30 * 1000, DELETE_TIMEOUT_MS = 600 * 1000 };

static const struct conf *conf;
static const struct verbs_info *info;

void verbs_init(const struct conf *c, const struct verbs_info *i)
{
	conf = c;
	info = i;
}

/* ---- the form of every field ---- */

static bool text_ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool is_id(const char *text, size_t size, const char *kind)
{
	return text_ends(text, size) && id_valid(text, kind);
}

static bool valid_hello(const struct job *j)
{
	return j->body.hello.version == KEEPER_VERSION && j->body.hello.sizes == keeper_sizes();
}

static bool valid_layer_create(const struct job *j)
{
	const struct keeper_layer_create *l = &j->body.layer_create;

	return is_id(l->layer, sizeof(l->layer), "ly") && l->timeout_ms;
}

static bool valid_layer(const struct job *j)
{
	return is_id(j->body.layer.layer, sizeof(j->body.layer.layer), "ly");
}

static bool valid_sandbox(const struct job *j)
{
	/* the id is the first member of every sandbox verb's struct */
	return is_id(j->body.sandbox.id, sizeof(j->body.sandbox.id), "sb");
}

static bool valid_hostname(const char *name, size_t size)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	return text_ends(name, size) && *name && *name != '-' && !str_ends(name, "-") &&
	       name[strspn(name, allowed)] == '\0';
}

static bool valid_start(const struct job *j)
{
	const struct keeper_sandbox_start *s = &j->body.start;

	if (!valid_sandbox(j) || !valid_hostname(s->hostname, sizeof(s->hostname)) ||
	    !text_ends(s->machine_id, sizeof(s->machine_id)) || strlen(s->machine_id) != 32 ||
	    strspn(s->machine_id, "0123456789abcdef") != 32 || s->slot >= conf->slots_max ||
	    s->layers_count < 1 || s->layers_count > KEEPER_LAYERS_MAX || s->cpu_milli < 10 ||
	    s->pids < 16 || s->memory_bytes < 16 * 1024 * 1024)
		return false;
	for (unsigned i = 0; i < s->layers_count; i++) {
		if (!is_id(s->layers[i], sizeof(s->layers[i]), "ly"))
			return false;
	}
	return true;
}

static bool valid_slot(const struct job *j)
{
	return j->body.slot.slot < conf->slots_max;
}

static const char *machine_of(const struct job *j)
{
	return j->body.sandbox.id;
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
	int status = unpack_run(conf, j->body.layer_create.layer, info->init, j->fd,
				conf_root_id(conf, conf->slots_max), &reply, e);

	if (!status)
		put_payload(r, &reply, sizeof(reply));
	return status;
}

/* The archive is never looked at here: skerry-init reads it in a sandbox that has the new layer and
 * nothing else. The caller chooses an unused id of the form of ours, so nothing is overwritten. */
static void run_layer_create(struct job *j)
{
	run_worker(j, layer_create_work, j->body.layer_create.timeout_ms);
}

static int layer_delete_work(void *arg, struct worker_result *r, struct err *e)
{
	(void)r;
	return pool_layer_delete(((struct job *)arg)->body.layer.layer, e);
}

/* Deletes a subvolume below layers/ by an id of our form. Mounted ones live on until unmounted. */
static void run_layer_delete(struct job *j)
{
	run_worker(j, layer_delete_work, DELETE_TIMEOUT_MS);
}

static int create_work(void *arg, struct worker_result *r, struct err *e)
{
	const struct keeper_sandbox_create *c = &((struct job *)arg)->body.create;

	(void)r;
	return pool_sandbox_create(c->id, c->disk_bytes, e);
}

/* Makes two empty subvolumes under a new name of our form; an existing one is refused. */
static void run_create(struct job *j)
{
	run_worker(j, create_work, LIST_TIMEOUT_MS);
}

static int stats_work(void *arg, struct worker_result *r, struct err *e)
{
	const char *id = ((struct job *)arg)->body.sandbox.id;
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
	struct in_addr a4 = conf_addr4(conf, m->slot);
	struct in6_addr a6 = conf_addr6(conf, m->slot);

	str_copy(l.id, sizeof(l.id), m->id);
	inet_ntop(AF_INET, &a4, l.address4, sizeof(l.address4));
	inet_ntop(AF_INET6, &a6, l.address6, sizeof(l.address6));
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
	uint32_t slot = ((struct job *)arg)->body.slot.slot;
	struct slot_ns ns;
	int status = slot_make_admitted(slot, &ns, e);

	if (status)
		return status;
	r->fds[0] = ns.userns;
	r->fds[1] = ns.netns;
	r->fds_count = 2;
	return 0;
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
	/* a start may have taken the number meanwhile: then this is one too many */
	if (machine_slot_used(j->body.slot.slot))
		slot_ns_close(&ns);
	else
		slot_put(j->body.slot.slot, &ns);
	job_done(j, NULL, 0, -1);
}

/* Makes namespaces and a link whose names follow from the number. */
static void run_slot_prepare(struct job *j)
{
	const uint32_t slot = j->body.slot.slot;
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
	else if (slot_ready(slot))
		r = err_reason(&e, EEXIST, "slot_ready", "slot %u is prepared already", slot);
	else
		r = worker_start(&spec, &e);
	if (r)
		job_fail(j, &e);
}

/* Closes descriptors of our own. */
static void run_slot_drop(struct job *j)
{
	slot_drop(j->body.slot.slot);
	job_done(j, NULL, 0, -1);
}

#define BODY(member) sizeof(((struct job *)0)->body.member)

/* start, stop, kill and destroy: the id and the slot are checked here, everything that they lead to
 * has a name made of them (machine.c). */
static const struct verb verbs[KEEPER_VERB_END] = {
	[KEEPER_HELLO] = { "hello", BODY(hello), 0, valid_hello, NULL, run_hello },
	[KEEPER_POOL] = { "pool", 0, 0, NULL, NULL, run_pool },
	[KEEPER_POOL_LIST] = { "pool list", 0, 0, NULL, NULL, run_pool_list },
	[KEEPER_LAYER_CREATE] = { "layer create", BODY(layer_create), 1, valid_layer_create, NULL,
				  run_layer_create },
	[KEEPER_LAYER_DELETE] = { "layer delete", BODY(layer), 0, valid_layer, NULL,
				  run_layer_delete },
	[KEEPER_SANDBOX_CREATE] = { "create", BODY(create), 0, valid_sandbox, machine_of,
				    run_create },
	[KEEPER_SANDBOX_START] = { "start", BODY(start), 0, valid_start, machine_of,
				   machine_start },
	[KEEPER_SANDBOX_STOP] = { "stop", BODY(stop), 0, valid_sandbox, machine_of, machine_stop },
	[KEEPER_SANDBOX_KILL] = { "kill", BODY(sandbox), 0, valid_sandbox, machine_of,
				  machine_kill },
	[KEEPER_SANDBOX_DESTROY] = { "destroy", BODY(sandbox), 0, valid_sandbox, machine_of,
				     machine_destroy },
	[KEEPER_SANDBOX_STATS] = { "stats", BODY(sandbox), 0, valid_sandbox, NULL, run_stats },
	[KEEPER_SANDBOX_LIST] = { "list", 0, 0, NULL, NULL, run_sandbox_list },
	[KEEPER_SLOT_PREPARE] = { "slot prepare", BODY(slot), 0, valid_slot, NULL,
				  run_slot_prepare },
	[KEEPER_SLOT_DROP] = { "slot drop", BODY(slot), 0, valid_slot, NULL, run_slot_drop },
};

const struct verb *verb_find(uint32_t number)
{
	return number < ARRAY_SIZE(verbs) && verbs[number].run ? &verbs[number] : NULL;
}
