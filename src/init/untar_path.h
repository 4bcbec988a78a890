#pragma once
/*
 * Names of an archive, brought below one directory and never out of it.
 *
 * A name is cleaned before anything else: absolute names become relative, "." and empty components
 * go, ".." is refused. Then its parent is opened from the held descriptor of the target with
 * openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), so that no link the archive made is followed, and
 * the last component is used relative to that parent. The last parent is kept open: archives list
 * the content of a directory in one run. Only the unpacker uses this.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#include "untar_read.h"

enum { TAR_DEPTH_MAX = 512 };

struct tar_tree {
	int root;  /* the target; belongs to the caller */
	uid_t uid; /* of directories that are made */
	gid_t gid;
	int parent; /* the last one opened, or -1; belongs to the tree */
	char parent_path[TAR_NAME_MAX + 1];
};

void tar_tree_init(struct tar_tree *t, int root);
void tar_tree_release(struct tar_tree *t);

/* The cleaned name in `out`, "" for the target itself. 0 or a negative errno. */
int tar_clean(const char *name, char out[TAR_NAME_MAX + 1], struct err *e);

/* The parent of a cleaned name that is not "", and its last component. Missing directories are
 * made, 0755, owned as the tree says. The descriptor is the tree's, until its next call. */
int tar_tree_parent(struct tar_tree *t, const char *path, const char **ret_leaf, struct err *e);

/* The same without making anything and without the tree's cache; the caller owns the descriptor. */
int tar_tree_find(const struct tar_tree *t, const char *path, const char **ret_leaf, struct err *e);

/* Removes what stands at `leaf`, a directory only when it is empty. `dir` is the parent the tree
 * keeps open: so what is removed is never that one. */
int tar_remove(int dir, const char *leaf, struct err *e);

/* `name` for an error text: control characters, and all else but ASCII where it is not UTF-8, as
 * "\xNN"; cut with "..." where it is long. */
enum { TAR_QUOTED_SIZE = 160 };
void tar_quote(const char *name, char out[TAR_QUOTED_SIZE]);
