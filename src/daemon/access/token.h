#pragma once
/*
 * Tokens: `skry_` and 40 characters of a-z2-7 (200 random bits). Only a SHA-256 of one is stored;
 * the text itself is told once, when it is made.
 */
#include "store/tables.h"

enum { TOKEN_SIZE = 5 + 40 + 1 };

/* The row of the `Authorization` header's token, or -ENOKEY. */
int token_check(const char *authorization, struct token_row *ret, struct err *e);
/* A new one with these scopes. */
int token_create(const char *workspace, const char *name, unsigned scopes, const struct actor *a,
		 char ret_text[TOKEN_SIZE], struct err *e);
