/* Migrations, the audit chain, slots, counts of layers. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"

#include "backend/backend.h"
#include "store/tables.h"
#include "unit.h"

static char dir[64], path[128];

static void clean(void)
{
	static const char *const names[] = { "skerry.db", "skerry.db-wal", "skerry.db-shm",
					     "skerry.db.v1", "skerry.db.v2" };
	char file[160];

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(file, sizeof(file), "%s/%s", dir, names[i]);
		unlink(file);
	}
	rmdir(dir);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/skerry-store-XXXXXX");
	if (sodium_init() < 0 || !mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/skerry.db", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	clean();
	return 0;
}

static void open_store(void)
{
	struct err e = ERR_INIT;

	if (store_open(dir, "default", &e) < 0)
		fail_msg("%s", e.text);
}

static void begin(struct tx *t, enum store_mode mode)
{
	struct err e = ERR_INIT;

	if (tx_begin(t, mode, &e) < 0)
		fail_msg("%s", e.text);
}

static void commit(struct tx *t)
{
	struct err e = ERR_INIT;

	if (tx_commit(t, &e) < 0)
		fail_msg("%s", e.text);
}

static sqlite3 *raw_open(const char *file)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	return db;
}

static int number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s;
	int n;

	if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
		return -1;
	n = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int(s, 0) : -1;
	sqlite3_finalize(s);
	return n;
}

static int newest_schema(void)
{
	int newest = 0;

	for (const struct migration *m = store_migrations; m->number; m++)
		newest = m->number;
	return newest;
}

static void test_migrations(void **state)
{
	const int now = newest_schema();
	const struct migration one[] = { { now + 1, "CREATE TABLE later(x INTEGER) STRICT;" },
					 { 0 } };
	const struct migration broken[] = { { now + 2, "CREATE TABLE half(x) STRICT; nonsense;" },
					    { 0 } };
	struct err e = ERR_INIT;
	char copy[160];
	sqlite3 *db, *old;

	(void)state;
	open_store();
	store_close();
	open_store(); /* again: nothing to do, and the workspace is there once */
	store_close();
	for (int i = 0; i <= now; i++) { /* a new one is not copied on its way */
		snprintf(copy, sizeof(copy), "%s.v%d", path, i);
		assert_int_equal(access(copy, F_OK), -1);
	}

	db = raw_open(path);
	assert_int_equal(number(db, "SELECT COUNT(*) FROM projects"), 1);
	assert_int_equal(store_migrate(db, path, one, &e), 0);
	assert_int_equal(number(db, "PRAGMA user_version"), now + 1);
	assert_int_equal(number(db, "SELECT COUNT(*) FROM later"), 0);
	old = raw_open(copy); /* the copy is the database before */
	assert_int_equal(number(old, "PRAGMA user_version"), now);
	assert_int_equal(number(old, "SELECT COUNT(*) FROM projects"), 1);
	assert_int_equal(number(old, "SELECT COUNT(*) FROM later"), -1);
	sqlite3_close(old);

	assert_true(store_migrate(db, path, broken, &e) < 0); /* whole or not at all */
	assert_int_equal(number(db, "PRAGMA user_version"), now + 1);
	assert_int_equal(number(db, "SELECT COUNT(*) FROM half"), -1);
	/* a database from the future is not touched */
	assert_int_equal(store_migrate(db, path, store_migrations, &e), -ENOTSUP);
	sqlite3_close(db);
}

static void add_rows(unsigned n)
{
	struct actor a = { .name = "token:x", .request = "rq1" };
	struct tx t;
	struct err e = ERR_INIT;

	for (unsigned i = 0; i < n; i++) {
		begin(&t, STORE_RECORD);
		assert_int_equal(audit_add(&t, &a, "sandbox.create", "sb1", &e), 0);
		commit(&t);
	}
}

static int64_t verify(struct err *e)
{
	struct tx t;
	int64_t n;

	begin(&t, STORE_READ);
	n = audit_verify(&t, e);
	tx_end(&t);
	return n;
}

/* Every kind of tampering is seen. */
static void test_audit(void **state)
{
	static const struct {
		const char *tamper, *undo;
	} rows[] = {
		{ "UPDATE audit SET actor = 'token:y' WHERE seq = 3",
		  "UPDATE audit SET actor = 'token:x' WHERE seq = 3" },
		{ "UPDATE audit SET time = time + 1 WHERE seq = 3",
		  "UPDATE audit SET time = time - 1 WHERE seq = 3" },
		{ "UPDATE audit SET action = 'sandbox.creat', object = 'esb1' WHERE seq = 4",
		  "UPDATE audit SET action = 'sandbox.create', object = 'sb1' WHERE seq = 4" },
		{ "UPDATE audit SET seq = 100 WHERE seq = (SELECT MAX(seq) FROM audit)",
		  "UPDATE audit SET seq = (SELECT COUNT(*) FROM audit) WHERE seq = 100" },
		{ "CREATE TABLE kept AS SELECT * FROM audit WHERE seq = 2;"
		  "DELETE FROM audit WHERE seq = 2",
		  "INSERT INTO audit SELECT * FROM kept" },
		{ "UPDATE audit SET hash = x'00' WHERE seq = 5", NULL },
	};
	struct err e = ERR_INIT;
	int64_t before;
	sqlite3 *db;

	(void)state;
	open_store();
	before = verify(&e);
	assert_true(before >= 1); /* the project of the workspace */
	add_rows(5);
	assert_int_equal(verify(&e), before + 5);
	db = raw_open(path);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(sqlite3_exec(db, rows[i].tamper, NULL, NULL, NULL), SQLITE_OK);
		assert_int_equal(verify(&e), -EBADMSG);
		if (!rows[i].undo)
			break;
		assert_int_equal(sqlite3_exec(db, rows[i].undo, NULL, NULL, NULL), SQLITE_OK);
		assert_int_equal(verify(&e), before + 5);
	}
	sqlite3_close(db);
	store_close();
}

/* An audit row and its change are one. */
static void test_rollback(void **state)
{
	struct err e = ERR_INIT;
	int64_t before;
	struct tx t;

	(void)state;
	open_store();
	before = verify(&e);
	begin(&t, STORE_DURABLE);
	assert_int_equal(project_add(&t, "default", "gone", &actor_system, &e), 0);
	tx_end(&t);
	assert_int_equal(verify(&e), before);
	begin(&t, STORE_DURABLE);
	assert_int_equal(project_add(&t, "default", "Default", &actor_system, &e), -EEXIST);
	assert_true(tx_conflict(&e));
	tx_end(&t);
	begin(&t, STORE_DURABLE); /* the connection is usable after a failure */
	assert_int_equal(project_add(&t, "default", "kept", &actor_system, &e), 0);
	commit(&t);
	assert_int_equal(verify(&e), before + 1);
	store_close();
}

/* Commits do not write back; the checkpoint does, and the log is used from its start again. */
static void test_checkpoint(void **state)
{
	struct stat st;
	struct err e = ERR_INIT;
	char log[160];
	off_t full;

	(void)state;
	open_store();
	snprintf(log, sizeof(log), "%s-wal", path);
	add_rows(1500);
	assert_int_equal(stat(log, &st), 0);
	full = st.st_size;
	assert_true(full > 1000 * 4096);
	assert_int_equal(store_checkpoint(&e), 0);
	add_rows(300);
	assert_int_equal(stat(log, &st), 0);
	assert_true(st.st_size < full); /* it does not stay as large as it once was */
	store_close();
}

static void test_slots(void **state)
{
	const uint32_t used[] = { 7, 2 };
	struct err e = ERR_INIT;
	uint32_t slot;

	(void)state;
	open_store();
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(store_slots.take(4, &slot, &e), 0);
		assert_int_equal(slot, i);
	}
	assert_int_equal(store_slots.take(4, &slot, &e), -EAGAIN);
	assert_int_equal(store_slots.release(1, &e), 0);
	assert_int_equal(store_slots.take(4, &slot, &e), 0);
	assert_int_equal(slot, 1);
	assert_int_equal(store_slots.retain(used, 2, &e), 0);
	store_close();
	open_store(); /* they are in the database */
	assert_int_equal(store_slots.take(8, &slot, &e), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(store_slots.take(8, &slot, &e), 0);
	assert_int_equal(slot, 1);
	assert_int_equal(store_slots.take(8, &slot, &e), 0);
	assert_int_equal(slot, 3);
	store_close();
}

static void test_layers(void **state)
{
	static const char id[] = "lyaaaaaaaaaaaaaaaaaaaa";
	struct err e = ERR_INIT;
	bool last = true;
	struct tx t;

	(void)state;
	open_store();
	begin(&t, STORE_DURABLE);
	assert_true(layer_add(&t, id, &actor_system, &e) >= 0);
	assert_int_equal(layer_ref(&t, id, &e), -ENOENT); /* not before it is ready */
	assert_true(layer_ready(&t, id, 10, &e) >= 0);
	assert_int_equal(layer_ref(&t, id, &e), 0);
	assert_int_equal(layer_ref(&t, id, &e), 0);
	assert_int_equal(layer_unref(&t, id, &last, &e), 0);
	assert_false(last);
	assert_int_equal(layer_drop(&t, id, &e), 0); /* it is in use */
	assert_int_equal(layer_unref(&t, id, &last, &e), 0);
	assert_true(last);
	assert_int_equal(layer_ref(&t, id, &e), -ENOENT); /* nobody builds on it any more */
	assert_int_equal(layer_drop(&t, id, &e), 1);
	commit(&t);
	store_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_migrations, setup, teardown),
		cmocka_unit_test_setup_teardown(test_audit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rollback, setup, teardown),
		cmocka_unit_test_setup_teardown(test_checkpoint, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slots, setup, teardown),
		cmocka_unit_test_setup_teardown(test_layers, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
