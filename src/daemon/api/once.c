#include "api/once.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

#include "base/banned.h"
#include "base/log.h"

#include "api/errors.h"
#include "api/routes.h"
#include "api/view.h"
#include "sandbox/exec.h"

enum { KEY_MAX = 255 };

struct running {
	const struct idempotency_ref *ref;
	struct running *next;
};

static struct running *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static bool is_running(const struct idempotency_ref *ref)
{
	for (const struct running *n = all; n; n = n->next) {
		if (str_eq(n->ref->token, ref->token) && str_eq(n->ref->path, ref->path) &&
		    str_eq(n->ref->key, ref->key))
			return true;
	}
	return false;
}

static void enter(struct running *me)
{
	pthread_mutex_lock(&lock);
	while (is_running(me->ref))
		pthread_cond_wait(&ended, &lock);
	me->next = all;
	all = me;
	pthread_mutex_unlock(&lock);
}

static void leave(struct running *me)
{
	pthread_mutex_lock(&lock);
	for (struct running **n = &all; *n; n = &(*n)->next) {
		if (*n == me) {
			*n = me->next;
			break;
		}
	}
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

static int begin(struct request *r, const unsigned char hash[32], struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int code = tx_begin(&t, STORE_RECORD, e);

	if (!code)
		code = idempotency_begin(&t, r->once.token, r->once.path, r->once.key, hash,
					 &r->actor, e);
	return code < 0 ? code : tx_commit(&t, e);
}

static void keep(struct request *r, bool good)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	_cleanup_free_ char *text = good ? json_dumps(r->answer, JSON_ANSWER) : NULL;
	struct err e = ERR_INIT;
	int code = tx_begin(&t, STORE_RECORD, &e);

	if (!code && text)
		code = idempotency_finish(&t, r->once.token, r->once.path, r->once.key,
					  r->status ? r->status : r->route->status, text, &e);
	else if (!code)
		code = idempotency_forget(&t, r->once.token, r->once.path, r->once.key, &e);
	if (code >= 0)
		code = tx_commit(&t, &e);
	if (code < 0)
		log_error("request %s: keep its answer: %s", r->id, e.text);
}

/* The daemon ended in the middle: what was made then is the answer. 1: answered. */
static int answer_with_object(struct request *r, const char *object, struct err *e)
{
	int code = -ENOENT;

	if (id_valid(object, "sb")) {
		_cleanup_sandbox_ struct sandbox_row row = { 0 };

		code = sandbox_get(object, &row, e);
		if (!code)
			code = view_sandbox(&row, false, &r->answer, e);
	} else if (id_valid(object, "cm")) {
		_cleanup_command_row_ struct command_row row = { 0 };
		_cleanup_sandbox_ struct sandbox_row sandbox = { 0 };

		code = request_sandbox(r, &sandbox, e);
		if (!code)
			code = exec_get(sandbox.id, object, &row, e);
		if (!code)
			r->answer = view_command(&sandbox, &row);
	}
	if (code == -ENOENT)
		return 0;
	return code < 0 ? code : 1;
}

/* 1: answered from what is kept, 0: to be run. */
static int look_up(struct request *r, const unsigned char hash[32], struct err *e)
{
	struct idempotency_row row = { 0 };
	_cleanup_tx_ struct tx t = TX_INIT;
	int code = tx_begin(&t, STORE_READ, e);

	if (!code)
		code = idempotency_get(&t, r->once.token, r->once.path, r->once.key, &row, e);
	tx_end(&t);
	if (code <= 0)
		return code;
	if (memcmp(row.hash, hash, sizeof(row.hash)) != 0) {
		err_reason(e, EDOM, "idempotency_key_reused",
			   "this Idempotency-Key was used with another body");
		code = err_field(e, "Idempotency-Key");
	} else if (row.status) {
		r->status = row.status;
		r->answer = json_loads(row.answer, JSON_ALLOW_NUL, NULL);
		code = r->answer ? 1 : err_set(e, ENOMEM, "out of memory");
	} else {
		code = answer_with_object(r, row.object, e);
	}
	free(row.answer);
	return code;
}

static int run_once(struct request *r, const unsigned char hash[32], struct err *e)
{
	int code = look_up(r, hash, e);

	if (code)
		return code < 0 ? code : 0;
	*e = (struct err)ERR_INIT;
	code = begin(r, hash, e);
	if (code < 0)
		return code;
	code = r->route->handler(r, e);
	keep(r, code >= 0 && r->answer);
	return code;
}

int once_run(struct request *r, struct err *e)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state h;
	struct running me = { .ref = &r->once };
	size_t len = strlen(r->idempotency_key);
	char *query;
	int code;

	if (!len || len > KEY_MAX || !utf8_valid(r->idempotency_key, len)) {
		err_reason(e, EINVAL, "invalid_field", "an Idempotency-Key has 1 to %d characters",
			   KEY_MAX);
		return err_field(e, "Idempotency-Key");
	}
	r->once = (struct idempotency_ref){ r->token.id, r->path, r->idempotency_key };
	query = json_dumps(r->query_json, JSON_COMPACT | JSON_SORT_KEYS);
	crypto_hash_sha256_init(&h);
	if (query)
		crypto_hash_sha256_update(&h, (unsigned char *)query, strlen(query) + 1);
	crypto_hash_sha256_update(&h, (unsigned char *)buf_str(&r->body), r->body.len);
	crypto_hash_sha256_final(&h, hash);
	free(query);
	enter(&me);
	code = run_once(r, hash, e);
	leave(&me);
	return code;
}
