#include "access/token.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <strings.h>

#include "base/banned.h"
#include "base/clock.h"

#define TOKEN_PREFIX "skry_"

static void hash_text(const char *text, char out[TOKEN_HASH_SIZE])
{
	unsigned char hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
	hex_encode(hash, sizeof(hash), out);
}

static int refuse(struct err *e, const char *text)
{
	err_reason(e, ENOKEY, "unauthorized", "%s", text);
	return err_hint(e, "send 'Authorization: Bearer skry_…'");
}

int token_check(const char *authorization, struct token_row *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	char hash[TOKEN_HASH_SIZE];
	const char *text;
	int r;

	if (!authorization)
		return refuse(e, "a token is needed");
	if (strncasecmp(authorization, "Bearer ", 7) != 0)
		return refuse(e, "the authorization is not a bearer token");
	text = authorization + 7 + strspn(authorization + 7, " ");
	if (!str_starts(text, TOKEN_PREFIX) || strlen(text) != TOKEN_SIZE - 1)
		return refuse(e, "the token is not valid");
	hash_text(text, hash);
	r = tx_begin(&t, STORE_READ, e);
	if (!r)
		r = token_by_hash(&t, hash, ret, e);
	if (r == -ENOENT || (!r && ret->expires && ret->expires <= clock_wall_ms()))
		return refuse(e, "the token is not valid");
	return r;
}

int token_create(const char *workspace, const char *name, unsigned scopes, const struct actor *a,
		 char ret_text[TOKEN_SIZE], struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct token_row row = { .scopes = scopes };
	char hash[TOKEN_HASH_SIZE], half[2][ID_SIZE], text[TOKEN_SIZE];
	int r = id_make("tk", row.id);

	if (r < 0 || id_make("xx", half[0]) < 0 || id_make("xx", half[1]) < 0)
		return err_set(e, EIO, "make a token");
	snprintf(text, sizeof(text), TOKEN_PREFIX "%.*s%.*s", ID_RANDOM, half[0] + 2, ID_RANDOM,
		 half[1] + 2);
	if (!str_copy(row.workspace, sizeof(row.workspace), workspace) || !*name ||
	    !str_copy(row.name, sizeof(row.name), name))
		return err_set(e, EINVAL, "a token's name has 1 to %d bytes", NAME_SIZE - 1);
	hash_text(text, hash);
	r = tx_begin(&t, STORE_DURABLE, e);
	if (!r)
		r = token_add(&t, &row, hash, a, e);
	if (!r)
		r = tx_commit(&t, e);
	if (!r)
		memcpy(ret_text, text, sizeof(text));
	sodium_memzero(text, sizeof(text));
	return r;
}
