#include "store/store.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "store/tables.h"

enum { STATEMENTS_MAX = 128, BUSY_MS = 10000, LOG_PAGES = 1000, LOG_PAGES_MOST = 4000 };

struct cached {
	const char *sql;
	sqlite3_stmt *stmt;
};

struct store_conn {
	sqlite3 *db;
	pthread_mutex_t lock;
	struct cached cache[STATEMENTS_MAX];
	unsigned cached;
};

static struct store_conn conns[] = {
	[STORE_READ] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[STORE_RECORD] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[STORE_DURABLE] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};
static pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;
static sqlite3 *checkpointer; /* a connection of its own, so that it holds nobody up */
static atomic_int log_pages;  /* as of the last commit */

const struct actor actor_system = { .name = "system", .request = "" };

static int db_error(sqlite3 *db, struct err *e, const char *what)
{
	int code = sqlite3_extended_errcode(db);

	if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY)
		return err_reason(e, EEXIST, "exists", "%s: %s", what, sqlite3_errmsg(db));
	if ((code & 0xff) == SQLITE_FULL) {
		err_reason(e, ENOSPC, "disk_full", "%s: %s", what, sqlite3_errmsg(db));
		return err_hint(e, "free space on the file system of state_dir");
	}
	if ((code & 0xff) == SQLITE_BUSY)
		return err_reason(e, EAGAIN, "store_busy", "%s: %s", what, sqlite3_errmsg(db));
	if ((code & 0xff) == SQLITE_NOMEM)
		return err_set(e, ENOMEM, "%s: out of memory", what);
	return err_set(e, EIO, "%s: %s", what, sqlite3_errmsg(db));
}

bool tx_conflict(const struct err *e)
{
	return e->code == EEXIST;
}

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
	(void)arg;
	(void)db;
	(void)name;
	log_pages = pages;
	return SQLITE_OK;
}

static int conn_open(struct store_conn *c, const char *path, const char *pragmas, struct err *e)
{
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;

	if (sqlite3_open_v2(path, &c->db, flags, NULL) != SQLITE_OK)
		return db_error(c->db, e, path);
	sqlite3_busy_timeout(c->db, BUSY_MS);
	sqlite3_extended_result_codes(c->db, 1);
	if (sqlite3_exec(c->db, pragmas, NULL, NULL, NULL) != SQLITE_OK)
		return db_error(c->db, e, path);
	sqlite3_wal_hook(c->db, on_commit, NULL); /* takes the place of the automatic one */
	return 0;
}

static int checkpointer_open(const char *path, struct err *e)
{
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;

	if (sqlite3_open_v2(path, &checkpointer, flags, NULL) != SQLITE_OK)
		return db_error(checkpointer, e, path);
	/* a connection that has read nothing knows of no log, and moves nothing */
	if (sqlite3_exec(checkpointer, "SELECT 1 FROM sqlite_schema", NULL, NULL, NULL) !=
	    SQLITE_OK)
		return db_error(checkpointer, e, path);
	return 0;
}

static int checkpoint(struct err *e)
{
	int r = sqlite3_wal_checkpoint_v2(checkpointer, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL,
					  NULL);

	return r == SQLITE_OK || r == SQLITE_BUSY ? 0 : db_error(checkpointer, e, "checkpoint");
}

int store_checkpoint(struct err *e)
{
	int pages = log_pages, r;

	if (pages < LOG_PAGES)
		return 0;
	r = checkpoint(e);
	if (r < 0 || pages < LOG_PAGES_MOST)
		return r;
	/* The log is used from its start again only where all of it was moved, and under a stream
	 * of commits that is never so. What came meanwhile is little: this holds them up shortly. */
	pthread_mutex_lock(&writer);
	r = checkpoint(e);
	pthread_mutex_unlock(&writer);
	return r;
}

int store_open(const char *state_dir, const char *workspace, struct err *e)
{
	static const char *const pragmas[] = {
		[STORE_READ] = "PRAGMA query_only=ON",
		[STORE_RECORD] = ("PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON; "
				  "PRAGMA journal_size_limit=4194304"),
		[STORE_DURABLE] = ("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
				   "PRAGMA journal_size_limit=4194304; "
				   "PRAGMA foreign_keys=ON"),
	};
	char path[PATH_MAX];
	int r;

	if (snprintf(path, sizeof(path), "%s/skerry.db", state_dir) >= (int)sizeof(path))
		return err_set(e, ENAMETOOLONG, "state_dir is too long");
	r = conn_open(&conns[STORE_DURABLE], path, pragmas[STORE_DURABLE], e);
	if (!r)
		r = store_migrate(conns[STORE_DURABLE].db, path, store_migrations, e);
	if (!r)
		r = conn_open(&conns[STORE_RECORD], path, pragmas[STORE_RECORD], e);
	if (!r)
		r = conn_open(&conns[STORE_READ], path, pragmas[STORE_READ], e);
	if (!r)
		r = checkpointer_open(path, e);
	if (!r)
		r = workspace_ensure(workspace, e);
	if (r < 0)
		store_close();
	return r;
}

static void conn_close(struct store_conn *c)
{
	for (unsigned i = 0; i < c->cached; i++)
		sqlite3_finalize(c->cache[i].stmt);
	c->cached = 0;
	if (sqlite3_close(c->db) != SQLITE_OK)
		log_error("close the database: %s", sqlite3_errmsg(c->db));
	c->db = NULL;
}

void store_close(void)
{
	sqlite3_close(checkpointer);
	checkpointer = NULL;
	for (unsigned i = 0; i < ARRAY_SIZE(conns); i++)
		conn_close(&conns[i]);
}

int tx_begin(struct tx *t, enum store_mode mode, struct err *e)
{
	struct store_conn *c = &conns[mode];

	if (mode != STORE_READ)
		pthread_mutex_lock(&writer);
	pthread_mutex_lock(&c->lock);
	*t = (struct tx){ .conn = c, .mode = mode };
	if (mode == STORE_READ)
		return 0;
	if (tx_run(t, e, "BEGIN IMMEDIATE", "") < 0) {
		err_wrap(e, "begin");
		tx_end(t);
		return -e->code;
	}
	t->open = true;
	return 0;
}

int tx_commit(struct tx *t, struct err *e)
{
	int r = 0;

	if (t->open) {
		r = tx_run(t, e, "COMMIT", "");
		if (r < 0)
			return err_wrap(e, "commit");
		t->open = false;
	}
	tx_end(t);
	return 0;
}

void tx_end(struct tx *t)
{
	struct store_conn *c = t->conn;

	if (!c)
		return;
	for (unsigned i = 0; i < c->cached; i++) {
		if (sqlite3_stmt_busy(c->cache[i].stmt))
			sqlite3_reset(c->cache[i].stmt);
	}
	if (t->open && sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
		log_error("roll back: %s", sqlite3_errmsg(c->db));
	pthread_mutex_unlock(&c->lock);
	if (t->mode != STORE_READ)
		pthread_mutex_unlock(&writer);
	*t = (struct tx)TX_INIT;
}

static sqlite3_stmt *prepare(struct store_conn *c, const char *sql, struct err *e)
{
	sqlite3_stmt *s;

	for (unsigned i = 0; i < c->cached; i++) {
		if (c->cache[i].sql == sql) {
			sqlite3_reset(c->cache[i].stmt);
			return c->cache[i].stmt;
		}
	}
	if (c->cached == STATEMENTS_MAX) {
		err_set(e, ENOMEM, "too many statements");
		return NULL;
	}
	if (sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL) != SQLITE_OK) {
		db_error(c->db, e, sql);
		return NULL;
	}
	c->cache[c->cached++] = (struct cached){ .sql = sql, .stmt = s };
	return s;
}

static int bind_all(sqlite3_stmt *s, const char *types, va_list ap)
{
	int r = SQLITE_OK, at = 1;

	for (; *types && r == SQLITE_OK; types++, at++) {
		if (*types == 's') {
			r = sqlite3_bind_text(s, at, va_arg(ap, const char *), -1,
					      SQLITE_TRANSIENT);
		} else if (*types == 'd') {
			r = sqlite3_bind_int(s, at, va_arg(ap, int));
		} else if (*types == 'i') {
			r = sqlite3_bind_int64(s, at, va_arg(ap, int64_t));
		} else {
			const void *data = va_arg(ap, const void *);

			r = sqlite3_bind_blob64(s, at, data, va_arg(ap, size_t), SQLITE_TRANSIENT);
		}
	}
	return r;
}

int tx_run(struct tx *t, struct err *e, const char *sql, const char *types, ...)
{
	sqlite3_stmt *s = prepare(t->conn, sql, e);
	va_list ap;
	int r;

	if (!s)
		return -e->code;
	va_start(ap, types);
	r = bind_all(s, types, ap);
	va_end(ap);
	if (r != SQLITE_OK)
		return db_error(t->conn->db, e, "bind");
	do
		r = sqlite3_step(s);
	while (r == SQLITE_ROW);
	if (r != SQLITE_DONE) {
		db_error(t->conn->db, e, "database");
		sqlite3_reset(s);
		return -e->code;
	}
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return sqlite3_changes(t->conn->db);
}

sqlite3_stmt *tx_query(struct tx *t, struct err *e, const char *sql, const char *types, ...)
{
	sqlite3_stmt *s = prepare(t->conn, sql, e);
	va_list ap;
	int r;

	if (!s)
		return NULL;
	va_start(ap, types);
	r = bind_all(s, types, ap);
	va_end(ap);
	if (r != SQLITE_OK) {
		db_error(t->conn->db, e, "bind");
		return NULL;
	}
	return s;
}

int tx_step(struct tx *t, sqlite3_stmt *s, struct err *e)
{
	int r = sqlite3_step(s);

	if (r == SQLITE_ROW)
		return 1;
	if (r == SQLITE_DONE) {
		sqlite3_reset(s);
		return 0;
	}
	return db_error(t->conn->db, e, "database");
}

const char *col_text(sqlite3_stmt *s, int column)
{
	const unsigned char *text = sqlite3_column_text(s, column);

	return text ? (const char *)text : "";
}

bool col_copy(sqlite3_stmt *s, int column, char *out, size_t size)
{
	return str_copy(out, size, col_text(s, column));
}
