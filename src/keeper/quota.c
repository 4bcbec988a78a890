#include "quota.h"

#include <endian.h>
#include <errno.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/banned.h"

/* Simple quotas are younger than the headers of Debian 12. */
enum { STATUS_FLAG_SIMPLE = 1 << 3 };

struct walk {
	int (*item)(void *arg, const struct btrfs_ioctl_search_header *h, const void *data);
	void *arg;
};

/* Calls `item` for all items of one type in the quota tree with offsets in [from, to]. */
static int walk_quota_tree(int fd, uint32_t type, uint64_t from, uint64_t to, struct walk w)
{
	struct btrfs_ioctl_search_args args = { .key = {
							.tree_id = BTRFS_QUOTA_TREE_OBJECTID,
							.min_type = type,
							.max_type = type,
							.min_offset = from,
							.max_offset = to,
							.max_transid = UINT64_MAX,
						} };

	for (;;) {
		size_t at = 0;

		args.key.nr_items = 256;
		if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, &args) < 0)
			return -errno;
		if (!args.key.nr_items)
			return 0;
		for (uint32_t i = 0; i < args.key.nr_items; i++) {
			struct btrfs_ioctl_search_header h;
			int r;

			memcpy(&h, args.buf + at, sizeof(h));
			at += sizeof(h);
			r = h.type == type && h.offset >= from && h.offset <= to
				    ? w.item(w.arg, &h, args.buf + at)
				    : 0;
			if (r)
				return r;
			at += h.len;
			if (h.offset >= to)
				return 0;
			args.key.min_offset = h.offset + 1;
		}
	}
}

static int take_status(void *arg, const struct btrfs_ioctl_search_header *h, const void *data)
{
	struct btrfs_qgroup_status_item s;

	if (h->len < sizeof(s))
		return 0;
	memcpy(&s, data, sizeof(s));
	if (le64toh(s.flags) & BTRFS_QGROUP_STATUS_FLAG_ON)
		*(int *)arg = le64toh(s.flags) & STATUS_FLAG_SIMPLE ? 2 : 1;
	return 0;
}

int quota_mode(int fd)
{
	int mode = 0;
	int r = walk_quota_tree(fd, BTRFS_QGROUP_STATUS_KEY, 0, 0,
				(struct walk){ take_status, &mode });

	return r == -ENOENT ? 0 : r < 0 ? r : mode;
}

int quota_group_make(int fd, uint64_t group)
{
	struct btrfs_ioctl_qgroup_create_args a = { .create = 1, .qgroupid = group };

	return ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &a) < 0 ? -errno : 0;
}

int quota_group_remove(int fd, uint64_t group)
{
	struct btrfs_ioctl_qgroup_create_args a = { .create = 0, .qgroupid = group };

	return ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &a) < 0 ? -errno : 0;
}

int quota_group_limit(int fd, uint64_t group, uint64_t bytes)
{
	struct btrfs_ioctl_qgroup_limit_args a = {
		.qgroupid = group,
		.lim = {
			.flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
			.max_rfer = bytes ? bytes : UINT64_MAX,
		},
	};

	return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &a) < 0 ? -errno : 0;
}

struct group_used {
	uint64_t group, bytes;
	void (*each)(void *arg, uint64_t group, uint64_t used);
	void *arg;
	int found;
};

static int take_info(void *arg, const struct btrfs_ioctl_search_header *h, const void *data)
{
	struct btrfs_qgroup_info_item info;
	struct group_used *u = arg;

	if (h->len < sizeof(info))
		return 0;
	memcpy(&info, data, sizeof(info));
	if (u->each) {
		u->each(u->arg, h->offset, le64toh(info.rfer));
	} else if (h->offset == u->group) {
		u->bytes = le64toh(info.rfer);
		u->found = 1;
	}
	return 0;
}

int quota_group_used(int fd, uint64_t group, uint64_t *ret_bytes)
{
	struct group_used u = { .group = group };
	int r = walk_quota_tree(fd, BTRFS_QGROUP_INFO_KEY, group, group,
				(struct walk){ take_info, &u });

	if (r < 0)
		return r;
	if (!u.found)
		return -ENOENT;
	*ret_bytes = u.bytes;
	return 0;
}

int quota_each(int fd, void (*each)(void *arg, uint64_t group, uint64_t used), void *arg)
{
	struct group_used u = { .each = each, .arg = arg };

	return walk_quota_tree(fd, BTRFS_QGROUP_INFO_KEY, 0, UINT64_MAX,
			       (struct walk){ take_info, &u });
}
