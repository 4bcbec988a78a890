#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

int idempotency_get(struct tx *t, const char *token, const char *path, const char *key,
		    struct idempotency_row *ret, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT status, object, answer, request_hash FROM idempotency"
				   " WHERE token = ? AND path = ? AND key = ?",
				   "sss", token, path, key);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r <= 0)
		return r;
	*ret = (struct idempotency_row){ .status = (unsigned)sqlite3_column_int(s, 0) };
	col_copy(s, 1, ret->object, sizeof(ret->object));
	ret->answer = strdup(col_text(s, 2));
	if (sqlite3_column_bytes(s, 3) == sizeof(ret->hash))
		memcpy(ret->hash, sqlite3_column_blob(s, 3), sizeof(ret->hash));
	sqlite3_reset(s);
	return ret->answer ? 1 : err_set(e, ENOMEM, "out of memory");
}

int idempotency_begin(struct tx *t, const char *token, const char *path, const char *key,
		      const unsigned char hash[32], const struct actor *a, struct err *e)
{
	return tx_run(t, e,
		      "INSERT OR REPLACE INTO idempotency"
		      " VALUES(?, ?, ?, ?, 0, NULL, NULL, ?, ?, ?)",
		      "sssbiss", token, path, key, hash, (size_t)32, clock_wall_ms(), a->name,
		      a->request);
}

int idempotency_bind(struct tx *t, const char *token, const char *path, const char *key,
		     const char *object, struct err *e)
{
	return tx_run(t, e,
		      "UPDATE idempotency SET object = ? WHERE token = ? AND path = ? AND key = ?",
		      "ssss", object, token, path, key);
}

int idempotency_finish(struct tx *t, const char *token, const char *path, const char *key,
		       unsigned status, const char *answer, struct err *e)
{
	return tx_run(t, e,
		      "UPDATE idempotency SET status = ?, answer = ?"
		      " WHERE token = ? AND path = ? AND key = ?",
		      "dssss", (int)status, answer, token, path, key);
}

int idempotency_forget(struct tx *t, const char *token, const char *path, const char *key,
		       struct err *e)
{
	return tx_run(t, e, "DELETE FROM idempotency WHERE token = ? AND path = ? AND key = ?",
		      "sss", token, path, key);
}

int idempotency_expire(struct tx *t, int64_t before, struct err *e)
{
	return tx_run(t, e, "DELETE FROM idempotency WHERE created < ? AND status <> 0", "i",
		      before);
}
