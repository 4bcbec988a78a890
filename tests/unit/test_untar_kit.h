#pragma once
/*
 * For the tests of the unpacker: archives made header by header, throw-away directories, trees
 * compared. Failures end the running test.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#include "init/untar.h"

struct kit_head {
	const char *name;
	const char *link;
	const char *prefix; /* NULL: none */
	const char *magic;  /* NULL: ustar */
	char type;          /* 0: '0' */
	unsigned mode;      /* 0: 0644 */
	unsigned uid, gid;
	uint64_t size;
	int64_t mtime;
};

/* Appends a header with a right checksum. */
void kit_header(struct buf *b, const struct kit_head *h);
/* Sets the checksum of a header that was changed; `block` are its 512 bytes. */
void kit_checksum(char *block);
/* Appends content, padded. */
void kit_content(struct buf *b, const void *data, size_t len);
void kit_file(struct buf *b, const char *name, const char *content);
void kit_dir(struct buf *b, const char *name);
void kit_link(struct buf *b, char type, const char *name, const char *target);
/* An extended header of `type` ('x', 'g', 'L'…) around these bytes. */
void kit_extended(struct buf *b, char type, const void *data, size_t len);
/* One PAX record; the length is counted. */
void kit_record(struct buf *b, const char *key, const void *value, size_t len);
/* An 'x' header with one record. */
void kit_pax(struct buf *b, const char *key, const char *value);
void kit_end(struct buf *b);

/* A directory with `target` (empty) and `outside` (one file) in it. */
struct kit_place {
	char path[64];
	int top;
	int target;
};
void kit_place_make(struct kit_place *p);
/* Fails when anything but `target` changed. */
void kit_place_check(const struct kit_place *p);
void kit_place_drop(struct kit_place *p);

/* Unpacks from memory. */
int kit_unpack(const struct buf *archive, const struct kit_place *p, struct untar_result *ret,
	       struct err *e);

/* Runs a program to its end; the exit code. */
int kit_run(const char *const argv[]);

/* Fails at the first difference: kind, mode, owner, size, content, link target, hard links, times
 * (in whole seconds unless `ns`), user.* and security.capability attributes. Returns the count of
 * objects. */
size_t kit_compare(const char *want, const char *got, bool ns);
