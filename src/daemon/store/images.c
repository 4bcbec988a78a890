#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

static void read_row(sqlite3_stmt *s, struct image_row *row)
{
	*row = (struct image_row){ 0 };
	col_copy(s, 0, row->name, sizeof(row->name));
	col_copy(s, 1, row->layer, sizeof(row->layer));
	col_copy(s, 2, row->user, sizeof(row->user));
	col_copy(s, 3, row->work_dir, sizeof(row->work_dir));
	row->bytes = (uint64_t)sqlite3_column_int64(s, 4);
	row->created = sqlite3_column_int64(s, 5);
}

int image_by_name(struct tx *t, const char *name, struct image_row *ret, struct err *e)
{
	sqlite3_stmt *s =
		tx_query(t, e,
			 "SELECT i.name, i.layer, i.user, i.work_dir, l.bytes, i.created"
			 " FROM images i JOIN layers l ON l.id = i.layer WHERE i.name = ?",
			 "s", name);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	if (!r)
		return err_reason(e, ENOENT, "image_not_found", "this host has no image '%s'",
				  name);
	read_row(s, ret);
	sqlite3_reset(s);
	return 0;
}

int image_put(struct tx *t, const struct image_row *row, char ret_old[ID_SIZE],
	      const struct actor *a, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e, "SELECT layer FROM images WHERE name = ?", "s", row->name);
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	ret_old[0] = '\0';
	if (r) {
		col_copy(s, 0, ret_old, ID_SIZE);
		sqlite3_reset(s);
	}
	return tx_run(t, e, "INSERT OR REPLACE INTO images VALUES(?, ?, ?, ?, ?, ?, ?)", "ssssiss",
		      row->name, row->layer, row->user, row->work_dir, clock_wall_ms(), a->name,
		      a->request);
}

int image_delete(struct tx *t, const char *name, struct err *e)
{
	return tx_run(t, e, "DELETE FROM images WHERE name = ?", "s", name);
}

int images_each(struct tx *t, int (*each)(void *arg, const struct image_row *row), void *arg,
		struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT i.name, i.layer, i.user, i.work_dir, l.bytes, i.created"
				   " FROM images i JOIN layers l ON l.id = i.layer ORDER BY i.name",
				   "");
	struct image_row row;
	int r;

	if (!s)
		return -e->code;
	while ((r = tx_step(t, s, e)) > 0) {
		read_row(s, &row);
		if (each(arg, &row))
			break;
	}
	return r < 0 ? r : 0;
}
