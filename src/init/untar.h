#pragma once
/*
 * `skerry-init unpack`: makes a file system from a tar archive.
 *
 * Runs alone in a throw-away sandbox, as root of its user namespace, in the directory that becomes
 * the layer; nobody else is in there. The archive is hostile. It can fill the target and end in an
 * error; it cannot touch anything outside of the target (untar_path.h says how), and it cannot make
 * memory grow (untar_read.h).
 *
 * What differs from tar:
 * - device nodes are left out, as are attributes other than user.* and security.capability, and
 *   those the kernel refuses;
 * - no link is ever followed, and a directory takes the place of a link to one;
 * - whiteouts: ".wh.<name>" becomes the device node 0/0 that overlayfs reads as one, unless the
 *   archive has <name> itself; ".wh..wh..opq" is an error, since nobody but host root can mark a
 *   directory opaque; other ".wh..wh." names are bookkeeping of other programs and left out;
 * - an archive that is cut short is an error; what follows its end mark is read and dropped.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { UNTAR_ENTRIES_MAX = 16 * 1024 * 1024 };

struct untar_result {
	uint64_t bytes;      /* of file content written */
	uint64_t entries;    /* files, directories, links, FIFOs and whiteouts made */
	uint64_t devices;    /* left out */
	uint64_t attributes; /* left out */
};

/* Unpacks what `archive` reads as a layer into the directory `target` (neither is closed) and syncs
 * its file system. The error names the entry at fault. On failure what was unpacked so far is there. */
int untar_run(int target, int archive, struct untar_result *ret, struct err *e);

/* What a client's archive of files is unpacked with, in a sandbox that lives: names of whiteouts are
 * names like any other, and the target keeps what it is. A file gets its name when it is whole; where a
 * directory meets something else, but a link, it is an error. */
struct untar_files {
	ssize_t (*read)(void *ctx, void *data,
			size_t len); /* as read(2): a negative errno, 0 = end */
	void *ctx;
	uid_t uid; /* whose everything is */
	gid_t gid;
	bool trusted; /* set-uid and set-gid bits and capabilities are kept */
};

/* As untar_run. */
int untar_files(int target, const struct untar_files *files, struct err *e);

/* The result on standard output: bytes, entries; u64, little-endian. */
enum { UNTAR_REPLY_SIZE = 16 };

/* From standard input into the current directory. The exit code: 0, after the result was written to
 * standard output, or 1, after a line that says what failed to standard error. */
int untar_main(void);
