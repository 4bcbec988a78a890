/* Lifecycle over a backend that fails where it is told to, and reconciliation after a restart. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/banned.h"
#include "base/clock.h"

#include "daemon_kit.h"
#include "sandbox/exec.h"
#include "sandbox/lifecycle.h"
#include "unit.h"

static int setup(void **state)
{
	(void)state;
	kit_open();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kit_close();
	return 0;
}

static void make(const char *body, char id[ID_SIZE])
{
	json_t *a = kit_want(201, "POST", "/sandboxes", body);

	assert_true(str_copy(id, ID_SIZE, json_string_value(json_object_get(a, "id"))));
	json_decref(a);
}

static void expect_status(const char *id, const char *status)
{
	char path[64];
	json_t *a;

	snprintf(path, sizeof(path), "/sandboxes/%s", id);
	a = kit_want(200, "GET", path, NULL);
	assert_string_equal(json_string_value(json_object_get(a, "status")), status);
	json_decref(a);
}

static size_t count(void)
{
	json_t *a = kit_want(200, "GET", "/sandboxes", NULL);
	size_t n = json_array_size(json_object_get(a, "sandboxes"));

	json_decref(a);
	return n;
}

static void call(unsigned status, const char *method, const char *id, const char *verb,
		 const char *code)
{
	char path[128];
	json_t *a;

	snprintf(path, sizeof(path), "/sandboxes/%s%s", id, verb);
	a = kit_want(status, method, path, NULL);
	if (code)
		assert_string_equal(kit_code(a), code);
	json_decref(a);
}

static void call_body(unsigned status, const char *method, const char *path, const char *body,
		      const char *code)
{
	json_t *a = kit_want(status, method, path, body);

	assert_string_equal(kit_code(a), code);
	json_decref(a);
}

static void test_life(void **state)
{
	char id[ID_SIZE];

	(void)state;
	make("{\"name\":\"one\"}", id);
	assert_true(kit_lives(id));
	expect_status(id, "RUNNING");
	call(200, "POST", id, "/start", NULL); /* runs already */
	assert_int_equal(kit.starts, 1);
	call(200, "POST", id, "/stop", NULL);
	expect_status(id, "STOPPED");
	assert_false(kit_lives(id));
	call(200, "POST", id, "/stop", NULL);
	call(200, "POST", id, "/restart", NULL);
	expect_status(id, "RUNNING");
	call(204, "DELETE", id, "", NULL);
	call(404, "DELETE", id, "", "sandbox_not_found");
	call(404, "GET", id, "", "sandbox_not_found");
	assert_false(kit_has_disk(id));
	assert_int_equal(count(), 0);
}

/* Whichever step fails: one error, and nothing is left. */
static void test_create_fails(void **state)
{
	static const struct {
		int create, start;
		unsigned status;
		const char *code;
	} rows[] = {
		{ ENOSPC, 0, 507, "pool_full" },       { EIO, 0, 503, "backend_failed" },
		{ EHOSTDOWN, 0, 503, "backend_down" }, { 0, EIO, 422, "start_failed" },
		{ 0, EDQUOT, 507, "pool_full" },       { 0, EAGAIN, 503, "host_full" },
		{ 0, ENOENT, 422, "start_failed" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		unsigned destroyed = kit.destroys;
		json_t *a;

		kit.fail_create = rows[i].create;
		kit.fail_start = rows[i].start;
		a = kit_want(rows[i].status, "POST", "/sandboxes?wait=running", "{\"name\":\"x\"}");
		assert_string_equal(kit_code(a), rows[i].code);
		json_decref(a);
		assert_int_equal(count(), 0);
		assert_int_equal(kit.destroys, destroyed + 1);
	}
	kit.fail_create = kit.fail_start = 0;
	/* the name and the layer's count are free again */
	json_decref(kit_want(201, "POST", "/sandboxes", "{\"name\":\"x\",\"identifier\":\"x\"}"));
}

/* Removing what a failed creation left fails too: it is gone after the next start. */
static void test_undo_later(void **state)
{
	(void)state;
	kit.fail_start = EIO;
	kit.fail_destroy = EHOSTDOWN;
	json_decref(kit_want(422, "POST", "/sandboxes?wait=running", "{\"name\":\"x\"}"));
	assert_int_equal(count(), 1);
	kit.fail_destroy = 0;
	kit_restart();
	assert_int_equal(count(), 0);
}

static void wait_status(const char *id, const char *status)
{
	/* far above what it takes */
	for (unsigned i = 0; i < 3000; i++) {
		struct timespec t = { 0, 10000000 };
		struct sandbox_row row = { 0 };
		struct err e = ERR_INIT;
		bool there =
			sandbox_get(id, &row, &e) == 0 && str_eq(status_name(row.status), status);

		sandbox_row_release(&row);
		if (there)
			return;
		nanosleep(&t, NULL);
	}
	fail_msg("%s does not become %s", id, status);
}

/* The answer does not wait for a slow start; a late failure is told by the state. */
static void test_slow(void **state)
{
	char id[ID_SIZE];
	json_t *a;

	(void)state;
	kit.start_ms = 1000;
	make("{\"name\":\"slow\"}", id);
	expect_status(id, "STARTING");
	call(409, "POST", id, "/stop", "sandbox_busy");
	wait_status(id, "RUNNING");
	kit.fail_start = EIO;
	make("{\"name\":\"late\"}", id);
	wait_status(id, "FAILED");
	kit.start_ms = 0;
	a = kit_want(200, "GET", "/sandboxes/late", NULL);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(a, "exit_reason"), "code")),
		"START_FAILED");
	json_decref(a);
	call(422, "POST", id, "/start", "start_failed");
	kit.fail_start = 0;
	call(200, "POST", id, "/start", NULL);
	expect_status(id, "RUNNING");
	kit.start_ms = 300;
	json_decref(kit_want(201, "POST", "/sandboxes?wait=running", "{\"name\":\"waited\"}"));
	expect_status("waited", "RUNNING");
}

/* The disk fails after the answer: the state tells, and a start tries again. */
static void test_late_disk(void **state)
{
	char id[ID_SIZE];

	(void)state;
	kit.create_ms = 500;
	kit.fail_create = EIO;
	make("{\"name\":\"late\"}", id);
	wait_status(id, "FAILED");
	call(503, "POST", id, "/start", "backend_failed");
	expect_status(id, "FAILED");
	kit.fail_create = 0;
	call(200, "POST", id, "/start", NULL);
	expect_status(id, "RUNNING");
	assert_true(kit_has_disk(id));
}

/* Cut off between the removal of the disk and that of the row. */
static void test_undo_cut(void **state)
{
	char id[ID_SIZE];
	struct err e;

	(void)state;
	kit.fail_start = EIO;
	kit.fail_destroy = EHOSTDOWN;
	json_decref(kit_want(422, "POST", "/sandboxes?wait=running", "{\"name\":\"x\"}"));
	{
		json_t *a = kit_want(200, "GET", "/sandboxes/x", NULL);

		str_copy(id, ID_SIZE, json_string_value(json_object_get(a, "id")));
		json_decref(a);
	}
	kit.fail_destroy = 0;
	kit_backend.destroy(id, &e);
	kit_restart();
	call(404, "GET", id, "", NULL);
}

static void test_machine_ends(void **state)
{
	char id[ID_SIZE];
	json_t *a;

	(void)state;
	make("{\"name\":\"one\"}", id);
	kit_exit(id, 3);
	expect_status(id, "STOPPED");
	a = kit_want(409, "POST", "/sandboxes/one/exec", "{\"command\":\"x\"}");
	assert_string_equal(kit_code(a), "sandbox_stopped");
	json_decref(a);
	a = kit_want(200, "GET", "/sandboxes/one", NULL);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(a, "exit_reason"), "code")),
		"EXITED");
	json_decref(a);
	call(200, "POST", id, "/start", NULL);
	/* the end of an earlier machine, told late, is not that of this one */
	kit_tell_exit(id, 0);
	expect_status(id, "RUNNING");
	kit_exit(id, 0);
	expect_status(id, "STOPPED");
}

/* The machine of a start whose answer was lost does not stand in the way for ever. */
static void test_lost_start(void **state)
{
	char id[ID_SIZE];

	(void)state;
	make("{\"name\":\"one\"}", id);
	call(200, "POST", id, "/stop", NULL);
	kit_add_machine(id);
	call(200, "POST", id, "/start", NULL);
	expect_status(id, "RUNNING");
	assert_int_equal(kit.starts, 3);
}

static void test_stop_fails(void **state)
{
	char id[ID_SIZE];

	(void)state;
	make("{\"name\":\"one\"}", id);
	kit.fail_stop = EHOSTDOWN;
	call(503, "POST", id, "/stop", "backend_down");
	expect_status(id, "RUNNING");
	kit.fail_stop = 0;
	kit.fail_destroy = EIO;
	call(503, "DELETE", id, "", "backend_failed");
	expect_status(id, "STOPPING"); /* it is being deleted, and known until that is done */
	call(409, "POST", id, "/start", NULL);
	kit.fail_destroy = 0;
	call(204, "DELETE", id, "", NULL);
}

static void force(const char *id, const char *status)
{
	struct sandbox_row row = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(sandbox_get(id, &row, &e), 0);
	assert_int_equal(sandbox_settle_as(&row, status_from_name(status), "", "", &e), 0);
	sandbox_row_release(&row);
}

/* Every state in which a daemon can be cut off, with and without a machine. */
static void test_reconcile(void **state)
{
	static const struct {
		const char *before;
		bool lives, disk;
		const char *after; /* NULL: gone */
	} rows[] = {
		{ "RUNNING", true, true, "RUNNING" },    { "RUNNING", false, true, "STOPPED" },
		{ "STARTING", true, true, "RUNNING" },   { "STARTING", false, true, "STOPPED" },
		{ "STOPPING", true, true, "STOPPED" },   { "STOPPING", false, true, "STOPPED" },
		{ "RESTORING", false, true, "STOPPED" }, { "RESTORING", false, false, NULL },
		{ "STOPPED", false, true, "STOPPED" },   { "FAILED", false, true, "FAILED" },
		{ "STOPPED", true, true, "RUNNING" },
	};
	char id[ARRAY_SIZE(rows)][ID_SIZE];
	struct err e;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		make("{\"name\":\"r\",\"memory_mb\":64}", id[i]);
		force(id[i], rows[i].before);
		if (!rows[i].lives)
			kit_remove_machine(id[i]);
		if (!rows[i].disk)
			kit_backend.destroy(id[i], &e);
	}
	kit_add_machine("sbzzzzzzzzzzzzzzzzzzzz"); /* nobody knows it */
	kit_add_disk("sbyyyyyyyyyyyyyyyyyyyy", BACKEND_PARTIAL);
	kit_add_disk("lyyyyyyyyyyyyyyyyyyyyy", BACKEND_LAYER);
	kit_restart();
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].after)
			expect_status(id[i], rows[i].after);
		else
			call(404, "GET", id[i], "", NULL);
	}
	assert_false(kit_lives("sbzzzzzzzzzzzzzzzzzzzz"));
	assert_false(kit_has_disk("sbyyyyyyyyyyyyyyyyyyyy"));
	assert_false(kit_has_disk("lyyyyyyyyyyyyyyyyyyyyy"));
}

static char busy_id[ID_SIZE];

static void start_it(void)
{
	call(200, "POST", busy_id, "/start", NULL);
}

static void stop_it(void)
{
	call(200, "POST", busy_id, "/stop", NULL);
}

/* What an operation did after the look at the backend stands. */
static void test_reconnect_late(void **state)
{
	(void)state;
	make("{\"name\":\"one\"}", busy_id);
	kit.looked = stop_it;
	kit_reconnect();
	expect_status(busy_id, "STOPPED");
	assert_false(kit_lives(busy_id));
	kit.looked = start_it;
	kit_reconnect();
	expect_status(busy_id, "RUNNING");
	assert_true(kit_lives(busy_id));
}

static void *reconnect(void *arg)
{
	(void)arg;
	kit_reconnect();
	return NULL;
}

/* No client hears of a conflict with the daemon itself. */
static void test_reconnect_waited_for(void **state)
{
	const struct timespec moment = { .tv_nsec = 1000 * 1000 };
	unsigned stops = kit.stops;
	pthread_t thread;

	(void)state;
	make("{\"name\":\"one\"}", busy_id);
	force(busy_id, "STOPPING");
	kit.stop_ms = 200;
	assert_int_equal(pthread_create(&thread, NULL, reconnect, NULL), 0);
	while (kit.stops == stops)
		nanosleep(&moment, NULL);
	start_it();
	pthread_join(thread, NULL);
	expect_status(busy_id, "RUNNING");
	assert_true(kit_lives(busy_id));
}

static int64_t limit_of(const char *id, const char *name)
{
	char path[64];
	json_t *a;
	int64_t value;

	snprintf(path, sizeof(path), "/sandboxes/%s", id);
	a = kit_want(200, "GET", path, NULL);
	value = json_integer_value(json_object_get(json_object_get(a, "limits"), name));
	json_decref(a);
	return value;
}

/* The record says what is in force: neither is changed without the other, whatever fails. */
static void test_other_limits(void **state)
{
	static const int64_t mib = 1 << 20;
	char id[ID_SIZE], other[4][ID_SIZE], path[64];

	(void)state;
	make("{\"name\":\"one\",\"memory_mb\":512,\"pids\":100}", id);
	snprintf(path, sizeof(path), "/sandboxes/%s", id);
	json_decref(kit_want(200, "PATCH", path, "{\"memory_mb\":1024,\"disk_gb\":7}"));
	assert_int_equal(limit_of(id, "memory_bytes"), 1024 * mib);
	assert_int_equal(kit.limits.memory_bytes, 1024 * mib);
	assert_int_equal(kit.limits.disk_bytes, 7ll << 30);
	assert_int_equal(kit.limits.pids, 100);
	kit.fail_limit = EBUSY;
	call_body(409, "PATCH", path, "{\"memory_mb\":64}", "memory_in_use");
	kit.fail_limit = EHOSTDOWN;
	call_body(503, "PATCH", path, "{\"memory_mb\":64}", "backend_down");
	kit.fail_limit = 0;
	assert_int_equal(limit_of(id, "memory_bytes"), 1024 * mib);
	/* more than the host promises: what was set is taken back */
	for (int i = 0; i < 3; i++)
		make("{\"name\":\"x\",\"memory_mb\":16384}", other[i]);
	make("{\"name\":\"x\",\"memory_mb\":8192}", other[3]);
	call_body(503, "PATCH", path, "{\"memory_mb\":16384}", "host_full");
	assert_int_equal(limit_of(id, "memory_bytes"), 1024 * mib);
	assert_int_equal(kit.limits.memory_bytes, 1024 * mib);
	/* cut off between the two, the record's come back at the next start */
	kit.limits.memory_bytes = 1;
	for (int i = 0; i < 4; i++)
		call(204, "DELETE", other[i], "", NULL);
	kit_restart();
	assert_int_equal(kit.limits.memory_bytes, 1024 * mib);
	/* one that is stopped promises nothing, and is asked again when it starts */
	call(200, "POST", id, "/stop", NULL);
	json_decref(kit_want(200, "PATCH", path, "{\"memory_mb\":16384,\"cpus\":1}"));
	assert_int_equal(kit.limits.cpu_milli, 1000);
}

static void test_limits(void **state)
{
	static const struct {
		const char *body, *code, *field;
		unsigned status;
	} rows[] = {
		{ "{\"name\":\"x\",\"cpus\":5}", "above_host", "cpus", 400 },
		{ "{\"name\":\"x\",\"memory_mb\":16385}", "above_host", "memory_mb", 400 },
		{ "{\"name\":\"x\",\"resources\":\"5x10\"}", "above_host", "resources", 400 },
		{ "{\"name\":\"x\",\"os\":\"none:1\"}", "image_not_found", "os", 400 },
	};
	json_t *a;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		a = kit_want(rows[i].status, "POST", "/sandboxes", rows[i].body);
		assert_string_equal(kit_code(a), rows[i].code);
		assert_string_equal(kit_field(a), rows[i].field);
		json_decref(a);
	}
	kit.pool_free = 1ull << 30;
	a = kit_want(507, "POST", "/sandboxes", "{\"name\":\"x\"}");
	assert_string_equal(kit_code(a), "pool_full");
	json_decref(a);
	kit.pool_free = 50ull << 30;
	for (unsigned i = 0; i < 4; i++) /* four times the host's 16 GiB */
		json_decref(kit_want(201, "POST", "/sandboxes",
				     "{\"name\":\"x\",\"memory_mb\":16384}"));
	a = kit_want(503, "POST", "/sandboxes", "{\"name\":\"x\",\"memory_mb\":64}");
	assert_string_equal(kit_code(a), "host_full");
	json_decref(a);
	/* a stopped one promises nothing, and may not come back while there is no room */
	call(200, "POST", "x", "/stop", NULL);
	json_decref(kit_want(201, "POST", "/sandboxes", "{\"name\":\"y\",\"memory_mb\":64}"));
	call(503, "POST", "x", "/start", "host_full");
	expect_status("x", "STOPPED");
}

static void *create_one(void *arg)
{
	json_t *a = kit_want(201, "POST", "/sandboxes?wait=running",
			     "{\"name\":\"same\",\"memory_mb\":64}");

	(void)arg;
	json_decref(a);
	return NULL;
}

static void test_at_once(void **state)
{
	pthread_t threads[50];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, create_one, NULL), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(count(), 50);
	expect_status("same-50", "RUNNING");
}

/* An agent that takes a command and never tells its end does not hold the client. */
static void play_silent(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	fake_hello(&out);
	fake_started(&out);
	fake_send(c, &out);
	while (fake_next(c))
		;
	buf_release(&out);
}

static void test_hostile_agent(void **state)
{
	uint64_t start = clock_mono_ns();
	json_t *a;

	(void)state;
	json_decref(kit_want(201, "POST", "/sandboxes", "{\"name\":\"h\"}"));
	fake_play(play_silent, NULL, true);
	a = kit_want(200, "POST", "/sandboxes/h/exec", "{\"command\":\"x\",\"timeout\":0.01}");
	assert_true(clock_mono_ns() - start < 2 * EXEC_BACKSTOP_MS * NS_PER_MS);
	assert_true(json_is_true(json_object_get(a, "timed_out")));
	assert_string_equal(json_string_value(json_object_get(a, "reason")), "LOST");
	assert_null(json_object_get(a, "exit_code"));
	json_decref(a);
}

/* The kernel killed for memory: the command itself, or only a child of it. */
static void play_memory(struct fake_conn *c)
{
	const struct agent_exit *end = c->arg;
	struct buf out = BUF_INIT(65536);

	fake_hello(&out);
	fake_started(&out);
	agent_put_exit(&out, end);
	fake_send(c, &out);
	while (fake_next(c))
		;
}

static void test_out_of_memory(void **state)
{
	static const struct {
		struct agent_exit end;
		const char *reason;
		bool killed;
	} cases[] = {
		{ { .reason = REASON_OOM, .code = 137, .signal = 9, .oom = 1 }, "OOM", true },
		{ { .reason = REASON_EXITED, .code = 137, .oom = 1 }, "EXITED", true },
		{ { .reason = REASON_EXITED, .code = 137 }, "EXITED", false },
	};

	(void)state;
	json_decref(kit_want(201, "POST", "/sandboxes", "{\"name\":\"m\"}"));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *a;

		fake_play(play_memory, (void *)&cases[i].end, true);
		a = kit_want(200, "POST", "/sandboxes/m/exec", "{\"command\":\"x\"}");
		assert_string_equal(json_string_value(json_object_get(a, "reason")),
				    cases[i].reason);
		assert_int_equal(json_is_true(json_object_get(a, "oom_killed")), cases[i].killed);
		assert_int_equal(json_integer_value(json_object_get(a, "exit_code")), 137);
		json_decref(a);
	}
}

static void *let_go(void *arg)
{
	const struct timespec moment = { .tv_nsec = 50 * 1000 * 1000 };

	nanosleep(&moment, NULL);
	sandbox_unlock(arg);
	return NULL;
}

/* The daemon's own look at a sandbox is waited for; another operation is a conflict. */
static void test_brief_locks(void **state)
{
	static char id[] = "sbaaaaaaaaaaaaaaaaaaaa";
	pthread_t thread;

	(void)state;
	assert_int_equal(sandbox_lock(id, LOCK_BRIEF), 0);
	assert_int_equal(pthread_create(&thread, NULL, let_go, id), 0);
	assert_int_equal(sandbox_lock(id, 0), 0);
	pthread_join(thread, NULL);
	assert_int_equal(sandbox_lock(id, 0), -EBUSY);
	sandbox_unlock(id);
	assert_int_equal(sandbox_lock(id, 0), 0);
	sandbox_unlock(id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_brief_locks),
		cmocka_unit_test_setup_teardown(test_life, setup, teardown),
		cmocka_unit_test_setup_teardown(test_create_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_undo_later, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_late_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_undo_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_machine_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost_start, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reconcile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reconnect_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reconnect_waited_for, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile_agent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_memory, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
