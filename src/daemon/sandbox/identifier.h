#pragma once
/*
 * Names people and machines give: identifiers, host names, names of images, sizes. Pure functions;
 * the checks have the shape of `struct field.check`.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { IDENTIFIER_MAX = 63 };

bool identifier_valid(const char *s);
int identifier_check(const char *s, struct err *e); /* the rule as a text */
/* From a name; empty where nothing of it is left. */
void identifier_derive(const char *name, char out[IDENTIFIER_MAX + 1]);
/* <identifier>-<n>, the identifier cut to make room. */
void identifier_number(const char *identifier, unsigned n, char out[IDENTIFIER_MAX + 1]);
/* Lower case, '_' as '-'. */
void identifier_hostname(const char *identifier, char out[IDENTIFIER_MAX + 1]);

int name_check(const char *s, struct err *e); /* of a sandbox: no control characters */
int image_name_check(const char *s, struct err *e);
int env_name_check(const char *s, struct err *e);
int path_check(const char *s, struct err *e); /* absolute */
int signal_check(const char *s, struct err *e);

/* "SIGKILL" or "KILL" to 9; 0 for none. */
int signal_number(const char *name);
void signal_text(int signal, char out[24]);

/* "2x4": cpus and GiB of memory. */
struct size {
	const char *name;
	uint32_t cpus, memory_gb;
};
extern const char *const size_names[];
const struct size *size_find(const char *name);
