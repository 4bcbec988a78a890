#pragma once
/*
 * The form of kept output on disk, for output.c, which writes it, and output_read.c. Both include
 * nothing of the other.
 */
#include "daemon/sandbox/output.h"

enum {
	OUTPUT_HEAD_SIZE = 64,
	OUTPUT_RING_AT = OUTPUT_HEAD_SIZE + COMMAND_KEEP,
	/* the tail, and room to overwrite before it must be told again what is lost */
	OUTPUT_RING = COMMAND_KEEP + 256 * 1024,
	OUTPUT_VERSION = 2,
};

#define OUTPUT_MAGIC 0x74756f2d79726b73ull /* "skry-out" */

/* On disk, little-endian. `check` tells a head that was read while it was written. */
struct output_head {
	uint64_t magic;
	uint64_t version;
	uint64_t total;
	uint64_t head;
	uint64_t tail_at;
	uint64_t check;
	uint64_t unused[2];
};
_Static_assert(sizeof(struct output_head) == (size_t)OUTPUT_HEAD_SIZE, "a head of 64 bytes");

enum { OUTPUT_NAME_SIZE = 2 * ID_SIZE + 4 };

uint64_t output_head_check(const struct output_view *v);
void output_name(char out[OUTPUT_NAME_SIZE], const char *sandbox, const char *id, int stream);
int output_dir(void); /* the directory of all */

/* 0 and the view, or -EUCLEAN for what is no file of ours. */
int output_read_head(int fd, struct output_view *ret);
