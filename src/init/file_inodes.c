#include "init/file_inodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

enum { BUCKETS = 16 * 1024 };

struct inode_name {
	struct inode_name *next;
	dev_t dev;
	ino_t ino;
	char name[];
};

void inodes_release(struct inodes *t)
{
	for (size_t i = 0; t->bucket && i < BUCKETS; i++) {
		while (t->bucket[i]) {
			struct inode_name *n = t->bucket[i];

			t->bucket[i] = n->next;
			free(n);
		}
	}
	free(t->bucket);
	*t = (struct inodes){ 0 };
}

const char *inodes_name(struct inodes *t, dev_t dev, ino_t ino, const char *name)
{
	size_t len = strlen(name) + 1;
	struct inode_name **at, *made;

	if (!t->bucket)
		t->bucket = calloc(BUCKETS, sizeof(*t->bucket));
	if (!t->bucket)
		return NULL;
	at = &t->bucket[((uint64_t)ino * 0x9e3779b97f4a7c15ull >> 40) % BUCKETS];
	for (struct inode_name *n = *at; n; n = n->next) {
		if (n->ino == ino && n->dev == dev)
			return n->name;
	}
	if (t->count >= INODES_MOST || t->bytes + len > INODES_BYTES)
		return NULL;
	made = malloc(sizeof(*made) + len);
	if (!made)
		return NULL;
	made->dev = dev;
	made->ino = ino;
	memcpy(made->name, name, len);
	made->next = *at;
	*at = made;
	t->count++;
	t->bytes += len;
	return NULL;
}
