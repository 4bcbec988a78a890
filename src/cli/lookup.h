#pragma once
/*
 * From words to the row of the command table.
 */
#include "cli.h"

/* The noun's own name for a noun or its short form ("sb" → "sandbox"), or NULL. */
const char *noun_find(const char *word);

struct noun {
	const char *name, *alias;
};
extern const struct noun nouns[]; /* ends with a row without a name */
