#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

int event_add(struct tx *t, const char *sandbox, const char *kind, const char *detail,
	      const struct actor *a, struct err *e)
{
	int r = tx_run(t, e,
		       "INSERT INTO events(time, sandbox, kind, detail, actor, request)"
		       " VALUES(?, ?, ?, ?, ?, ?)",
		       "isssss", clock_wall_ms(), sandbox, kind, detail, a->name, a->request);

	return r < 0 ? r : 0;
}

int events_expire(struct tx *t, int64_t before, struct err *e)
{
	return tx_run(t, e, "DELETE FROM events WHERE time < ?", "i", before);
}
