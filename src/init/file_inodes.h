#pragma once
/* Files with several names, and the first of these: bounded, and what comes later has one name. */
#include <stddef.h>
#include <sys/types.h>

enum {
	INODES_BUCKETS = 16 * 1024,
	INODES_MOST = 128 * 1024,
	INODES_BYTES = 16 * 1024 * 1024, /* of names */
};

struct inode_name;

struct inodes {
	struct inode_name *bucket[INODES_BUCKETS];
	size_t count, bytes;
};

void inodes_release(struct inodes *t);
/* The name it was given with before; else NULL, and it has `name` from now on. */
const char *inodes_name(struct inodes *t, dev_t dev, ino_t ino, const char *name);
