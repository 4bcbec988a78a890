#pragma once
/*
 * Which parts of a sparse file a tar archive holds: extents in rising order, the rest is holes.
 * Only the tar decoder uses it. The list is bounded, whatever the archive claims.
 */
#include <stddef.h>
#include <stdint.h>

enum { TAR_EXTENTS_MAX = 1024 * 1024 };

struct tar_extent {
	uint64_t offset;
	uint64_t len;
};

struct tar_map {
	struct tar_extent *list;
	size_t count;
	size_t cap;
};

void tar_map_release(struct tar_map *m);

/* 0, -ENOMEM or -EMSGSIZE. */
int tar_map_push(struct tar_map *m, uint64_t offset, uint64_t len);

/* 0 when the extents rise, do not overlap, end within `size` and hold `stored` bytes together;
 * -EBADMSG else. */
int tar_map_check(const struct tar_map *m, uint64_t stored, uint64_t size);
