#pragma once
/*
 * A file that has no name until it is whole, where the file system can do that; else one of its own,
 * which goes with it. So what breaks off leaves nothing.
 */
#include <stdbool.h>

#include "wire/files.h"

struct nameless {
	int dir; /* where it is to be, borrowed */
	int fd;
	char temporary[FILE_NAME_MAX + 1]; /* its name until then, or "" */
};

void nameless_init(struct nameless *n);
/* Of one that was not linked nothing is left. */
void nameless_release(struct nameless *n);

/* For writing, ours, 0600. 0 or a negative errno. */
int nameless_open(struct nameless *n, int dir);
/* Under its name, in the place of what has it now; `taken`: something is known to. */
int nameless_link(struct nameless *n, const char *leaf, bool taken);

/* Is it a name that such a file may have, ours (which is told to nobody) or the kernel's? */
bool nameless_is_temporary(const char *name);
bool nameless_is_kernels(const char *name); /* "#" and a number: files of users' may be called so */
