#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

static void read_row(sqlite3_stmt *s, struct project_row *row)
{
	col_copy(s, 0, row->id, sizeof(row->id));
	col_copy(s, 1, row->workspace, sizeof(row->workspace));
	col_copy(s, 2, row->name, sizeof(row->name));
	col_copy(s, 3, row->display_name, sizeof(row->display_name));
	col_copy(s, 4, row->status, sizeof(row->status));
}

static int one(struct tx *t, sqlite3_stmt *s, const char *name, struct project_row *ret,
	       struct err *e)
{
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	if (!r)
		return err_reason(e, ENOENT, "project_not_found", "there is no project '%s'", name);
	read_row(s, ret);
	sqlite3_reset(s);
	return 0;
}

int project_by_name(struct tx *t, const char *workspace, const char *name, struct project_row *ret,
		    struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT id, workspace, name, display_name, status FROM projects"
				   " WHERE workspace = ? AND name = ?",
				   "ss", workspace, name);

	return one(t, s, name, ret, e);
}

int project_by_id(struct tx *t, const char *id, struct project_row *ret, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT id, workspace, name, display_name, status FROM projects"
				   " WHERE id = ?",
				   "s", id);

	return one(t, s, id, ret, e);
}

int project_add(struct tx *t, const char *workspace, const char *name, const struct actor *a,
		struct err *e)
{
	char id[ID_SIZE];
	int r = id_make("pr", id);

	if (r < 0)
		return err_set(e, -r, "make an id: %m");
	r = tx_run(t, e, "INSERT INTO projects VALUES(?, ?, ?, ?, 'ACTIVE', ?, ?, ?)", "ssssiss",
		   id, workspace, name, name, clock_wall_ms(), a->name, a->request);
	if (r < 0)
		return r;
	return audit_add(t, a, "project.create", id, e);
}
