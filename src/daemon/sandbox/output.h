#pragma once
/*
 * The kept output of one stream of one command, on the host; the writing side. Reading is declared
 * in command.h.
 *
 * A file is made with the first byte, so a stream that says nothing costs nothing. Its first
 * COMMAND_KEEP bytes are the head; the rest runs through a ring of as many bytes. Bytes that never
 * came (the agent had to drop them) or could not be written (the disk is full) are a gap: they
 * count in the total, and what is kept before a gap ends there. A gap inside the head ends the
 * head, a gap in the tail makes the tail begin behind it.
 *
 * The head of the file is written after the bytes it speaks of and, where the ring overwrites, the
 * loss is written before them: a reader never takes a byte for another. One writer; readers need no
 * lock.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#include "daemon/sandbox/command.h"

/* No stream of an honest agent gets there; JSON numbers and off_t end here. */
#define OUTPUT_TOTAL_MAX ((uint64_t)INT64_MAX)

struct output_file {
	const char *sandbox; /* the owner's, as is `id` */
	const char *id;
	int stream;    /* 1 or 2 */
	int fd;        /* -1 until there is a byte */
	bool dirty;    /* the head on disk is behind */
	bool announce; /* of that, a loss: to be written before the ring is */
	bool tried;    /* making the file failed: told once */
	struct output_view view;
};

/* Where all files lie; made when missing. */
int output_init_dir(const char *dir, struct err *e);
void output_release_dir(void);

void output_init(struct output_file *o, const char *sandbox, const char *id, int stream);
void output_release(struct output_file *o); /* writes what is due and closes */

/* Goes on with what an earlier process kept; nothing kept is no error. */
int output_resume(struct output_file *o, struct err *e);

/* Bytes that begin at `offset` of the stream; those we have are skipped. A failing disk is not an
 * error. -EPROTO for an offset beyond OUTPUT_TOTAL_MAX. */
int output_append(struct output_file *o, uint64_t offset, const void *data, size_t len);
/* The stream ended with this many bytes. -EPROTO where that is less than came. */
int output_finish(struct output_file *o, uint64_t total);
/* No more comes: of the tail, COMMAND_KEEP bytes remain. */
void output_settle(struct output_file *o);
/* Brings the head on disk up to date. */
void output_flush(struct output_file *o);
/* Every sandbox that output is kept of. */
int output_each(void (*each)(void *arg, const char *sandbox), void *arg, struct err *e);
