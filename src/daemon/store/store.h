#pragma once
/*
 * The database: SQLite in WAL mode, the only truth about what exists.
 *
 * Three connections, one lock each: one for reads, which never wait for a writer; one for what may
 * be lost with the power (command records, transitional states: synchronous=NORMAL, no fsync); one
 * for what may not (synchronous=FULL). The two that write take a common lock, because SQLite has
 * one writer and its own way of waiting is to sleep. Statements are prepared once a connection and
 * found by the address of their text, so `sql` is always a literal.
 *
 * Every record carries who did it and in which request (`struct actor`). The tables have a file
 * each: the functions in store/<table>.c take an open transaction, so that a change and its audit
 * row are one.
 */
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

enum store_mode { STORE_READ, STORE_RECORD, STORE_DURABLE };

struct store_conn;
struct tx {
	struct store_conn *conn;
	enum store_mode mode;
	bool open; /* a transaction is begun and neither committed nor rolled back */
};

/* Who does something, and in which request. Strings are the caller's. */
struct actor {
	const char *name;    /* "token:<name>", "system" */
	const char *request; /* request id, "" for the daemon's own work */
};
extern const struct actor actor_system;

/* Opens <state_dir>/skerry.db, makes and migrates it; `workspace` and its project `default` exist
 * afterwards. */
int store_open(const char *state_dir, const char *workspace, struct err *e);
void store_close(void);
/* Moves the log into the database once it is long. Commits do not: that would be an fsync in the
 * middle of somebody's command. Called now and then by one thread. */
int store_checkpoint(struct err *e);

/* Locks the connection of this mode; writing ones begin a transaction. One at a time in a thread. */
int tx_begin(struct tx *t, enum store_mode mode, struct err *e);
int tx_commit(struct tx *t, struct err *e);
void tx_end(struct tx *t); /* rolls back what was not committed; unlocks. Takes an unused one. */
#define _cleanup_tx_ _cleanup_(tx_end)
#define TX_INIT                                                                                    \
	{                                                                                          \
		0                                                                                  \
	}

/*
 * `types` has a letter for each argument: s text (NULL allowed), d int, i int64_t, b blob (two
 * arguments, pointer and size_t).
 */
int tx_run(struct tx *t, struct err *e, const char *sql, const char *types, ...); /* changes */
/* Ready to step; it belongs to the transaction. NULL on failure. */
sqlite3_stmt *tx_query(struct tx *t, struct err *e, const char *sql, const char *types, ...);
int tx_step(struct tx *t, sqlite3_stmt *s, struct err *e); /* 1 a row, 0 the end */

const char *col_text(sqlite3_stmt *s, int column); /* "" for NULL; valid until the next step */
bool col_copy(sqlite3_stmt *s, int column, char *out, size_t size);

/* True for a UNIQUE or primary key conflict of the last failed statement. */
bool tx_conflict(const struct err *e);

/* Numbered forward migrations; a copy of the database is made before each. */
struct migration {
	int number;
	const char *sql;
};
extern const struct migration store_migrations[];
int store_migrate(sqlite3 *db, const char *path, const struct migration *list, struct err *e);
