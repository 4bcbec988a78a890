#pragma once
/*
 * From options to the fields of a request, by a table. Only what was given is sent.
 */
#include <jansson.h>

#include "cli.h"

enum field_kind {
	FIELD_TEXT,
	FIELD_UPPER,  /* a word of the API, in capitals there */
	FIELD_NUMBER, /* whole numbers are sent as such */
	FIELD_MIB,    /* "512", "512M", "4G" → MiB */
	FIELD_GIB,    /* "20", "20G", "2T" → GiB */
	FIELD_TRUE,   /* the flag sets true … */
	FIELD_FALSE,  /* … or false */
	FIELD_LIST,   /* every value, as a list */
	FIELD_LINES,  /* every value, as one text of lines */
};

struct field {
	const char *option;
	const char *name;
	enum field_kind kind;
};

/* `fields` ends with a row without an option. */
int fields_fill(const struct args *a, const struct field *fields, json_t *body, struct err *e);

/* Cpus, memory, disk …: the options that `create` and `run` share. */
extern const struct field shape_fields[];
