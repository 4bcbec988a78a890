/*
 * The audit table: who did what to which object, in which request. It never holds a value that a
 * client sent (no names of variables, no commands, no tokens), only ids and names of actions. Each
 * row's hash covers its fields, each with its length, and the hash of the row before it; a row that
 * was changed, removed or put in later breaks the chain.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "store/tables.h"

enum { HASH = crypto_hash_sha256_BYTES };

struct audit_row {
	int64_t seq, time;
	const char *texts[4]; /* actor, request, action, object */
};

static void hash_row(const unsigned char previous[HASH], const struct audit_row *row,
		     unsigned char out[HASH])
{
	crypto_hash_sha256_state h;
	uint64_t numbers[2] = { (uint64_t)row->seq, (uint64_t)row->time };

	crypto_hash_sha256_init(&h);
	crypto_hash_sha256_update(&h, previous, HASH);
	crypto_hash_sha256_update(&h, (const unsigned char *)numbers, sizeof(numbers));
	for (unsigned i = 0; i < ARRAY_SIZE(row->texts); i++) {
		uint64_t len = strlen(row->texts[i]);

		crypto_hash_sha256_update(&h, (const unsigned char *)&len, sizeof(len));
		crypto_hash_sha256_update(&h, (const unsigned char *)row->texts[i], len);
	}
	crypto_hash_sha256_final(&h, out);
}

static int last_row(struct tx *t, int64_t *ret_seq, unsigned char ret_hash[HASH], struct err *e)
{
	sqlite3_stmt *s =
		tx_query(t, e, "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1", "");
	int r = s ? tx_step(t, s, e) : -e->code;

	if (r < 0)
		return r;
	*ret_seq = 0;
	memset(ret_hash, 0, HASH);
	if (r) {
		*ret_seq = sqlite3_column_int64(s, 0);
		if (sqlite3_column_bytes(s, 1) == HASH)
			memcpy(ret_hash, sqlite3_column_blob(s, 1), HASH);
		sqlite3_reset(s);
	}
	return 0;
}

int audit_add(struct tx *t, const struct actor *a, const char *action, const char *object,
	      struct err *e)
{
	struct audit_row row = {
		.time = clock_wall_ms(),
		.texts = { a->name, a->request, action, object },
	};
	unsigned char previous[HASH], hash[HASH];
	int r = last_row(t, &row.seq, previous, e);

	if (r < 0)
		return r;
	row.seq++;
	hash_row(previous, &row, hash);
	r = tx_run(t, e, "INSERT INTO audit VALUES(?, ?, ?, ?, ?, ?, ?, ?)", "iissssbb", row.seq,
		   row.time, a->name, a->request, action, object, previous, sizeof(previous), hash,
		   sizeof(hash));
	return r < 0 ? r : 0;
}

int64_t audit_verify(struct tx *t, struct err *e)
{
	sqlite3_stmt *s = tx_query(t, e,
				   "SELECT seq, time, actor, request, action, object, previous,"
				   " hash FROM audit ORDER BY seq",
				   "");
	unsigned char before[HASH] = { 0 }, want[HASH];
	int64_t count = 0;
	int r;

	if (!s)
		return -e->code;
	while ((r = tx_step(t, s, e)) > 0) {
		struct audit_row row = {
			.seq = sqlite3_column_int64(s, 0),
			.time = sqlite3_column_int64(s, 1),
			.texts = { col_text(s, 2), col_text(s, 3), col_text(s, 4), col_text(s, 5) },
		};

		hash_row(before, &row, want);
		if (row.seq != count + 1 || sqlite3_column_bytes(s, 6) != HASH ||
		    sqlite3_column_bytes(s, 7) != HASH ||
		    memcmp(sqlite3_column_blob(s, 6), before, HASH) != 0 ||
		    memcmp(sqlite3_column_blob(s, 7), want, HASH) != 0)
			return err_set(e, EBADMSG, "the audit chain is broken at row %lld",
				       (long long)row.seq);
		memcpy(before, want, HASH);
		count++;
	}
	return r < 0 ? r : count;
}
