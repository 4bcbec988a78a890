#pragma once
/*
 * Directories of ours that were filled with what came from a sandbox.
 */
#include "base/err.h"

/* Moves what is in the directory `from` into `to`, on the same file system. Directories become one
 * with directories of their name; everything else replaces a file or a link of its name. Where a
 * directory meets something else (EEXIST), or where a directory of `to` may not be written or is of
 * another file system, nothing is moved. No link is followed. */
int merge_tree(const char *from, const char *to, struct err *e);

/* As far as it goes, however deep, and whatever the modes of its directories. */
void remove_tree(const char *path);
