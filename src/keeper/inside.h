#pragma once
/*
 * What lies at a sandbox's managed paths: the tables of inside.c's mount plan and the calls that
 * put things there. Everything happens beneath a descriptor of the new root, without following
 * links: an object that is in the way is moved aside, never followed.
 */
#include <sys/types.h>

#include "base/err.h"

#include "launch.h"

/* A descriptor (O_PATH) of the directory `path` below `root`, made where it is missing; what is not
 * a directory on the way is moved aside. Or a negative errno. */
int inside_dir(int root, const char *path, mode_t mode);

/* Writes `text` to `path` below `root` under a temporary name and renames it there. */
int inside_text(int root, const char *path, const char *text);

/* Mounts everything of the plan below `root`; the current directory is the stage. */
int inside_mounts(int root, const struct launch *l, struct err *e);
