/*
 * The tar decoder, without a disk. The first byte says in what pieces the stream arrives and
 * whether content is read or passed over. Checksums are made right first, where a block looks like a
 * header: nothing behind them would be reached otherwise.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "fuzz.h"
#include "init/untar_path.h"
#include "init/untar_read.h"

struct input {
	uint8_t *data;
	size_t left, step;
};

static ssize_t read_input(void *ctx, void *data, size_t len)
{
	struct input *in = ctx;

	if (len > in->step)
		len = in->step;
	if (len > in->left)
		len = in->left;
	memcpy(data, in->data, len);
	in->data += len;
	in->left -= len;
	return (ssize_t)len;
}

static void mend_checksums(uint8_t *data, size_t size)
{
	for (; size >= TAR_BLOCK; data += TAR_BLOCK, size -= TAR_BLOCK) {
		unsigned sum = 0;

		if (memcmp(data + 257, "ustar", 5))
			continue;
		memset(data + 148, ' ', 8);
		for (int i = 0; i < TAR_BLOCK; i++)
			sum += data[i];
		snprintf((char *)data + 148, 8, "%06o", sum);
	}
}

static int read_content(struct tar_reader *r, const struct tar_entry *n, struct err *e)
{
	uint64_t end = 0, offset;
	const void *data;
	ssize_t len;

	while ((len = tar_data(r, &data, &offset, e)) > 0) {
		assert(offset >= end && offset <= n->size && (uint64_t)len <= n->size - offset);
		end = offset + (uint64_t)len;
		fuzz_touch(data, (size_t)len);
	}
	return (int)len;
}

static void check_entry(const struct tar_entry *n)
{
	char path[TAR_NAME_MAX + 1], quoted[TAR_QUOTED_SIZE];
	bool linked = n->kind == TAR_SYMLINK || n->kind == TAR_HARDLINK;
	size_t len = strlen(n->name);
	struct err e;

	assert(len >= 1 && len <= TAR_NAME_MAX);
	assert(strlen(n->link) <= TAR_NAME_MAX && linked == (n->link[0] != '\0'));
	assert(n->size <= INT64_MAX && (n->kind == TAR_FILE || n->size == 0));
	assert(n->mode <= 07777 && n->uid != UINT32_MAX && n->gid != UINT32_MAX);
	assert(n->mtime.ns < 1000000000);
	for (size_t i = 0; i < n->xattrs_count; i++) {
		assert(n->xattrs[i].name[0]);
		fuzz_touch(n->xattrs[i].value, n->xattrs[i].len);
	}
	tar_quote(n->name, quoted);
	assert(utf8_valid(quoted, strlen(quoted)));
	if (tar_clean(n->name, path, &e) < 0)
		return;
	assert(path[0] != '/' && !strstr(path, "//") && strlen(path) <= len);
	assert(strcmp(path, "..") && strncmp(path, "../", 3) && !strstr(path, "/../"));
}

static void decode(struct input *in, bool content)
{
	struct tar_reader r;
	struct tar_entry n;
	struct err e = ERR_INIT;
	int more;

	if (tar_reader_init(&r, read_input, in) == 0) {
		while ((more = tar_next(&r, &n, &e)) > 0) {
			check_entry(&n);
			if (content && read_content(&r, &n, &e) < 0)
				break;
		}
		if (more == 0)
			assert(tar_drain(&r, &e) == 0 && in->left == 0);
		else
			assert(e.code && e.text[0]);
	}
	tar_reader_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in;
	uint8_t *copy;

	if (size < 1)
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	mend_checksums(copy + 1, size - 1);
	in = (struct input){ copy + 1, size - 1, data[0] >> 1 ? 13u * (data[0] >> 1) : 1u << 20 };
	decode(&in, data[0] & 1);
	free(copy);
	return 0;
}
