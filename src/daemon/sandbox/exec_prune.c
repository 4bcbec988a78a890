/* How many records of commands are kept. */
#include "base/banned.h"
#include "base/log.h"

#include "sandbox/exec.h"
#include "sandbox/exec_priv.h"

enum { BATCH = 64 }; /* records that go in one transaction, which holds up all others */

/* The rows go first: a record without its output tells less, output without a record is garbage that
 * goes with the sandbox. The count. */
static int forget_rows(const char *sandbox, int64_t most, char (*ids)[ID_SIZE], struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int n = tx_begin(&t, STORE_RECORD, e), r = n;

	if (!n)
		r = n = commands_oldest_ended(&t, sandbox, most, ids, e);
	for (int i = 0; i < n && r >= 0; i++)
		r = command_remove(&t, ids[i], e);
	if (n > 0 && r >= 0)
		r = tx_commit(&t, e);
	return r < 0 ? r : n;
}

/* The oldest `more` of a sandbox, as far as so many have ended. */
static int prune(const char *sandbox, int64_t more, struct err *e)
{
	while (more > 0) {
		char ids[BATCH][ID_SIZE];
		struct err ignored = ERR_INIT;
		int n = forget_rows(sandbox, more < BATCH ? more : BATCH, ids, e);

		if (n <= 0)
			return n;
		for (int i = 0; i < n; i++) {
			if (output_remove(sandbox, ids[i], &ignored) < 0)
				log_warn("command %s: remove its output: %s", ids[i], ignored.text);
			command_forget(sandbox, ids[i], &ignored);
		}
		more -= n;
	}
	return 0;
}

static int next_overfull(char sandbox[ID_SIZE], int64_t *ret_more, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	char after[ID_SIZE];
	int r = tx_begin(&t, STORE_READ, e);

	str_copy(after, sizeof(after), sandbox);
	return r < 0 ? r : commands_overfull(&t, sandbox, ret_more, after, e);
}

int exec_prune(struct err *e)
{
	char sandbox[ID_SIZE] = "";
	int64_t more;
	int r;

	while ((r = next_overfull(sandbox, &more, e)) > 0) {
		r = prune(sandbox, more, e);
		if (r < 0)
			return r;
	}
	return r;
}
