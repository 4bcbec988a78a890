#pragma once
/*
 * Quota groups of btrfs, by the kernel's own calls. `fd` is a directory of the file system outside
 * every limited subvolume: on a full one these calls fail.
 */
#include <stdbool.h>
#include <stdint.h>

/* Group `level`/`number`, as the kernel numbers them. */
#define QGROUP(level, number) ((uint64_t)(level) << 48 | ((uint64_t)(number)&0xffffffffffffull))

/* 0 none, 1 classic, 2 simple, or a negative errno. */
int quota_mode(int fd);

int quota_group_make(int fd, uint64_t group);
int quota_group_remove(int fd, uint64_t group); /* -EBUSY while it holds something */
/* Bytes referenced; 0 = no limit. */
int quota_group_limit(int fd, uint64_t group, uint64_t bytes);
int quota_group_used(int fd, uint64_t group, uint64_t *ret_bytes);

/* Calls `each` for every group of the file system. */
int quota_each(int fd, void (*each)(void *arg, uint64_t group, uint64_t used), void *arg);
