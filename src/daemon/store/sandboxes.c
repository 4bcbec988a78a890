#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "sandbox/lifecycle.h"
#include "store/tables.h"

#define COLUMNS                                                                                    \
	"seq, id, project, identifier, name, status, setup_status, os, layer, default_user,"       \
	" work_dir, resources, cpu_milli, memory_mb, disk_gb, pids, tags, scope, environment,"     \
	" machine_id, enforced, warm, deleting, address4, address6, exit_code, exit_text,"         \
	" created, changed"

void sandbox_row_release(struct sandbox_row *row)
{
	free(row->tags);
	free(row->scope);
	free(row->environment);
	row->tags = row->scope = row->environment = NULL;
}

static int own_text(sqlite3_stmt *s, int column, char **ret, struct err *e)
{
	const unsigned char *text = sqlite3_column_text(s, column);

	*ret = NULL;
	if (!text)
		return 0;
	*ret = strdup((const char *)text);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

static int read_row(sqlite3_stmt *s, struct sandbox_row *row, struct err *e)
{
	int c = 0, r;

	*row = (struct sandbox_row){ 0 };
	row->seq = sqlite3_column_int64(s, c++);
	col_copy(s, c++, row->id, sizeof(row->id));
	col_copy(s, c++, row->project, sizeof(row->project));
	col_copy(s, c++, row->identifier, sizeof(row->identifier));
	col_copy(s, c++, row->name, sizeof(row->name));
	row->status = status_from_name(col_text(s, c++));
	col_copy(s, c++, row->setup_status, sizeof(row->setup_status));
	col_copy(s, c++, row->os, sizeof(row->os));
	col_copy(s, c++, row->layer, sizeof(row->layer));
	col_copy(s, c++, row->default_user, sizeof(row->default_user));
	col_copy(s, c++, row->work_dir, sizeof(row->work_dir));
	col_copy(s, c++, row->resources, sizeof(row->resources));
	row->cpu_milli = (uint32_t)sqlite3_column_int64(s, c++);
	row->memory_mb = (uint32_t)sqlite3_column_int64(s, c++);
	row->disk_gb = (uint32_t)sqlite3_column_int64(s, c++);
	row->pids = (uint32_t)sqlite3_column_int64(s, c++);
	r = own_text(s, c++, &row->tags, e);
	if (!r)
		r = own_text(s, c++, &row->scope, e);
	if (!r)
		r = own_text(s, c++, &row->environment, e);
	if (r < 0) {
		sandbox_row_release(row);
		return r;
	}
	col_copy(s, c++, row->machine_id, sizeof(row->machine_id));
	row->enforced = sqlite3_column_int(s, c++);
	row->warm = sqlite3_column_int(s, c++);
	row->deleting = sqlite3_column_int(s, c++);
	col_copy(s, c++, row->address4, sizeof(row->address4));
	col_copy(s, c++, row->address6, sizeof(row->address6));
	col_copy(s, c++, row->exit_code, sizeof(row->exit_code));
	col_copy(s, c++, row->exit_text, sizeof(row->exit_text));
	row->created = sqlite3_column_int64(s, c++);
	row->changed = sqlite3_column_int64(s, c++);
	return 0;
}

int sandbox_insert(struct tx *t, struct sandbox_row *row, const struct actor *a, struct err *e)
{
	row->created = row->changed = clock_wall_ms();
	return tx_run(t, e,
		      "INSERT INTO sandboxes(id, project, identifier, name, status, setup_status,"
		      " os, layer, default_user, work_dir, resources, cpu_milli, memory_mb,"
		      " disk_gb, pids, tags, scope, environment, machine_id, created, changed,"
		      " actor, request)"
		      " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
		      "sssssssssssiiiissssiiss", row->id, row->project, row->identifier, row->name,
		      status_name(row->status), row->setup_status, row->os, row->layer,
		      row->default_user, row->work_dir, row->resources, (int64_t)row->cpu_milli,
		      (int64_t)row->memory_mb, (int64_t)row->disk_gb, (int64_t)row->pids, row->tags,
		      row->scope, row->environment, row->machine_id, row->created, row->changed,
		      a->name, a->request);
}

static int one(struct tx *t, sqlite3_stmt *s, const char *what, struct sandbox_row *ret,
	       struct err *e)
{
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	if (!r)
		return err_reason(e, ENOENT, "sandbox_not_found", "there is no sandbox '%s'", what);
	r = read_row(s, ret, e);
	sqlite3_reset(s);
	return r;
}

int sandbox_by_id(struct tx *t, const char *id, struct sandbox_row *ret, struct err *e)
{
	return one(t, tx_query(t, e, "SELECT " COLUMNS " FROM sandboxes WHERE id = ?", "s", id), id,
		   ret, e);
}

int sandbox_by_identifier(struct tx *t, const char *project, const char *identifier,
			  struct sandbox_row *ret, struct err *e)
{
	return one(t,
		   tx_query(t, e,
			    "SELECT " COLUMNS " FROM sandboxes WHERE project = ?"
			    " AND identifier = ?",
			    "ss", project, identifier),
		   identifier, ret, e);
}

int sandbox_update_state(struct tx *t, const struct sandbox_row *row, struct err *e)
{
	int r = tx_run(t, e,
		       "UPDATE sandboxes SET status = ?, setup_status = ?, enforced = ?, warm = ?,"
		       " address4 = ?, address6 = ?, exit_code = NULLIF(?, ''),"
		       " exit_text = NULLIF(?, ''), changed = ? WHERE id = ?",
		       "ssddssssis", status_name(row->status), row->setup_status, row->enforced,
		       row->warm, row->address4, row->address6, row->exit_code, row->exit_text,
		       clock_wall_ms(), row->id);

	if (r < 0)
		return r;
	return r ? 0
		 : err_reason(e, ENOENT, "sandbox_not_found", "there is no sandbox '%s'", row->id);
}

int sandbox_update_settings(struct tx *t, const struct sandbox_row *row, struct err *e)
{
	int r = tx_run(
		t, e,
		"UPDATE sandboxes SET name = ?, tags = ?, resources = ?, cpu_milli = ?,"
		" memory_mb = ?, disk_gb = ?, pids = ?, enforced = ?, changed = ? WHERE id = ?",
		"sssiiiidis", row->name, row->tags, row->resources, (int64_t)row->cpu_milli,
		(int64_t)row->memory_mb, (int64_t)row->disk_gb, (int64_t)row->pids, row->enforced,
		clock_wall_ms(), row->id);

	if (r < 0)
		return r;
	return r ? 0
		 : err_reason(e, ENOENT, "sandbox_not_found", "there is no sandbox '%s'", row->id);
}

int sandbox_set_deleting(struct tx *t, const char *id, struct err *e)
{
	return tx_run(t, e, "UPDATE sandboxes SET deleting = 1 WHERE id = ?", "s", id);
}

int sandbox_remove(struct tx *t, const char *id, struct err *e)
{
	return tx_run(t, e, "DELETE FROM sandboxes WHERE id = ?", "s", id);
}

int sandboxes_each(struct tx *t, const struct sandbox_filter *f,
		   int (*each)(void *arg, struct sandbox_row *row), void *arg, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT " COLUMNS " FROM sandboxes WHERE seq > ?"
				   " AND (?2 IS NULL OR project = ?2)"
				   " AND (?3 IS NULL OR status = ?3) AND (?4 IS NULL OR EXISTS"
				   " (SELECT 1 FROM json_each(tags) WHERE value = ?4))"
				   " ORDER BY seq",
				   "isss", f->after, f->project,
				   f->status < 0 ? NULL : status_name(f->status), f->tag);
	int r;

	if (!s)
		return -e->code;
	while ((r = tx_step(t, s, e)) > 0) {
		struct sandbox_row row;
		int end;

		r = read_row(s, &row, e);
		if (r < 0)
			break;
		end = each(arg, &row);
		sandbox_row_release(&row);
		if (end)
			break;
	}
	return r < 0 ? r : 0;
}

int sandboxes_memory_mb(struct tx *t, const char *except, uint64_t *ret, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT COALESCE(SUM(memory_mb), 0) FROM sandboxes WHERE status"
				   " IN ('STARTING', 'RUNNING', 'RESTORING', 'STOPPING', 'PAUSED')"
				   " AND id <> COALESCE(?, '')",
				   "s", except);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	*ret = (uint64_t)sqlite3_column_int64(s, 0);
	sqlite3_reset(s);
	return 0;
}
