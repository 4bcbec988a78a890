#pragma once
/*
 * What is printed: tables, fields, JSON, errors, raw bytes.
 *
 * Text that came from elsewhere passes out_escape() on its way: control characters, line ends,
 * direction marks and broken UTF-8 are shown as escapes, never sent to a terminal. Tables are
 * aligned under a header on a terminal; elsewhere they are tab separated without a header, one
 * record a line. The one exception are the bytes of commands, which are passed as they are.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

struct cli;

enum { COLUMNS_MAX = 12 };

struct table {
	const char *const *titles; /* upper case; ends with NULL */
	size_t columns;
	char **cells; /* row by row, escaped */
	size_t n;
	bool fit;    /* on a terminal the last column ends where a line does */
	bool failed; /* out of memory */
};

#define _cleanup_table_ _cleanup_(table_release)

void table_init(struct table *t, const char *const *titles);
void table_release(struct table *t);
/* The next cell; NULL shows as "-". */
void table_cell(struct table *t, const char *text);
int table_print(struct table *t, bool terminal, struct err *e);

/* "name value", aligned on a terminal, else "name\tvalue". Nothing for a NULL value. */
void out_field(const char *name, const char *value);
void out_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The object as the server sent it, indented. */
int out_json(const json_t *j, struct err *e);

/* Remarks on stderr, "skerry: …". */
void out_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void out_error(bool json, const struct err *e);

/* Raw bytes to a descriptor, after what stdio holds. */
int out_bytes(int fd, const void *data, size_t len, struct err *e);
/* Flushes stdout; an error of any earlier write counts. */
int out_flush(struct err *e);

void out_escape(struct buf *out, const char *text, size_t len);
/* JSON from a dump is UTF-8 without C0 controls; what else a terminal must not see is written as
 * escapes, which mean the same. */
void out_escape_json(struct buf *out, const char *text);
/* Columns that UTF-8 text takes on a terminal. */
size_t out_width(const char *text);
