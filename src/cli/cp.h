#pragma once
/*
 * Copies between this machine and a sandbox: what each of the two sides of `cp` has, and how.
 *
 * What comes from a sandbox is whole before it takes its name here: a file in a temporary one beside
 * it, a directory in a fresh one. A stream that was cut is an error and leaves nothing.
 */
#include <sys/types.h>

#include "cli.h"
#include "remote.h"

enum { COPY_PATHS = 8192 };

struct copy {
	struct cli *c;
	struct remote remote;
	const char *local; /* "-": standard input or output */
	const char *user;  /* whose uploads are, or NULL */
	bool quiet;
	json_t *item; /* of the remote side, or NULL where nothing is there */
	char here[COPY_PATHS],
		there[COPY_PATHS]; /* where the two point to, once they are settled */
};

/* cp_file.c */
int copy_file_up(struct copy *p, int fd, struct err *e); /* `fd`: the caller's */
int copy_file_down(struct copy *p, struct err *e);

/* cp_tree.c: to and from names that are given to the directory as a whole. What lies under such a
 * name here is merged with what comes. */
int copy_tree_up(struct copy *p, struct err *e);
int copy_tree_down(struct copy *p, struct err *e);

/* cp_io.c: an open, a read or a write that a signal ends. A descriptor, a count or 0, or a negative
 * errno; -EINTR: by a signal that was held. */
int copy_open(const struct copy *p, const char *path, int flags);
ssize_t copy_read(const struct copy *p, int fd, void *data, size_t len);
int copy_write(const struct copy *p, int fd, const void *data, size_t len);
/* What `failed` of them means: `what` could not be done with the local side. */
int copy_failed(const struct copy *p, int failed, const char *what, struct err *e);
/* The mode of the remote item, or `or` where it tells none, as far as our mask allows it. */
mode_t copy_mode(const struct copy *p, const char * or);
/* What an upload was answered, where JSON is wanted. */
int copy_show(const struct copy *p, const struct answer *answer, struct err *e);
