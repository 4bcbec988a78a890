#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

int member_add(struct tx *t, const char *workspace, const char *name, const char *role,
	       const struct actor *a, struct err *e)
{
	char id[ID_SIZE];
	int r = id_make("me", id);

	if (r < 0)
		return err_set(e, -r, "make an id: %m");
	r = tx_run(t, e, "INSERT INTO members VALUES(?, ?, ?, ?, ?, ?, ?)", "ssssiss", id,
		   workspace, name, role, clock_wall_ms(), a->name, a->request);
	if (r < 0)
		return r;
	return audit_add(t, a, "member.create", id, e);
}
