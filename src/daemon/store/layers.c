#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

int layer_add(struct tx *t, const char *id, const struct actor *a, struct err *e)
{
	return tx_run(t, e, "INSERT INTO layers VALUES(?, 'CREATING', 0, 0, ?, ?, ?)", "siss", id,
		      clock_wall_ms(), a->name, a->request);
}

int layer_ready(struct tx *t, const char *id, uint64_t bytes, struct err *e)
{
	return tx_run(t, e, "UPDATE layers SET state = 'READY', bytes = ? WHERE id = ?", "is",
		      (int64_t)bytes, id);
}

int layer_ref(struct tx *t, const char *id, struct err *e)
{
	int r = tx_run(t, e, "UPDATE layers SET refs = refs + 1 WHERE id = ? AND state = 'READY'",
		       "s", id);

	if (r < 0)
		return r;
	return r ? 0 : err_set(e, ENOENT, "there is no layer '%s'", id);
}

int layer_unref(struct tx *t, const char *id, bool *ret_last, struct err *e)
{
	int r = tx_run(t, e, "UPDATE layers SET refs = refs - 1 WHERE id = ? AND refs > 0", "s",
		       id);

	if (r < 0)
		return r;
	r = tx_run(t, e,
		   "UPDATE layers SET state = 'DELETING' WHERE id = ? AND refs = 0"
		   " AND state = 'READY'",
		   "s", id);
	if (r < 0)
		return r;
	*ret_last = r > 0;
	return 0;
}

int layer_drop(struct tx *t, const char *id, struct err *e)
{
	return tx_run(t, e, "DELETE FROM layers WHERE id = ? AND refs = 0", "s", id);
}

int layer_state(struct tx *t, const char *id, char ret[16], struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e, "SELECT state FROM layers WHERE id = ?", "s", id);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	if (!r)
		return err_set(e, ENOENT, "there is no layer '%s'", id);
	col_copy(s, 0, ret, 16);
	sqlite3_reset(s);
	return 0;
}

int layers_unfinished(struct tx *t, json_t **ret_ids, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e, "SELECT id FROM layers WHERE state <> 'READY'", "");
	json_t *ids;
	int r;

	if (!s)
		return -e->code;
	ids = json_array();
	while ((r = tx_step(t, s, e)) > 0) {
		if (json_array_append_new(ids, json_string(col_text(s, 0))) < 0) {
			r = err_set(e, ENOMEM, "out of memory");
			break;
		}
	}
	if (r < 0) {
		json_decref(ids);
		return r;
	}
	*ret_ids = ids;
	return 0;
}
