#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

int token_by_hash(struct tx *t, const char *hash, struct token_row *ret, struct err *e)
{
	sqlite3_stmt *s =
		tx_query(t, e,
			 "SELECT id, workspace, project, name, scopes, expires FROM tokens"
			 " WHERE hash = ?",
			 "s", hash);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	if (!r)
		return err_set(e, ENOENT, "no such token");
	*ret = (struct token_row){ 0 };
	col_copy(s, 0, ret->id, sizeof(ret->id));
	col_copy(s, 1, ret->workspace, sizeof(ret->workspace));
	col_copy(s, 2, ret->project, sizeof(ret->project));
	col_copy(s, 3, ret->name, sizeof(ret->name));
	ret->scopes = (unsigned)sqlite3_column_int(s, 4);
	ret->expires = sqlite3_column_int64(s, 5);
	sqlite3_reset(s);
	return 0;
}

int token_add(struct tx *t, const struct token_row *row, const char *hash, const struct actor *a,
	      struct err *e)
{
	int r = tx_run(t, e,
		       "INSERT INTO tokens VALUES(?, ?, ?, NULL, ?, ?, ?, NULLIF(?, 0), ?, ?, ?)",
		       "sssssdiiss", row->id, row->workspace, *row->project ? row->project : NULL,
		       row->name, hash, (int)row->scopes, row->expires, clock_wall_ms(), a->name,
		       a->request);

	if (r < 0)
		return r;
	return audit_add(t, a, "token.create", row->id, e);
}
