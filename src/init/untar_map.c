#include "untar_map.h"

#include <errno.h>
#include <stdlib.h>

#include "base/banned.h"

void tar_map_release(struct tar_map *m)
{
	free(m->list);
	*m = (struct tar_map){ 0 };
}

int tar_map_push(struct tar_map *m, uint64_t offset, uint64_t len)
{
	if (m->count == TAR_EXTENTS_MAX)
		return -EMSGSIZE;
	if (m->count == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 16;
		struct tar_extent *list = reallocarray(m->list, cap, sizeof(*list));

		if (!list)
			return -ENOMEM;
		m->list = list;
		m->cap = cap;
	}
	m->list[m->count++] = (struct tar_extent){ offset, len };
	return 0;
}

int tar_map_check(const struct tar_map *m, uint64_t stored, uint64_t size)
{
	uint64_t end = 0, sum = 0;

	for (size_t i = 0; i < m->count; i++) {
		const struct tar_extent *x = &m->list[i];

		if (x->offset < end || x->offset > size || x->len > size - x->offset)
			return -EBADMSG;
		end = x->offset + x->len;
		sum += x->len; /* cannot overflow: the extents are disjoint and within `size` */
	}
	return sum == stored ? 0 : -EBADMSG;
}
