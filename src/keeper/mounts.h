#pragma once
/*
 * The kernel's descriptor-based mount calls, thinly: a descriptor or 0 on success, a negative errno
 * on failure. Nothing here knows what is mounted or why.
 */
#include <stdbool.h>
#include <stdint.h>

/* A detached copy of the mount at `path` below `dir` ("" = dir itself). */
int mount_clone(int dir, const char *path, bool recursive);

/* A detached, new file system. `options`: "key=value" or "flag" words, NULL-terminated, or NULL;
 * `attributes`: MOUNT_ATTR_*. */
int mount_new(const char *type, const char *const *options, uint64_t attributes);

/* Attaches a detached mount at `path` below `dir` ("" = dir itself). */
int mount_attach(int mount, int dir, const char *path);
