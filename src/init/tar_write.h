#pragma once
/*
 * The tar encoder: headers of one entry, in ustar, with PAX records before it for what does not fit.
 *
 * Names are the bytes they are: those that are no UTF-8 are marked as binary. It knows no file and
 * no stream; the caller writes what it makes, then the content and its padding.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"

enum {
	TARW_BLOCK = 512,
	TARW_SPARSE_MOST = 32 * 1024, /* pieces of data of one file, which is whole beyond */
};

struct tarw_extent {
	uint64_t offset, length;
};

struct tarw_entry {
	const char *name; /* without a slash at the end */
	const char *link; /* of a link, else NULL; a hard link's is a name */
	char type;        /* '0' file, '1' hard link, '2' link, '5' directory, '6' FIFO */
	const struct stat *st;
	const char *user, *group;
	/* sparse: where the data is, in order; NULL for a file that is whole */
	const struct tarw_extent *extents;
	size_t extents_count;
};

/* An attribute of the next entry. Failure is the buffer's. */
void tarw_xattr(struct buf *pax, const char *name, const void *value, size_t len);

/* Appends the entry's headers to `out`; for a sparse file also its map. `pax` has its attributes, and
 * is empty afterwards. `ret_content`: bytes that follow, without padding. */
void tarw_head(struct buf *out, struct buf *pax, const struct tarw_entry *n, uint64_t *ret_content);

/* Zeros that follow so many bytes of content. */
size_t tarw_padding(uint64_t content);

/* The end of the archive. */
void tarw_end(struct buf *out);
