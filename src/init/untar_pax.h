#pragma once
/*
 * The records of a PAX extended header: "<length> <key>=<value>\n", one after the other. Only the
 * tar decoder uses it. Names and values point into the text that was parsed, which is changed in
 * place (separators become NULs).
 *
 * Read: path, linkpath, size, uid, gid, mtime, SCHILY.xattr.*, GNU.sparse.*. An empty value takes
 * an earlier one back. Other keys are passed over: access times, names of users (ids count), ACLs
 * and labels of other systems.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#include "untar_map.h"

enum { TAR_XATTRS_MAX = 128 };

struct tar_xattr {
	const char *name; /* "user.note" */
	const void *value;
	size_t len;
};

struct tar_time {
	int64_t seconds;
	uint32_t ns;
};

enum pax_have {
	PAX_PATH = 1u << 0,
	PAX_LINK = 1u << 1,
	PAX_SIZE = 1u << 2,
	PAX_UID = 1u << 3,
	PAX_GID = 1u << 4,
	PAX_MTIME = 1u << 5,
	PAX_SPARSE_NAME = 1u << 6,
	PAX_SPARSE_SIZE = 1u << 7, /* size of the file with its holes */
	PAX_SPARSE_MAJOR = 1u << 8,
	PAX_SPARSE_MINOR = 1u << 9,
	PAX_SPARSE_MAP = 1u << 10, /* the map came in the records (0.0 and 0.1) */
};

struct tar_pax {
	unsigned have; /* enum pax_have */
	const char *path;
	const char *link;
	const char *sparse_name;
	uint64_t size;
	uint64_t uid;
	uint64_t gid;
	uint64_t sparse_size;
	uint64_t sparse_major;
	uint64_t sparse_minor;
	uint64_t extent_offset; /* of an extent whose length is still to come */
	bool extent_open;
	struct tar_time mtime;
	size_t xattrs_count;
	struct tar_xattr xattrs[TAR_XATTRS_MAX];
};

/* Adds what `text` says to `p`; extents go to `map`, or are an error where it is NULL. 0, -EBADMSG
 * for what no tar writes, -ENOMEM, -EMSGSIZE. */
int tar_pax_parse(struct tar_pax *p, char *text, size_t len, struct tar_map *map, struct err *e);
