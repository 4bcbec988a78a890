#pragma once
/*
 * Options and arguments, decoded by a table. Values point into argv.
 *
 * `--name VALUE`, `--name=VALUE`, `-n VALUE`, `-nVALUE`, clustered flags (`-di`); options may stand
 * before and after arguments; `--` ends them. A command that runs something else takes everything
 * after a given number of arguments as it is, so that the options of the other program are not
 * ours.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct opt {
	const char *name;    /* without dashes */
	char letter;         /* or 0 */
	const char *arg;     /* what its value is called in the help; NULL for a flag */
	const char *help;    /* one line */
	const char *choices; /* the values allowed, "a b c", or NULL */
	bool many;           /* may be repeated; others: the last one counts */
};

struct given {
	const struct opt *opt;
	const char *value; /* NULL for a flag */
};

struct args {
	struct given *given;
	size_t n_given;
	char **pos; /* the arguments; belongs to us, the strings do not */
	int n_pos;
	bool dashes; /* a `--` stood there */
};

#define _cleanup_args_ _cleanup_(args_release)

/* Adds what `argv` holds to `a`. Looks options up in both tables (either may be NULL). `rest_after`
 * as in struct command, 0 for none. With `first` it stops before the first argument. Returns the
 * number of words taken, or a negative errno with reason "usage". */
int args_parse(struct args *a, const struct opt *own, const struct opt *global, int rest_after,
	       bool first, int argc, char **argv, struct err *e);
void args_release(struct args *a);

bool args_has(const struct args *a, const char *name);
const char *args_get(const struct args *a, const char *name); /* NULL when not given */
/* The values of a repeated option, one after the other: start with `*at` = 0; NULL at the end. */
const char *args_next(const struct args *a, const char *name, size_t *at);

/* The option as a number. 0 when given and valid, 1 when not given, or a negative errno. */
int args_number(const struct args *a, const char *name, double min, double max, double *ret,
		struct err *e);

/* True when `word` is one of the space separated `list`. */
bool word_in(const char *list, const char *word);

/* An error of usage: reason "usage", exit code 2. Returns -EINVAL. */
int usage(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
