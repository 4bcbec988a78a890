#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

#define COLUMNS                                                                                    \
	"seq, id, sandbox, command, runtime, status, reason, exit_code, signal, started,"          \
	" finished, duration_ms, cwd, user, pid, oom,"                                             \
	" terminal, keep_awake"

void command_row_release(struct command_row *row)
{
	free(row->command);
	row->command = NULL;
}

static int read_row(sqlite3_stmt *s, struct command_row *row, struct err *e)
{
	*row = (struct command_row){ 0 };
	row->seq = sqlite3_column_int64(s, 0);
	col_copy(s, 1, row->id, sizeof(row->id));
	col_copy(s, 2, row->sandbox, sizeof(row->sandbox));
	row->command = strdup(col_text(s, 3));
	if (!row->command)
		return err_set(e, ENOMEM, "out of memory");
	col_copy(s, 4, row->runtime, sizeof(row->runtime));
	col_copy(s, 5, row->status, sizeof(row->status));
	col_copy(s, 6, row->reason, sizeof(row->reason));
	row->exit_known = sqlite3_column_type(s, 7) != SQLITE_NULL;
	row->exit_code = sqlite3_column_int(s, 7);
	row->signal = sqlite3_column_int(s, 8);
	row->started = sqlite3_column_int64(s, 9);
	row->finished = sqlite3_column_int64(s, 10);
	row->duration_ms = sqlite3_column_int64(s, 11);
	col_copy(s, 12, row->cwd, sizeof(row->cwd));
	col_copy(s, 13, row->user, sizeof(row->user));
	row->pid = (uint32_t)sqlite3_column_int64(s, 14);
	row->oom = sqlite3_column_int(s, 15);
	row->terminal = sqlite3_column_int(s, 16);
	row->keep_awake = sqlite3_column_int(s, 17);
	return 0;
}

int command_insert(struct tx *t, const struct command_row *row, const struct actor *a,
		   struct err *e)
{
	return tx_run(t, e,
		      "INSERT INTO commands(id, sandbox, command, runtime, status, started,"
		      " terminal, keep_awake, actor, request) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		      "sssssiddss", row->id, row->sandbox, row->command, row->runtime, row->status,
		      row->started, (int)row->terminal, (int)row->keep_awake, a->name, a->request);
}

int command_set_started(struct tx *t, const char *id, uint32_t pid, const char *cwd,
			const char *user, struct err *e)
{
	return tx_run(t, e,
		      "UPDATE commands SET pid = NULLIF(?, 0), cwd = ?, user = ? WHERE id = ?",
		      "isss", (int64_t)pid, cwd, user, id);
}

int command_set_end(struct tx *t, const struct command_row *row, struct err *e)
{
	return tx_run(t, e,
		      "UPDATE commands SET status = ?1, reason = ?2, exit_code = iif(?3, ?4, NULL),"
		      " signal = NULLIF(?5, 0), finished = ?6, duration_ms = ?7, oom = ?8"
		      " WHERE id = ?9",
		      "ssdddiids", row->status, row->reason, (int)row->exit_known, row->exit_code,
		      row->signal, row->finished, row->duration_ms, (int)row->oom, row->id);
}

int command_remove(struct tx *t, const char *id, struct err *e)
{
	return tx_run(t, e, "DELETE FROM commands WHERE id = ?", "s", id);
}

int command_by_id(struct tx *t, const char *sandbox, const char *id, struct command_row *ret,
		  struct err *e)
{
	sqlite3_stmt *s =
		tx_query(t, e, "SELECT " COLUMNS " FROM commands WHERE id = ? AND sandbox = ?",
			 "ss", id, sandbox);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	if (!r)
		return err_reason(e, ENOENT, "command_not_found", "there is no command '%s'", id);
	r = read_row(s, ret, e);
	sqlite3_reset(s);
	return r;
}

static int walk(struct tx *t, sqlite3_stmt *s, int (*each)(void *arg, struct command_row *row),
		void *arg, struct err *e)
{
	int r;

	if (!s)
		return -e->code;
	while ((r = tx_step(t, s, e)) > 0) {
		struct command_row row;
		int end;

		r = read_row(s, &row, e);
		if (r < 0)
			break;
		end = each(arg, &row);
		command_row_release(&row);
		if (end)
			break;
	}
	return r < 0 ? r : 0;
}

int commands_each(struct tx *t, const char *sandbox, int64_t before,
		  int (*each)(void *arg, struct command_row *row), void *arg, struct err *e)
{
	return walk(t,
		    tx_query(t, e,
			     "SELECT " COLUMNS " FROM commands WHERE sandbox = ?1"
			     " AND (?2 = 0 OR seq < ?2) ORDER BY seq DESC",
			     "si", sandbox, before),
		    each, arg, e);
}

int commands_running_each(struct tx *t, const char *sandbox,
			  int (*each)(void *arg, struct command_row *row), void *arg, struct err *e)
{
	return walk(t,
		    tx_query(t, e,
			     "SELECT " COLUMNS " FROM commands WHERE sandbox = ?"
			     " AND status = 'INPROGRESS'",
			     "s", sandbox),
		    each, arg, e);
}

int commands_overfull(struct tx *t, char ret_sandbox[ID_SIZE], int64_t *ret_more, const char *after,
		      struct err *e)
{
	/* from the index alone */
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT sandbox, COUNT(*) - ?1 AS more FROM commands"
				   " WHERE sandbox > ?2 GROUP BY sandbox HAVING more > 0"
				   " ORDER BY sandbox LIMIT 1",
				   "ds", COMMANDS_KEPT, after);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r <= 0)
		return r;
	col_copy(s, 0, ret_sandbox, ID_SIZE);
	*ret_more = sqlite3_column_int64(s, 1);
	sqlite3_reset(s);
	return 1;
}

int commands_oldest_ended(struct tx *t, const char *sandbox, int64_t most, char (*ret)[ID_SIZE],
			  struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT id FROM commands WHERE sandbox = ?"
				   " AND status <> 'INPROGRESS' ORDER BY seq LIMIT ?",
				   "si", sandbox, most);
	int r = s ? 0 : -e->code, n = 0;

	while (s && n < most && (r = tx_step(t, s, e)) > 0)
		col_copy(s, 0, ret[n++], ID_SIZE);
	if (s)
		sqlite3_reset(s);
	return r < 0 ? r : n;
}
