#pragma once
/*
 * The tar decoder: turns a stream of bytes into entries and pieces of file content.
 *
 * It knows v7, ustar, GNU (long names, old sparse files, base-256 numbers) and PAX (extended and
 * global headers, extended attributes, sparse files 0.0, 0.1 and 1.0). It touches no file system
 * and believes nothing: every length is checked before it is used, and what it holds in memory does
 * not depend on the archive. What an entry may do to the disk is decided by its caller.
 *
 * Archive differences: entries that are only a header (links, directories, devices, FIFOs) have no
 * content, whatever their size field says. Names of users and groups are not read, ids count.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#include "untar_map.h"
#include "untar_pax.h"

enum {
	TAR_BLOCK = 512,
	TAR_NAME_MAX = 4096,        /* bytes of a name or of a link's target */
	TAR_PAX_MAX = 1024 * 1024,  /* bytes of the extended headers of one entry */
	TAR_GLOBAL_MAX = 64 * 1024, /* bytes of all global headers */
	TAR_WINDOW = 128 * 1024,    /* bytes read ahead */
};

enum tar_kind { TAR_FILE, TAR_DIR, TAR_SYMLINK, TAR_HARDLINK, TAR_FIFO, TAR_DEVICE };

struct tar_entry {
	enum tar_kind kind;
	const char *name; /* as in the archive, not empty; the reader's until its next call */
	const char *link; /* target of a symbolic or hard link, not empty; else "" */
	uint32_t mode;    /* 07777 at most */
	uint32_t uid;     /* never UINT32_MAX, which means "leave it" to chown */
	uint32_t gid;
	uint64_t size; /* of a file, with its holes; INT64_MAX at most */
	struct tar_time mtime;
	const struct tar_xattr *xattrs;
	size_t xattrs_count;
};

struct tar_reader {
	ssize_t (*read)(void *ctx, void *data,
			size_t len); /* as read(2): a negative errno, 0 = end */
	void *ctx;
	char *window;
	size_t at, filled; /* what of the window is still to be used */
	uint64_t stored;   /* content bytes of this entry still in the stream */
	uint32_t padding;  /* that follow them */

	struct buf local, global; /* extended headers */
	struct buf global_text;   /* a copy of `global` that `global_pax` points into */
	struct buf long_name, long_link;
	char name[TAR_BLOCK], link[TAR_BLOCK]; /* from the header itself */
	struct tar_pax pax, global_pax;

	struct tar_map map;
	struct tar_extent whole; /* the only extent of a file without a map */
	const struct tar_extent *extent, *extent_end;
	uint64_t extent_used;
};

/* 0 or -ENOMEM. `read` gets `ctx`. */
int tar_reader_init(struct tar_reader *r, ssize_t (*read)(void *ctx, void *data, size_t len),
		    void *ctx);
void tar_reader_release(struct tar_reader *r);

/* 1 and the next entry; 0 at the end mark (two blocks of zeros); -EBADMSG for what is no tar or is
 * cut short, -EMSGSIZE, -ENOMEM, or what `read` failed with. Content not asked for is passed over. */
int tar_next(struct tar_reader *r, struct tar_entry *ret, struct err *e);

/* The next piece of the entry's content and where in the file it belongs: its length, 0 after the
 * last one. Bytes that are in no piece are a hole. */
ssize_t tar_data(struct tar_reader *r, const void **ret_data, uint64_t *ret_offset, struct err *e);

/* Reads and drops what follows the end mark, so that the writer can finish. */
int tar_drain(struct tar_reader *r, struct err *e);
