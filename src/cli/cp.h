#pragma once
/*
 * Copies between this machine and a sandbox: what each of the two sides of `cp` has, and how.
 *
 * A download to a file goes to a temporary name beside it, and takes its name once it is whole. A
 * stream that was cut is an error and leaves nothing.
 */
#include "cli.h"
#include "remote.h"

struct copy {
	struct cli *c;
	struct remote remote;
	const char *local; /* "-": standard input or output */
	const char *user;  /* whose uploads are, or NULL */
	bool quiet;
	json_t *item; /* of the remote side, or NULL where nothing is there */
};

/* cp_file.c */
int copy_file_up(struct copy *p, int fd, struct err *e); /* `fd`: the caller's */
int copy_file_down(struct copy *p, struct err *e);
