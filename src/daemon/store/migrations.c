#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/log.h"

#include "store/store.h"

static const char schema_1[] =
	"CREATE TABLE workspaces(name TEXT PRIMARY KEY, display_name TEXT NOT NULL,"
	" created INTEGER NOT NULL, actor TEXT NOT NULL, request TEXT NOT NULL) STRICT;"

	"CREATE TABLE projects(id TEXT PRIMARY KEY, workspace TEXT NOT NULL REFERENCES workspaces,"
	" name TEXT NOT NULL COLLATE NOCASE, display_name TEXT NOT NULL, status TEXT NOT NULL,"
	" created INTEGER NOT NULL, actor TEXT NOT NULL, request TEXT NOT NULL,"
	" UNIQUE(workspace, name)) STRICT;"

	"CREATE TABLE members(id TEXT PRIMARY KEY, workspace TEXT NOT NULL REFERENCES workspaces,"
	" name TEXT NOT NULL COLLATE NOCASE, role TEXT NOT NULL, created INTEGER NOT NULL,"
	" actor TEXT NOT NULL, request TEXT NOT NULL, UNIQUE(workspace, name)) STRICT;"

	"CREATE TABLE tokens(id TEXT PRIMARY KEY, workspace TEXT NOT NULL REFERENCES workspaces,"
	" project TEXT REFERENCES projects, member TEXT REFERENCES members, name TEXT NOT NULL,"
	" hash TEXT NOT NULL UNIQUE, scopes INTEGER NOT NULL, expires INTEGER,"
	" created INTEGER NOT NULL, actor TEXT NOT NULL, request TEXT NOT NULL) STRICT;"

	"CREATE TABLE layers(id TEXT PRIMARY KEY, state TEXT NOT NULL, refs INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL, created INTEGER NOT NULL, actor TEXT NOT NULL,"
	" request TEXT NOT NULL) STRICT;"

	"CREATE TABLE images(name TEXT PRIMARY KEY, layer TEXT NOT NULL REFERENCES layers,"
	" user TEXT NOT NULL, work_dir TEXT NOT NULL, created INTEGER NOT NULL,"
	" actor TEXT NOT NULL, request TEXT NOT NULL) STRICT;"

	"CREATE TABLE slots(number INTEGER PRIMARY KEY) STRICT;"

	"CREATE TABLE sandboxes(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	" project TEXT NOT NULL REFERENCES projects, identifier TEXT NOT NULL COLLATE NOCASE,"
	" name TEXT NOT NULL, status TEXT NOT NULL, setup_status TEXT NOT NULL, os TEXT NOT NULL,"
	" layer TEXT NOT NULL REFERENCES layers, default_user TEXT NOT NULL,"
	" work_dir TEXT NOT NULL, resources TEXT NOT NULL, cpu_milli INTEGER NOT NULL,"
	" memory_mb INTEGER NOT NULL, disk_gb INTEGER NOT NULL, pids INTEGER NOT NULL,"
	" tags TEXT NOT NULL, scope TEXT, environment TEXT, machine_id TEXT NOT NULL,"
	" enforced INTEGER NOT NULL DEFAULT 0, warm INTEGER NOT NULL DEFAULT 0,"
	" address4 TEXT NOT NULL DEFAULT '', address6 TEXT NOT NULL DEFAULT '',"
	" exit_code TEXT, exit_text TEXT, deleting INTEGER NOT NULL DEFAULT 0,"
	" created INTEGER NOT NULL, changed INTEGER NOT NULL, actor TEXT NOT NULL,"
	" request TEXT NOT NULL, UNIQUE(project, identifier)) STRICT;"

	"CREATE TABLE commands(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	" sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,"
	" command TEXT NOT NULL, runtime TEXT NOT NULL, status TEXT NOT NULL, reason TEXT,"
	" exit_code INTEGER, signal INTEGER, started INTEGER NOT NULL, finished INTEGER,"
	" duration_ms INTEGER, cwd TEXT NOT NULL DEFAULT '', user TEXT NOT NULL DEFAULT '',"
	" pid INTEGER, actor TEXT NOT NULL, request TEXT NOT NULL) STRICT;"
	"CREATE INDEX commands_by_sandbox ON commands(sandbox, seq);"
	"CREATE INDEX commands_running ON commands(sandbox) WHERE status = 'INPROGRESS';"

	"CREATE TABLE audit(seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL,"
	" request TEXT NOT NULL, action TEXT NOT NULL, object TEXT NOT NULL,"
	" previous BLOB NOT NULL, hash BLOB NOT NULL) STRICT;"

	"CREATE TABLE idempotency(token TEXT NOT NULL, path TEXT NOT NULL, key TEXT NOT NULL,"
	" request_hash BLOB NOT NULL, status INTEGER NOT NULL, answer TEXT, object TEXT,"
	" created INTEGER NOT NULL, actor TEXT NOT NULL, request TEXT NOT NULL,"
	" PRIMARY KEY(token, path, key)) STRICT, WITHOUT ROWID;"

	"CREATE TABLE events(seq INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL,"
	" sandbox TEXT NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL, actor TEXT NOT NULL,"
	" request TEXT NOT NULL) STRICT;";

static const char schema_2[] =
	"ALTER TABLE commands ADD COLUMN oom INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE commands ADD COLUMN terminal INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE commands ADD COLUMN keep_awake INTEGER NOT NULL DEFAULT 0;";

const struct migration store_migrations[] = {
	{ 1, schema_1 },
	{ 2, schema_2 },
	{ 0 },
};

static int user_version(sqlite3 *db)
{
	sqlite3_stmt *s;
	int version = -1;

	if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL) != SQLITE_OK)
		return -1;
	if (sqlite3_step(s) == SQLITE_ROW)
		version = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	return version;
}

/* The copy has the number of the schema it holds: <path>.v<number>. */
static int copy_before(sqlite3 *db, const char *path, int version, struct err *e)
{
	char to[PATH_MAX];
	char *sql;
	int r;

	if (snprintf(to, sizeof(to), "%s.v%d", path, version) >= (int)sizeof(to))
		return err_set(e, ENAMETOOLONG, "the database's path is too long");
	if (unlink(to) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove '%s': %m", to);
	sql = sqlite3_mprintf("VACUUM INTO %Q", to);
	if (!sql)
		return err_set(e, ENOMEM, "out of memory");
	r = sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
	if (r != SQLITE_OK)
		return err_set(e, EIO, "copy the database to '%s': %s", to, sqlite3_errmsg(db));
	return 0;
}

static int apply(sqlite3 *db, const struct migration *m, struct err *e)
{
	char *sql = sqlite3_mprintf("BEGIN EXCLUSIVE; %s PRAGMA user_version=%d; COMMIT;", m->sql,
				    m->number);
	int r;

	if (!sql)
		return err_set(e, ENOMEM, "out of memory");
	r = sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
	if (r == SQLITE_OK)
		return 0;
	err_set(e, EIO, "migration %d: %s", m->number, sqlite3_errmsg(db));
	sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return -e->code;
}

int store_migrate(sqlite3 *db, const char *path, const struct migration *list, struct err *e)
{
	int version = user_version(db), newest = 0;
	bool fresh = version == 0; /* nothing to keep */

	if (version < 0)
		return err_set(e, EIO, "read the schema's number: %s", sqlite3_errmsg(db));
	for (const struct migration *m = list; m->number; m++)
		newest = m->number;
	if (version > newest)
		return err_set(
			e, ENOTSUP,
			"the database '%s' has schema %d, this program knows %d: it was made "
			"by a newer version",
			path, version, newest);
	for (const struct migration *m = list; m->number; m++) {
		int r;

		if (m->number <= version)
			continue;
		if (!fresh) {
			r = copy_before(db, path, version, e);
			if (r < 0)
				return r;
		}
		r = apply(db, m, e);
		if (r < 0)
			return r;
		version = m->number;
		log_notice("the database has schema %d now", version);
	}
	return 0;
}
