/* The host's backend over a fake keeper that keeps the books of slots and machines. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include "backend_keeper.h"
#include "daemon/backend/backend.h"
#include "unit.h"

enum { SLOTS = 100, WANT = 4 };

/* What keeper and store hold. A break of a rule is noted, as it is found on the keeper's thread. */
static struct {
	pthread_mutex_t lock;
	bool taken[SLOTS]; /* in the store */
	bool ready[SLOTS]; /* in the keeper */
	char machine[SLOTS][ID_SIZE];
	unsigned prepares, warm, retains, drops;
	const char *broken;
	bool fail_start, list_short;
	int destroyed;
	uint32_t layer_bytes;
	char disk_layer[ID_SIZE + 1]; /* of the last disk made */
} books = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct backend *backend;

static void lock_books(void)
{
	pthread_mutex_lock(&books.lock);
}

static void unlock_books(void)
{
	pthread_mutex_unlock(&books.lock);
}

static void check_rule(bool ok, const char *rule)
{
	if (!ok && !books.broken)
		books.broken = rule;
}

static int store_take(uint32_t slots_max, uint32_t *ret, struct err *e)
{
	lock_books();
	for (uint32_t i = 0; i < slots_max; i++) {
		if (!books.taken[i]) {
			books.taken[i] = true;
			*ret = i;
			unlock_books();
			return 0;
		}
	}
	unlock_books();
	return err_reason(e, EAGAIN, "host_full", "no slot is left");
}

static int store_release(uint32_t slot, struct err *e)
{
	(void)e;
	lock_books();
	check_rule(books.taken[slot], "released twice");
	check_rule(!books.ready[slot] && !books.machine[slot][0], "released while in use");
	books.taken[slot] = false;
	unlock_books();
	return 0;
}

static int store_retain(const uint32_t *used, unsigned count, struct err *e)
{
	bool keep[SLOTS] = { 0 };

	(void)e;
	for (unsigned i = 0; i < count; i++)
		keep[used[i]] = true;
	lock_books();
	for (unsigned i = 0; i < SLOTS; i++)
		check_rule(!books.machine[i][0] || keep[i], "a used number was forgotten");
	memcpy(books.taken, keep, sizeof(keep));
	books.retains++;
	unlock_books();
	return 0;
}

static const struct slot_store store = { store_take, store_release, store_retain };

static int find_machine(const char *id)
{
	for (int i = 0; i < SLOTS; i++)
		if (!strcmp(books.machine[i], id))
			return i;
	return -1;
}

static void serve_list(const struct fake_request *q)
{
	_cleanup_close_ int fd = -1;
	struct keeper_live live[SLOTS] = { 0 };
	unsigned n = 0;

	for (uint32_t i = 0; i < SLOTS; i++) {
		if (!books.machine[i][0])
			continue;
		str_copy(live[n].id, sizeof(live[n].id), books.machine[i]);
		live[n].slot = i;
		live[n].enforced = 0xff;
		live[n].pid = 1000 + i;
		str_copy(live[n++].address4, sizeof(live[0].address4), "10.213.0.9");
	}
	fd = fake_keeper_file(live, n * sizeof(live[0]) + (books.list_short ? 5 : 0));
	fake_keeper_answer(&q->head, 0, NULL, 0, fd);
}

static void serve_objects(const struct fake_request *q)
{
	struct keeper_object list[] = { { KEEPER_KIND_LAYER, "lyaaaaaaaaaaaaaaaaaaaa" },
					{ KEEPER_KIND_PARTIAL, "odd" } };
	_cleanup_close_ int fd = fake_keeper_file(list, sizeof(list));

	fake_keeper_answer(&q->head, 0, NULL, 0, fd);
}

static void serve_start(const struct fake_request *q)
{
	const struct keeper_sandbox_start *s = (const struct keeper_sandbox_start *)q->body;
	struct keeper_start_reply reply = { .pid = 1000 + s->slot, .enforced = 0xff };

	check_rule(books.taken[s->slot], "started in a slot that is not taken");
	if (books.machine[s->slot][0]) {
		fake_keeper_fail(&q->head, -EBUSY, "slot_busy", "in use");
		return;
	}
	reply.warm = books.ready[s->slot];
	books.warm += reply.warm;
	books.ready[s->slot] = false;
	if (books.fail_start) {
		fake_keeper_fail(&q->head, -EIO, "overlay_readonly", "mount the disk: no");
		return;
	}
	str_copy(books.machine[s->slot], ID_SIZE, s->id);
	str_copy(reply.address4, sizeof(reply.address4), "10.213.0.7");
	fake_keeper_answer(&q->head, 0, &reply, sizeof(reply), -1);
}

static void serve_end(const struct fake_request *q)
{
	int slot = find_machine((const char *)q->body);
	char id[ID_SIZE];

	if (slot >= 0) {
		str_copy(id, sizeof(id), books.machine[slot]);
		books.machine[slot][0] = '\0';
		fake_keeper_exit(id, (uint32_t)slot);
	}
	if (q->head.verb == KEEPER_SANDBOX_DESTROY && slot < 0)
		fake_keeper_fail(&q->head, -ENOENT, "sandbox_unknown", "unknown");
	else
		fake_keeper_answer(&q->head, 0, NULL, 0, -1);
}

static void serve_slot(const struct fake_request *q)
{
	uint32_t slot = ((const struct keeper_slot *)q->body)->slot;

	if (q->head.verb == KEEPER_SLOT_DROP) {
		books.ready[slot] = false;
		books.drops++;
	} else if (books.machine[slot][0]) {
		fake_keeper_fail(&q->head, -EBUSY, "slot_busy", "in use");
		return;
	} else if (books.ready[slot]) {
		fake_keeper_fail(&q->head, -EEXIST, "slot_ready", "ready");
		return;
	} else {
		check_rule(books.taken[slot], "prepared a slot that is not taken");
		books.ready[slot] = true;
		books.prepares++;
	}
	fake_keeper_answer(&q->head, 0, NULL, 0, -1);
}

static void serve_stats(const struct fake_request *q)
{
	const struct keeper_stats_reply s = { 1, 2, 3, 4, 5 };

	fake_keeper_answer(&q->head, 0, &s, sizeof(s), -1);
}

static void serve_pool(const struct fake_request *q)
{
	const struct keeper_pool_reply p = { 10, 20, 30, 40 };

	fake_keeper_answer(&q->head, 0, &p, sizeof(p), -1);
}

static void serve_layer(const struct fake_request *q)
{
	struct keeper_layer_reply reply = { 0 };
	char data[100];

	reply.bytes = (uint64_t)read_full(q->fd, data, sizeof(data));
	fake_keeper_answer(&q->head, 0, &reply, sizeof(reply), -1);
}

static void serve_create(const struct fake_request *q)
{
	const struct keeper_sandbox_create *c = (const struct keeper_sandbox_create *)q->body;

	check_rule(q->head.size == sizeof(*c), "a create of another size");
	str_copy(books.disk_layer, sizeof(books.disk_layer), c->layer);
	fake_keeper_answer(&q->head, 0, NULL, 0, -1);
}

static void serve_nothing(const struct fake_request *q)
{
	fake_keeper_answer(&q->head, 0, NULL, 0, -1);
}

static void serve(const struct fake_request *q)
{
	static void (*const verbs[KEEPER_VERB_END])(const struct fake_request *q) = {
		[KEEPER_POOL] = serve_pool,
		[KEEPER_POOL_LIST] = serve_objects,
		[KEEPER_LAYER_CREATE] = serve_layer,
		[KEEPER_LAYER_DELETE] = serve_nothing,
		[KEEPER_SANDBOX_CREATE] = serve_create,
		[KEEPER_SANDBOX_START] = serve_start,
		[KEEPER_SANDBOX_STOP] = serve_end,
		[KEEPER_SANDBOX_KILL] = serve_end,
		[KEEPER_SANDBOX_DESTROY] = serve_end,
		[KEEPER_SANDBOX_STATS] = serve_stats,
		[KEEPER_SANDBOX_LIST] = serve_list,
		[KEEPER_SLOT_PREPARE] = serve_slot,
		[KEEPER_SLOT_DROP] = serve_slot,
	};

	lock_books();
	verbs[q->head.verb](q);
	unlock_books();
}

/* --- what is told upwards --- */

static unsigned ends, returns;

static void on_exit_told(const struct backend_exit *x)
{
	if (!id_valid(x->id, NULL) || !x->known || x->code != 3)
		abort();
	__atomic_add_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

static void count_live(void *arg, const char *id, const struct backend_machine *m)
{
	if (!id_valid(id, NULL) || !m->enforced || strcmp(m->address4, "10.213.0.9"))
		abort();
	++*(unsigned *)arg;
}

/* The upper layers ask the backend from here. */
static void on_reconnect_told(void)
{
	unsigned n = 0;
	struct err e = ERR_INIT;

	if (backend->live(count_live, &n, &e) < 0)
		abort();
	__atomic_add_fetch(&returns, 1, __ATOMIC_SEQ_CST);
}

static unsigned count_slots(const bool *set)
{
	unsigned n = 0;

	for (int i = 0; i < SLOTS; i++)
		n += set[i];
	return n;
}

/* Nothing in flight: as many prepared as wanted, and the store holds them and the machines. */
static bool settled(void)
{
	unsigned ready, taken, machines = 0;

	lock_books();
	ready = count_slots(books.ready);
	taken = count_slots(books.taken);
	for (int i = 0; i < SLOTS; i++)
		machines += books.machine[i][0] != '\0';
	unlock_books();
	return ready == WANT && taken == ready + machines;
}

static void check_books(void)
{
	wait_for(settled, "the slots settle");
	lock_books();
	if (books.broken)
		fail_msg("%s", books.broken);
	unlock_books();
}

/* Ids of machines; their agents' sockets are made here. */
static void make_id(unsigned n, char out[ID_SIZE])
{
	str_copy(out, ID_SIZE, "sbaaaaaaaaaaaaaaaaaaaa");
	out[20] = (char)('a' + n / 26 % 26);
	out[21] = (char)('a' + n % 26);
}

static char dir[] = "/tmp/skerry-host-XXXXXX";

static int listen_as(const char *id)
{
	char path[100];

	snprintf(path, sizeof(path), "%s/%s.sock", dir, id);
	return unix_listen(path, SOCK_STREAM, 0600, 4);
}

static int start(const char *id, struct backend_machine *m, struct err *e)
{
	const struct backend_spec spec = {
		.id = id,
		.hostname = "box",
		.machine_id = "0123456789abcdef0123456789abcdef",
		.limits = { .cpu_milli = 1000, .pids = 100, .memory_bytes = 1 << 30 },
		.layers_count = 1,
		.layers = { "lyaaaaaaaaaaaaaaaaaaaa" },
	};

	return backend->start(&spec, m, e);
}

static void test_starts(void **state)
{
	_cleanup_close_ int listener = -1, fd = -1;
	struct backend_machine m;
	struct err e = ERR_INIT;
	char id[ID_SIZE];

	(void)state;
	check_books();
	make_id(0, id);
	/* PID 1 ended before anybody could connect */
	assert_int_equal(start(id, &m, &e), -ENOENT);
	assert_string_equal(e.reason, "agent_unreachable");
	check_books();
	listener = listen_as(id);
	assert_int_equal(start(id, &m, &e), 0);
	assert_true(m.warm);
	assert_true(m.enforced);
	assert_string_equal(m.address4, "10.213.0.7");
	fd = backend->dial(id, &e);
	assert_true(fd >= 0);
	assert_int_equal(backend->dial("../x", &e), -EINVAL);
	assert_int_equal(backend->stop(id, 100, &e), 0);
	check_books();
}

static void test_failed_start(void **state)
{
	struct backend_machine m;
	struct err e = ERR_INIT;
	char id[ID_SIZE];

	(void)state;
	make_id(1, id);
	books.fail_start = true;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(start(id, &m, &e), -EIO);
		assert_string_equal(e.reason, "overlay_readonly");
		assert_string_equal(e.text, "mount the disk: no");
	}
	books.fail_start = false;
	check_books();
}

static void test_other_verbs(void **state)
{
	const char id[] = "sbaaaaaaaaaaaaaaaaaaaa", layer[] = "lyaaaaaaaaaaaaaaaaaaaa";
	struct backend_info info;
	struct backend_pool pool;
	struct backend_stats stats;
	struct err e = ERR_INIT;
	uint64_t bytes;
	int p[2];

	(void)state;
	assert_int_equal(backend->info(&info, &e), 0);
	assert_int_equal(info.host_cpus, 2);
	assert_true(info.limits_enforced);
	assert_string_equal(info.notes, "a note");
	assert_int_equal(backend->pool(&pool, &e), 0);
	assert_int_equal(pool.host_free, 40);
	assert_int_equal(backend->create(id, layer, 1 << 30, &e), 0);
	assert_string_equal(books.disk_layer, layer);
	assert_int_equal(backend->create(id, "", 1 << 30, &e), 0);
	assert_string_equal(books.disk_layer, "");
	assert_int_equal(backend->stats(id, &stats, &e), 0);
	assert_int_equal(stats.disk_bytes, 4);
	assert_int_equal(backend->destroy(id, &e), 0); /* unknown to the keeper */
	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], "some tar", 8), 8);
	close(p[1]);
	assert_int_equal(backend->layer_create(layer, p[0], 1000, &bytes, &e), 0);
	close(p[0]);
	assert_int_equal(bytes, 8);
	assert_int_equal(backend->layer_delete(layer, &e), 0);
	assert_int_equal(backend->kill("nonsense", &e), -EINVAL);
	assert_int_equal(backend->create("sb../../../etc/passwd", layer, 0, &e), -EINVAL);
	assert_int_equal(backend->create(id, "ly../../../etc/passwd", 0, &e), -EINVAL);
}

static void count_object(void *arg, enum backend_object_kind kind, const char *name)
{
	unsigned *n = arg;

	if (*n ? kind != BACKEND_PARTIAL || strcmp(name, "odd") : kind != BACKEND_LAYER)
		abort();
	++*n;
}

static void test_lists(void **state)
{
	unsigned n = 0;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(backend->objects(count_object, &n, &e), 0);
	assert_int_equal(n, 2);
	n = 0;
	assert_int_equal(backend->live(count_live, &n, &e), 0);
	assert_int_equal(n, 0);
	lock_books();
	books.list_short = true;
	unlock_books();
	assert_int_equal(backend->live(count_live, &n, &e), -EPROTO);
	assert_string_equal(e.reason, "keeper_mismatch");
	lock_books();
	books.list_short = false;
	unlock_books();
}

/* --- many threads start and end machines while the keeper's connection breaks --- */

enum { THREADS = 6, LIVES = 40 };

static unsigned lives;

/* Numbers come back when one thread gets to it: on a busy machine later than six take them. */
static int start_when_free(const char *id, struct backend_machine *m, struct err *e)
{
	int r = start(id, m, e);

	for (int i = 0; i < 1000 && r == -EAGAIN; i++) {
		usleep(10000);
		r = start(id, m, e);
	}
	return r;
}

static void *live_often(void *arg)
{
	const unsigned *n = arg;
	_cleanup_close_ int listener = -1;
	char id[ID_SIZE];

	make_id(100 + *n, id);
	listener = listen_as(id);
	for (int i = 0; i < LIVES; i++) {
		struct backend_machine m;
		struct err e = ERR_INIT;
		int r = start_when_free(id, &m, &e);

		if (!r)
			__atomic_add_fetch(&lives, 1, __ATOMIC_SEQ_CST);
		else if (r != -ECONNRESET)
			return fprintf(stderr, "start: %s\n", e.text), (void *)1;
		while ((r = backend->stop(id, 100, &e)) == -ECONNRESET)
			;
		if (r)
			return fprintf(stderr, "stop: %s\n", e.text), (void *)1;
	}
	return NULL;
}

static bool no_machine_in_books(void)
{
	bool none = true;

	lock_books();
	for (int i = 0; i < SLOTS; i++)
		none = none && !books.machine[i][0];
	unlock_books();
	return none;
}

static void churn(unsigned cuts)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];
	unsigned failures = 0;
	void *bad;

	lives = 0;
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, live_often, &numbers[i]);
	}
	for (unsigned i = 0; i < cuts; i++) {
		usleep(30000);
		fake_keeper_cut();
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &bad);
		failures += bad != NULL;
	}
	assert_int_equal(failures, 0);
	assert_true(no_machine_in_books());
	check_books();
}

static void test_churn(void **state)
{
	(void)state;
	churn(0);
	assert_int_equal(lives, THREADS * LIVES);
}

static void test_churn_with_losses(void **state)
{
	unsigned before = __atomic_load_n(&returns, __ATOMIC_SEQ_CST);

	(void)state;
	churn(8);
	assert_true(lives > 0);
	assert_true(__atomic_load_n(&returns, __ATOMIC_SEQ_CST) > before);
}

static unsigned retains_seen;

static bool retained_again(void)
{
	bool r;

	lock_books();
	r = books.retains > retains_seen;
	unlock_books();
	return r;
}

/* A keeper that starts anew has nothing prepared, and a machine of which nobody told us the end. */
static void test_keeper_restarts(void **state)
{
	_cleanup_close_ int one = -1, two = -1;
	struct backend_machine m;
	struct err e = ERR_INIT;
	char id1[ID_SIZE], id2[ID_SIZE];
	int slot;

	(void)state;
	make_id(50, id1);
	make_id(51, id2);
	one = listen_as(id1);
	two = listen_as(id2);
	assert_int_equal(start(id1, &m, &e), 0);
	assert_int_equal(start(id2, &m, &e), 0);
	check_books();
	fake_keeper_stop();
	lock_books();
	retains_seen = books.retains;
	memset(books.ready, 0, sizeof(books.ready));
	slot = find_machine(id1);
	books.machine[slot][0] = '\0'; /* died meanwhile */
	unlock_books();
	fake_keeper_start(serve);
	wait_for(retained_again, "the store is told what is in use");
	check_books();
	assert_int_equal(backend->kill(id2, &e), 0);
	check_books();
}

/* A number the store thinks free, and the keeper has in use: the start takes another. */
static void test_books_disagree(void **state)
{
	_cleanup_close_ int listener = -1;
	struct backend_machine m;
	struct err e = ERR_INIT;
	char id[ID_SIZE], foreign[ID_SIZE];
	int slot = -1;

	(void)state;
	check_books();
	make_id(60, id);
	make_id(61, foreign);
	listener = listen_as(id);
	lock_books();
	for (int i = 0; i < SLOTS && slot < 0; i++)
		if (books.ready[i])
			slot = i;
	books.ready[slot] = false;
	str_copy(books.machine[slot], ID_SIZE, foreign);
	unlock_books();
	assert_int_equal(start(id, &m, &e), 0);
	assert_int_equal(backend->kill(id, &e), 0);
	check_books();
	assert_int_equal(backend->kill(foreign, &e), 0);
	check_books();
}

static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	log_open("test", LOG_ERROR);
	if (!mkdtemp(dir) || chdir(dir))
		return -1;
	str_copy(fake_keeper_hello.agent_dir, sizeof(fake_keeper_hello.agent_dir), dir);
	fake_keeper_start(serve);
	/* numbers an earlier process of ours held, one of them prepared */
	books.taken[0] = books.taken[1] = true;
	books.ready[1] = true;
	backend = backend_host(fake_keeper_path, WANT, &store, &e);
	if (!backend) {
		fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	backend->on_exit(on_exit_told);
	backend->on_reconnect(on_reconnect_told);
	return 0;
}

static int teardown(void **state)
{
	_cleanup_dir_ DIR *d = opendir(dir);
	struct dirent *entry;

	(void)state;
	while (d && (entry = readdir(d)))
		unlinkat(dirfd(d), entry->d_name, 0);
	if (chdir("/") || rmdir(dir))
		return -1;
	return __atomic_load_n(&ends, __ATOMIC_SEQ_CST) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_starts),         cmocka_unit_test(test_failed_start),
		cmocka_unit_test(test_other_verbs),    cmocka_unit_test(test_lists),
		cmocka_unit_test(test_churn),          cmocka_unit_test(test_keeper_restarts),
		cmocka_unit_test(test_books_disagree), cmocka_unit_test(test_churn_with_losses),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
