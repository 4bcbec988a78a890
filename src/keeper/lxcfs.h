#pragma once
/*
 * Single files of lxcfs for a sandbox. lxcfs serves a directory of ours, <run_dir>/lxcfs, in the host's
 * mount namespace, where it may come and go; the keeper's own namespace does not see it.
 */
#include "base/err.h"

#include "conf.h"
#include "init/lxcfs_files.h"

/* Before the keeper leaves the host's mount namespace. */
int lxcfs_init(struct err *e);

/* Detached mounts of the files, read-only; -1 for each where lxcfs does not run. For a process that
 * has a mount namespace of its own, whose working directory is that namespace's root afterwards. */
int lxcfs_take(const struct conf *c, int ret[LXCFS_FILES], struct err *e);
