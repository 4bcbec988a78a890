#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

int workspace_exists(struct tx *t, const char *name, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e, "SELECT 1 FROM workspaces WHERE name = ?", "s", name);
	int r;

	if (!s)
		return -e->code;
	r = tx_step(t, s, e);
	if (r < 0)
		return r;
	if (r)
		return 0;
	return err_reason(e, ENOENT, "workspace_not_found", "there is no workspace '%s'", name);
}

int workspace_ensure(const char *name, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_DURABLE, e);

	if (r < 0)
		return r;
	r = tx_run(&t, e, "INSERT OR IGNORE INTO workspaces VALUES(?, ?, ?, ?, ?)", "ssiss", name,
		   name, clock_wall_ms(), actor_system.name, actor_system.request);
	if (r < 0)
		return r;
	if (r > 0) {
		r = project_add(&t, name, "default", &actor_system, e);
		if (r < 0)
			return r;
	}
	return tx_commit(&t, e);
}
