#pragma once
/*
 * Strings and numbers as they come from outside. Nothing here allocates.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool str_eq(const char *a, const char *b); /* both may be NULL; NULL equals NULL only */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Copies with its NUL; false (and an empty `out`) where it does not fit. */
bool str_copy(char *out, size_t size, const char *s);

/* A whole string of decimal digits, nothing before or after, within [min, max]. 0, -EINVAL or
 * -ERANGE. */
int str_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

/* Well-formed UTF-8 (no surrogates, no overlong forms), NUL bytes allowed. */
bool utf8_valid(const char *s, size_t len);

/* Identifiers of ours: a two-letter kind and ID_RANDOM characters of a-z2-7, 100 random bits. */
enum { ID_RANDOM = 20, ID_LEN = 22, ID_SIZE = ID_LEN + 1 };
bool id_valid(const char *s, const char *kind);   /* kind: two letters, or NULL for any */
int id_make(const char *kind, char out[ID_SIZE]); /* 0 or a negative errno of getrandom */

/* "0123abcd…", two characters a byte; `out` holds 2 * len + 1. */
void hex_encode(const void *data, size_t len, char *out);
