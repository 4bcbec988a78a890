/*
 * Slot numbers. A number stands for an id range and addresses, so two machines must never hold the
 * same; the database decides. The keeper tells at start which are in use.
 */
#include <errno.h>

#include "base/banned.h"

#include "backend/backend.h"
#include "store/tables.h"

static int slots_take(uint32_t slots_max, uint32_t *ret_slot, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	sqlite3_stmt *s;
	int64_t number;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (r < 0)
		return r;
	s = tx_query(&t, e,
		     "SELECT 0 AS n WHERE NOT EXISTS (SELECT 1 FROM slots WHERE number = 0)"
		     " UNION ALL SELECT number + 1 FROM slots a WHERE NOT EXISTS"
		     " (SELECT 1 FROM slots b WHERE b.number = a.number + 1) ORDER BY n LIMIT 1",
		     "");
	r = s ? tx_step(&t, s, e) : -e->code;
	if (r < 0)
		return r;
	number = sqlite3_column_int64(s, 0);
	sqlite3_reset(s);
	if (number >= slots_max)
		return err_reason(e, EAGAIN, "host_full", "all %u slots of this host are in use",
				  slots_max);
	r = tx_run(&t, e, "INSERT INTO slots VALUES(?)", "i", number);
	if (r < 0)
		return r;
	r = tx_commit(&t, e);
	if (r < 0)
		return r;
	*ret_slot = (uint32_t)number;
	return 0;
}

static int slots_release(uint32_t slot, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (r < 0)
		return r;
	r = tx_run(&t, e, "DELETE FROM slots WHERE number = ?", "i", (int64_t)slot);
	return r < 0 ? r : tx_commit(&t, e);
}

static int slots_retain(const uint32_t *used, unsigned count, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (r < 0)
		return r;
	r = tx_run(&t, e, "DELETE FROM slots", "");
	for (unsigned i = 0; i < count && r >= 0; i++)
		r = tx_run(&t, e, "INSERT OR IGNORE INTO slots VALUES(?)", "i", (int64_t)used[i]);
	return r < 0 ? r : tx_commit(&t, e);
}

const struct slot_store store_slots = {
	.take = slots_take,
	.release = slots_release,
	.retain = slots_retain,
};
