/*
 * Making a sandbox. The row is written, and the disk is made in a thread of its own while the row
 * is being committed; the machine starts once both are done, and the answer can go out when its
 * time is over. A disk without a row, after a crash, is removed by the next start. While somebody waits, a
 * failure undoes everything and is told; later it is the state FAILED with its reason.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "sandbox/identifier.h"
#include "sandbox/internal.h"

enum {
	DEFAULT_CPUS = 2,
	DEFAULT_MEMORY_MB = 4096,
	DEFAULT_DISK_GB = 50,
	DEFAULT_PIDS = 4096,
	IDENTIFIER_TRIES = 10000,
};

#define DEFAULT_OS "debian:12"

struct job {
	struct sandbox_row row;
	char actor_name[NAME_SIZE + 8], request[ID_SIZE];
	struct actor actor;
	/* under `lock`: the row is committed, or never will be; the work has ended; nobody waits any
	 * more; who waits has to go on waiting */
	bool kept, dropped, done, left, undoing;
	struct err failure;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned jobs;

/* -- what is asked for --------------------------------------------------------------------- */

/* As much of the default as the host has. */
static void default_size(const struct backend_info *host, struct sandbox_row *row)
{
	uint64_t host_mb = host->host_memory >> 20;
	uint32_t cpus = DEFAULT_CPUS, mb = DEFAULT_MEMORY_MB;

	if (host->host_cpus && cpus > host->host_cpus)
		cpus = host->host_cpus;
	if (host_mb && mb > host_mb)
		mb = (uint32_t)host_mb;
	row->cpu_milli = cpus * 1000;
	row->memory_mb = mb;
	row->disk_gb = DEFAULT_DISK_GB;
	row->pids = DEFAULT_PIDS;
	str_copy(row->resources, sizeof(row->resources),
		 cpus == DEFAULT_CPUS && mb == DEFAULT_MEMORY_MB ? "2x4" : "CUSTOM");
}

int sandbox_pool_check(struct err *e)
{
	const uint64_t least = 2ull << 30;
	struct backend_pool p = { 0 };

	if (sandbox_context.backend->pool(&p, e) < 0) {
		err_wrap(e, "ask how full the pool is");
		return backend_fault(e, EHOSTDOWN, "backend_failed");
	}
	if (p.free < p.total / 20 || p.free < least)
		err_reason(e, ENOSPC, "pool_full", "the pool has %llu MiB free of %llu",
			   (unsigned long long)(p.free >> 20), (unsigned long long)(p.total >> 20));
	else if (p.host_total && p.host_free < p.host_total / 10)
		err_reason(e, ENOSPC, "pool_full",
			   "the file system below the pool has %llu MiB free of %llu",
			   (unsigned long long)(p.host_free >> 20),
			   (unsigned long long)(p.host_total >> 20));
	else
		return 0;
	return err_hint(e, "delete sandboxes or images, or enlarge the pool");
}

static int find_image(struct tx *t, const char *os, struct image_row *ret, struct err *e)
{
	int r = image_by_name(t, os, ret, e);

	if (r != -ENOENT)
		return r;
	err_reason(e, EINVAL, "image_not_found", "this host has no image '%s'", os);
	err_field(e, "os");
	return err_hint(e, "GET …/images lists those it has");
}

/* -- the row ------------------------------------------------------------------------------- */

static int is_taken(struct tx *t, const char *project, const char *identifier, struct err *e)
{
	struct sandbox_row other;
	int r = sandbox_by_identifier(t, project, identifier, &other, e);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	sandbox_row_release(&other);
	return 1;
}

static int random_identifier(char out[IDENTIFIER_SIZE], struct err *e)
{
	char id[ID_SIZE];
	int r = id_make("xx", id);

	if (r < 0)
		return err_set(e, -r, "make an identifier: %m");
	snprintf(out, IDENTIFIER_SIZE, "sandbox-%.6s", id + 2);
	return 0;
}

static int choose_identifier(struct tx *t, const struct create_request *in, struct sandbox_row *row,
			     struct err *e)
{
	char base[IDENTIFIER_SIZE];
	int r;

	if (in->identifier) {
		str_copy(row->identifier, sizeof(row->identifier), in->identifier);
		r = is_taken(t, row->project, row->identifier, e);
		if (r <= 0)
			return r;
		err_reason(e, EEXIST, "identifier_taken",
			   "the project has a sandbox with the identifier '%s'", in->identifier);
		err_field(e, "identifier");
		return err_hint(e, "choose another identifier, or delete that sandbox");
	}
	identifier_derive(in->name, base);
	if (!*base) {
		r = random_identifier(base, e);
		if (r < 0)
			return r;
	}
	memcpy(row->identifier, base, sizeof(base));
	for (unsigned n = 2; n < IDENTIFIER_TRIES; n++) {
		r = is_taken(t, row->project, row->identifier, e);
		if (r <= 0)
			return r;
		identifier_number(base, n, row->identifier);
	}
	return err_reason(e, EEXIST, "identifier_taken", "too many sandboxes are named '%s'", base);
}

static int fill_row(const struct create_request *in, struct sandbox_row *row, struct err *e)
{
	unsigned char machine_id[16];
	int r = id_make("sb", row->id);

	if (r < 0 || getrandom(machine_id, sizeof(machine_id), 0) != sizeof(machine_id))
		return err_set(e, EIO, "make an id");
	hex_encode(machine_id, sizeof(machine_id), row->machine_id);
	str_copy(row->name, sizeof(row->name), in->name);
	str_copy(row->setup_status, sizeof(row->setup_status), "INPROGRESS");
	row->status = RESTORING;
	row->tags = in->tags ? json_dumps(in->tags, JSON_COMPACT) : strdup("[]");
	row->scope = in->scope ? strdup(in->scope) : NULL;
	row->environment = in->environment ? strdup(in->environment) : NULL;
	if (!row->tags || (in->scope && !row->scope) || (in->environment && !row->environment))
		return err_set(e, ENOMEM, "out of memory");
	return 0;
}

/* Leaves the transaction open: the caller commits. */
static int write_row(struct tx *t, const struct create_request *in, const struct create_options *o,
		     struct sandbox_row *row, struct err *e)
{
	const struct idempotency_ref *once = o->idempotency;
	struct image_row image;
	int r = tx_begin(t, STORE_DURABLE, e);

	if (!r)
		r = find_image(t, in->os ? in->os : DEFAULT_OS, &image, e);
	if (!r)
		r = memory_check(t, NULL, row->memory_mb, e);
	if (!r)
		r = choose_identifier(t, in, row, e);
	if (!r)
		r = layer_ref(t, image.layer, e);
	if (r < 0)
		return r;
	str_copy(row->os, sizeof(row->os), image.name);
	str_copy(row->layer, sizeof(row->layer), image.layer);
	str_copy(row->default_user, sizeof(row->default_user), image.user);
	str_copy(row->work_dir, sizeof(row->work_dir), image.work_dir);
	r = sandbox_insert(t, row, o->actor, e);
	if (r >= 0 && once)
		r = idempotency_bind(t, once->token, once->path, once->key, row->id, e);
	if (r >= 0)
		r = event_add(t, row->id, "created", row->identifier, o->actor, e);
	if (r >= 0)
		r = audit_add(t, o->actor, "sandbox.create", row->id, e);
	return r;
}

/* -- the work ------------------------------------------------------------------------------ */

/* The mark comes first: cut off anywhere after it, the next start goes on with the removal. */
static int mark(const char *id, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (!r)
		r = sandbox_set_deleting(&t, id, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static void undo(struct job *j)
{
	struct err e = ERR_INIT;

	if (mark(j->row.id, &e) < 0 || sandbox_finish_delete(&j->row, &j->actor, &e) < 0)
		log_error("sandbox %s: undo its creation: %s", j->row.id, e.text);
}

/* True once the row is committed; false: it never will be. */
static bool row_kept(struct job *j)
{
	bool kept;

	pthread_mutex_lock(&lock);
	while (!j->kept && !j->dropped)
		pthread_cond_wait(&changed, &lock);
	kept = j->kept;
	pthread_mutex_unlock(&lock);
	return kept;
}

static void row_decided(struct job *j, bool kept)
{
	pthread_mutex_lock(&lock);
	j->kept = kept;
	j->dropped = !kept;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* `disk`: what making it came to, with `e` set. */
static int boot(struct job *j, int disk, struct err *e)
{
	struct op op = { .actor = &j->actor };

	if (disk < 0) {
		err_wrap(e, "the disk of sandbox '%s' could not be made", j->row.identifier);
		return backend_fault(e, EHOSTDOWN, "backend_failed");
	}
	return sandbox_run_event(&j->row, EV_MADE, &op, e);
}

static void job_free(struct job *j)
{
	sandbox_row_release(&j->row);
	free(j);
}

/* There is no row: nobody waits, and nothing may stay. */
static void job_drop(struct job *j)
{
	struct err e = ERR_INIT;

	if (sandbox_context.backend->destroy(j->row.id, &e) < 0)
		log_error("sandbox %s: remove the disk of a row that was not kept: %s", j->row.id,
			  e.text);
	sandbox_unlock(j->row.id);
	job_free(j);
	pthread_mutex_lock(&lock);
	jobs--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void *job_run(void *arg)
{
	struct job *j = arg;
	struct err e = ERR_INIT;
	int disk = sandbox_context.backend->create(j->row.id, j->row.layer,
						   (uint64_t)j->row.disk_gb << 30, &e);
	bool failed, left;

	if (!row_kept(j)) {
		job_drop(j);
		return NULL;
	}
	failed = boot(j, disk, &e) < 0;
	pthread_mutex_lock(&lock);
	left = j->left;
	j->undoing = failed && !left;
	pthread_mutex_unlock(&lock);
	if (failed && !left)
		undo(j);
	else if (failed && j->row.status == RESTORING)
		sandbox_settle_as(&j->row, FAILED, EXIT_CREATE_FAILED, e.text, &e);
	sandbox_unlock(j->row.id);

	pthread_mutex_lock(&lock);
	j->failure = e;
	if (!failed)
		j->failure.code = 0;
	j->done = true;
	jobs--;
	left = j->left;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	if (left)
		job_free(j);
	return NULL;
}

static int job_start(struct job *j, struct err *e)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	pthread_mutex_lock(&lock);
	r = pthread_create(&thread, &attr, job_run, j);
	if (!r)
		jobs++;
	pthread_mutex_unlock(&lock);
	pthread_attr_destroy(&attr);
	return r ? err_reason(e, EAGAIN, "host_full", "start a thread: %s", strerror(r)) : 0;
}

/* 1: it has ended (j is the caller's again), 0: it goes on by itself. */
static int job_wait(struct job *j, uint32_t wait_ms)
{
	struct timespec until;
	int ended;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&lock);
	while (!j->done) {
		if (j->undoing)
			pthread_cond_wait(&changed, &lock);
		else if (pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT &&
			 !j->undoing)
			break;
	}
	ended = j->done;
	j->left = !ended;
	pthread_mutex_unlock(&lock);
	return ended;
}

void sandbox_shutdown(void)
{
	pthread_mutex_lock(&lock);
	while (jobs)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static int prepare(const struct create_request *in, const struct create_options *o, struct job *j,
		   struct err *e)
{
	struct backend_info host = { 0 };
	int r = sandbox_context.backend->info(&host, e);

	if (r < 0)
		return backend_fault(e, EHOSTDOWN, "backend_failed");
	str_copy(j->actor_name, sizeof(j->actor_name), o->actor->name);
	str_copy(j->request, sizeof(j->request), o->actor->request);
	j->actor = (struct actor){ .name = j->actor_name, .request = j->request };
	str_copy(j->row.project, sizeof(j->row.project), o->project->id);
	default_size(&host, &j->row);
	r = size_resolve(&in->size, &host, &j->row, e);
	if (!r)
		r = sandbox_pool_check(e);
	if (!r)
		r = fill_row(in, &j->row, e);
	return r;
}

/* Writes the row and starts the work. On failure the job is gone, or goes by itself. */
static int begin(struct job *j, const struct create_request *in, const struct create_options *o,
		 struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = write_row(&t, in, o, &j->row, e);

	if (!r)
		r = job_start(j, e);
	if (r < 0) {
		tx_end(&t);
		sandbox_unlock(j->row.id);
		job_free(j);
		return r;
	}
	r = tx_commit(&t, e);
	row_decided(j, r >= 0);
	return r;
}

int sandbox_create(const struct create_request *in, const struct create_options *o,
		   struct sandbox_row *ret, struct err *e)
{
	struct job *j = calloc(1, sizeof(*j));
	char id[ID_SIZE];
	int r;

	if (!j)
		return err_set(e, ENOMEM, "out of memory");
	r = prepare(in, o, j, e);
	if (!r)
		r = sandbox_lock(j->row.id, LOCK_WAIT);
	if (r < 0) {
		job_free(j);
		return r;
	}
	memcpy(id, j->row.id, sizeof(id));
	r = begin(j, in, o, e);
	if (r < 0)
		return r;
	if (job_wait(j, o->wait_ms)) {
		r = j->failure.code ? -j->failure.code : 0;
		if (r < 0)
			*e = j->failure;
		job_free(j);
		if (r < 0)
			return r;
	}
	return sandbox_get(id, ret, e);
}
