#include "init/file_inodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

struct inode_name {
	struct inode_name *next;
	dev_t dev;
	ino_t ino;
	char name[];
};

void inodes_release(struct inodes *t)
{
	for (size_t i = 0; i < INODES_BUCKETS; i++) {
		while (t->bucket[i]) {
			struct inode_name *n = t->bucket[i];

			t->bucket[i] = n->next;
			free(n);
		}
	}
	t->count = t->bytes = 0;
}

const char *inodes_name(struct inodes *t, dev_t dev, ino_t ino, const char *name)
{
	size_t len = strlen(name) + 1;
	struct inode_name **at, *made;

	at = &t->bucket[((uint64_t)ino * 0x9e3779b97f4a7c15ull >> 40) % INODES_BUCKETS];
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
