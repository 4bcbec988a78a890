/* Commands over restarts of the daemon and ends of their machine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/log.h"

#include "sandbox/exec.h"
#include "sandbox/exec_priv.h"
#include "sandbox/live.h"

struct ids {
	char (*id)[ID_SIZE];
	size_t count, room;
	bool failed;
};

static int collect(void *arg, struct command_row *row)
{
	struct ids *l = arg;

	if (live_has(row->id))
		return 0; /* whoever pumps it writes its end */
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		void *more = realloc(l->id, room * ID_SIZE);

		if (!more) {
			l->failed = true;
			return 1;
		}
		l->id = more;
		l->room = room;
	}
	memcpy(l->id[l->count++], row->id, ID_SIZE);
	return 0;
}

static int unattended(const char *sandbox, struct ids *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_READ, e);

	*ret = (struct ids){ 0 };
	if (!r)
		r = commands_running_each(&t, sandbox, collect, ret, e);
	if (!r && ret->failed)
		r = err_set(e, ENOMEM, "out of memory");
	if (r < 0)
		free(ret->id);
	return r;
}

static void lose(const char *sandbox, const char *id)
{
	struct command_result lost = { .exit_known = false };

	exec_background_done(NULL, sandbox, id, &lost);
}

int exec_lose_all(const char *sandbox, struct err *e)
{
	struct ids ids;
	int r = unattended(sandbox, &ids, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ids.count; i++)
		lose(sandbox, ids.id[i]);
	free(ids.id);
	return 0;
}

int exec_adopt(const char *sandbox, struct err *e)
{
	struct ids ids;
	int r = unattended(sandbox, &ids, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ids.count; i++) {
		struct command *live = NULL;
		struct err why = ERR_INIT;

		if (live_add(ids.id[i]) < 0)
			continue;
		if (command_attach(sandbox, ids.id[i], &live, &why) == 0) {
			command_background(live, exec_background_done, NULL);
			continue;
		}
		if (why.code != ESRCH)
			log_warn("command %s: take it up again: %s", ids.id[i], why.text);
		lose(sandbox, ids.id[i]);
	}
	free(ids.id);
	return 0;
}
