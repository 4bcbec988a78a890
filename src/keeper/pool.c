#include "pool.h"

#include <btrfsutil.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#include "engine.h"
#include "quota.h"

#define ENGINE_SUFFIX ".engine"

enum { PARTIAL_SIZE = ID_SIZE + 8, ENGINE_SIZE = ID_SIZE + sizeof(ENGINE_SUFFIX) };

static struct {
	int top, layers, sandboxes;
	enum pool_quota quota;
	char backing[4096]; /* the sparse file under the loop device, or "" */
} pool = { .top = -1, .layers = -1, .sandboxes = -1 };

static int make_dir(const char *name, int *ret, struct err *e)
{
	if (mkdirat(pool.top, name, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make '%s' in the pool: %m", name);
	*ret = open_beneath(pool.top, name, O_RDONLY | O_DIRECTORY, 0);
	return *ret < 0 ? err_set(e, *ret, "open '%s' in the pool: %m", name) : 0;
}

/* The file behind the loop device that carries the pool, for the free space below it. */
static void find_backing(const char *dir)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], where[PATH_MAX], source[256], path[128];

	while (f && fgets(line, sizeof(line), f)) {
		const char *tail = strstr(line, " - ");
		ssize_t n;

		if (!tail || sscanf(line, "%*s %*s %*s %*s %4095s", where) != 1 ||
		    !str_eq(where, dir) || sscanf(tail, " - %*s %255s", source) != 1 ||
		    !str_starts(source, "/dev/loop"))
			continue;
		snprintf(path, sizeof(path), "/sys/block/%.60s/loop/backing_file", source + 5);
		n = read_text_at(AT_FDCWD, path, pool.backing, sizeof(pool.backing));
		pool.backing[n > 0 ? strcspn(pool.backing, "\n") : 0] = '\0';
	}
}

int pool_open(const char *dir, enum pool_quota *ret_quota, struct err *e)
{
	struct statfs fs;
	int r;

	pool.top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pool.top < 0)
		return err_set(e, errno, "open pool '%s': %m", dir);
	if (fstatfs(pool.top, &fs) < 0 || fs.f_type != BTRFS_SUPER_MAGIC) {
		err_set(e, ENOTSUP, "pool '%s' is not a mounted btrfs", dir);
		return err_hint(e, "mount the pool first");
	}
	r = quota_mode(pool.top);
	if (r < 0)
		log_warn("quota mode of the pool: %s", strerror(-r));
	pool.quota = r < 0 ? QUOTA_NONE : (enum pool_quota)r;
	*ret_quota = pool.quota;
	r = make_dir("layers", &pool.layers, e);
	if (!r)
		r = make_dir("sandboxes", &pool.sandboxes, e);
	find_backing(dir);
	return r;
}

bool pool_has_quota(void)
{
	return pool.quota != QUOTA_NONE;
}

int pool_usage(struct keeper_pool_reply *ret, struct err *e)
{
	struct statfs fs;

	if (fstatfs(pool.top, &fs) < 0)
		return err_set(e, errno, "statfs of the pool: %m");
	*ret = (struct keeper_pool_reply){
		.total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize,
		.free = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize,
	};
	if (pool.backing[0] && !statfs(pool.backing, &fs)) {
		ret->host_total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
		ret->host_free = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	}
	return 0;
}

/* The number of a sandbox's group: 48 bits out of the 100 random ones of its id. */
static uint64_t group_of(const char *id)
{
	uint64_t n = 0;

	for (const char *p = id + 2; *p; p++)
		n = n * 33 + (uint64_t)(*p >= 'a' ? *p - 'a' : *p - '2' + 26);
	return QGROUP(1, n);
}

/* A snapshot of `from`, or an empty one where that is -1. */
static int make_subvolume(int from, int dir, const char *name, uint64_t group, struct err *e)
{
	struct btrfs_util_qgroup_inherit *inherit = NULL;
	enum btrfs_util_error u = BTRFS_UTIL_OK;

	if (group) {
		u = btrfs_util_create_qgroup_inherit(0, &inherit);
		if (!u)
			u = btrfs_util_qgroup_inherit_add_group(&inherit, group);
	}
	if (!u && from < 0)
		u = btrfs_util_create_subvolume_fd(dir, name, 0, NULL, inherit);
	else if (!u)
		u = btrfs_util_create_snapshot_fd2(from, dir, name, 0, NULL, inherit);
	if (inherit)
		btrfs_util_destroy_qgroup_inherit(inherit);
	return u ? err_set(e, errno, "make subvolume '%s': %m", name) : 0;
}

static int remove_subvolume(int dir, const char *name, struct err *e)
{
	if (btrfs_util_delete_subvolume_fd(dir, name, 0) && errno != ENOENT)
		return err_set(e, errno, "delete subvolume '%s': %m", name);
	return 0;
}

static void engine_name(const char *layer, char out[ENGINE_SIZE])
{
	snprintf(out, ENGINE_SIZE, "%s" ENGINE_SUFFIX, layer);
}

/* The layer's engine; -ENOENT where it has none. */
static int open_engine(const char *layer)
{
	char name[ENGINE_SIZE];

	engine_name(layer, name);
	return *layer ? open_beneath(pool.layers, name, O_RDONLY | O_DIRECTORY, 0) : -ENOENT;
}

/* Under classic quotas the disk is charged for all that the copy shares, and not before it is there:
 * it would be over its limit from the beginning. */
static int check_room(int from, uint64_t disk_bytes, struct err *e)
{
	uint64_t id, used;

	if (btrfs_util_subvolume_id_fd(from, &id))
		return err_set(e, errno, "look at the engine of the layer: %m");
	if (!disk_bytes || quota_group_used(pool.top, QGROUP(0, id), &used) || used < disk_bytes)
		return 0;
	return err_set(e, EDQUOT,
		       "what the image has for container engines takes %llu MiB, as much as the "
		       "disk or more: ask for a larger disk",
		       (unsigned long long)(used >> 20));
}

/* Under classic quotas a copy instead of a snapshot: one that comes into a group with content whose
 * other users are outside marks all groups of the pool inconsistent, and limits end until a rescan
 * of the whole pool. */
static int make_engine(int dir, const char *layer, uint64_t group, uint64_t disk_bytes,
		       struct err *e)
{
	_cleanup_close_ int from = open_engine(layer), to = -1;
	int r = 0;

	if (from < 0 && from != -ENOENT)
		return err_set(e, from, "open the engine of layer '%s': %m", layer);
	if (from >= 0 && pool.quota != QUOTA_CLASSIC)
		return make_subvolume(from, dir, "engine", group, e);
	if (from >= 0)
		r = check_room(from, disk_bytes, e);
	if (!r)
		r = make_subvolume(-1, dir, "engine", group, e);
	if (r)
		return r;
	to = open_beneath(dir, "engine", O_RDONLY | O_DIRECTORY, 0);
	if (to < 0)
		return err_set(e, to, "open 'engine': %m");
	return from < 0 ? engine_tree(to, e) : engine_copy(from, to, e);
}

static int make_root(int dir, uint64_t group, struct err *e)
{
	static const char *const paths[] = { "root/upper", "root/work" };
	int r = make_subvolume(-1, dir, "root", group, e);

	for (unsigned i = 0; !r && i < ARRAY_SIZE(paths); i++) {
		if (mkdirat(dir, paths[i], 0755) < 0 || fchmodat(dir, paths[i], 0755, 0) < 0)
			r = err_set(e, errno, "make '%s': %m", paths[i]);
	}
	return r;
}

int pool_sandbox_create(const char *id, const char *layer, uint64_t disk_bytes, struct err *e)
{
	uint64_t group = pool.quota ? group_of(id) : 0;
	_cleanup_close_ int dir = -1;
	int r = 0;

	if (mkdirat(pool.sandboxes, id, 0700) < 0)
		return err_set(e, errno, "make disk '%s': %m", id);
	dir = pool_sandbox_open(id, e);
	if (dir < 0)
		r = dir;
	if (!r && group && (r = quota_group_make(pool.top, group)))
		r = err_set(e, r, "make quota group of '%s': %m", id);
	if (!r)
		r = make_root(dir, group, e);
	if (!r)
		r = make_engine(dir, layer, group, disk_bytes, e);
	if (!r)
		r = pool_sandbox_limit(id, disk_bytes, e);
	if (r)
		pool_sandbox_destroy(id, NULL);
	return r;
}

int pool_sandbox_limit(const char *id, uint64_t disk_bytes, struct err *e)
{
	int r = pool.quota ? quota_group_limit(pool.top, group_of(id), disk_bytes) : 0;

	return r ? err_set(e, r, "limit the disk of '%s': %m", id) : 0;
}

int pool_sandbox_destroy(const char *id, struct err *e)
{
	_cleanup_close_ int dir = open_beneath(pool.sandboxes, id, O_RDONLY | O_DIRECTORY, 0);
	int r;

	if (dir == -ENOENT)
		return 0;
	if (dir < 0)
		return err_set(e, dir, "open disk '%s': %m", id);
	r = remove_subvolume(dir, "root", e);
	if (!r)
		r = remove_subvolume(dir, "engine", e);
	if (r)
		return r;
	if (unlinkat(pool.sandboxes, id, AT_REMOVEDIR) < 0)
		return err_set(e, errno, "remove disk '%s': %m", id);
	if (pool.quota) /* busy until the cleaner has freed the blocks: the janitor comes later */
		(void)quota_group_remove(pool.top, group_of(id));
	return 0;
}

int pool_sandbox_open(const char *id, struct err *e)
{
	int fd = open_beneath(pool.sandboxes, id, O_RDONLY | O_DIRECTORY, 0);

	return fd < 0 ? err_set(e, fd, "open disk '%s': %m", id) : fd;
}

int pool_sandbox_used(const char *id, uint64_t *ret_bytes)
{
	return pool.quota ? quota_group_used(pool.top, group_of(id), ret_bytes) : -ENOTSUP;
}

static void partial_name(const char *layer, char out[PARTIAL_SIZE])
{
	snprintf(out, PARTIAL_SIZE, "%s.new", layer);
}

int pool_layer_begin(const char *layer, struct err *e)
{
	char name[PARTIAL_SIZE];
	struct stat st;
	int r, fd;

	if (!fstatat(pool.layers, layer, &st, AT_SYMLINK_NOFOLLOW))
		return err_set(e, EEXIST, "layer '%s' exists", layer);
	partial_name(layer, name);
	r = make_subvolume(-1, pool.layers, name, 0, e);
	if (r)
		return r;
	fd = open_beneath(pool.layers, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0) {
		pool_layer_abort(layer);
		return err_set(e, fd, "open layer '%s': %m", layer);
	}
	if (fchmod(fd, 0755) < 0)
		log_warn("mode of layer '%s': %m", layer);
	return fd;
}

/* For most images there is none. */
static int commit_engine(const char *layer, int fd, struct err *e)
{
	_cleanup_close_ int to = -1;
	char name[ENGINE_SIZE];
	int r = engine_brings(fd, e);

	if (r <= 0)
		return r;
	engine_name(layer, name);
	r = make_subvolume(-1, pool.layers, name, 0, e);
	if (r)
		return r;
	to = open_beneath(pool.layers, name, O_RDONLY | O_DIRECTORY, 0);
	if (to < 0)
		return err_set(e, to, "open '%s': %m", name);
	r = engine_take(fd, to, e);
	if (!r && btrfs_util_set_subvolume_read_only_fd(to, true))
		r = err_set(e, errno, "make '%s' read-only: %m", name);
	return r;
}

int pool_layer_commit(const char *layer, struct err *e)
{
	char name[PARTIAL_SIZE];

	partial_name(layer, name);
	_cleanup_close_ int fd = open_beneath(pool.layers, name, O_RDONLY | O_DIRECTORY, 0);
	int r;

	if (fd < 0)
		return err_set(e, fd, "open layer '%s': %m", layer);
	r = commit_engine(layer, fd, e);
	if (r)
		return r;
	if (syncfs(fd) < 0)
		return err_set(e, errno, "sync layer '%s': %m", layer);
	if (renameat(pool.layers, name, pool.layers, layer) < 0)
		return err_set(e, errno, "name layer '%s': %m", layer);
	if (btrfs_util_set_subvolume_read_only_fd(fd, true))
		return err_set(e, errno, "make layer '%s' read-only: %m", layer);
	return pool_sync(e);
}

static int remove_engine(const char *layer, struct err *e)
{
	char name[ENGINE_SIZE];

	engine_name(layer, name);
	return remove_subvolume(pool.layers, name, e);
}

void pool_layer_abort(const char *layer)
{
	char name[PARTIAL_SIZE];

	partial_name(layer, name);
	if (!remove_engine(layer, NULL))
		(void)remove_subvolume(pool.layers, name, NULL);
}

int pool_layer_delete(const char *layer, struct err *e)
{
	int r = remove_engine(layer, e);

	if (r)
		return r;
	pool_layer_abort(layer);
	return remove_subvolume(pool.layers, layer, e);
}

int pool_layer_open(const char *layer, struct err *e)
{
	int fd = open_beneath(pool.layers, layer, O_RDONLY | O_DIRECTORY, 0);

	return fd < 0 ? err_set(e, fd, "open layer '%s': %m", layer) : fd;
}

static int list_dir(int dir, const char *kind, enum keeper_kind whole, int out, struct err *e)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r;

	if (!d) {
		r = err_set(e, errno, "list the pool: %m");
		close_p(&fd);
		return r;
	}
	while ((entry = readdir(d))) {
		struct keeper_object o = { .kind = whole };

		if (entry->d_name[0] == '.' || str_ends(entry->d_name, ENGINE_SUFFIX))
			continue;
		if (!id_valid(entry->d_name, kind))
			o.kind = KEEPER_KIND_PARTIAL;
		if (!str_copy(o.name, sizeof(o.name), entry->d_name))
			continue; /* not a name of ours */
		r = write_all(out, &o, sizeof(o));
		if (r)
			return err_set(e, r, "list the pool: %m");
	}
	return 0;
}

int pool_list(int fd, struct err *e)
{
	int r = list_dir(pool.layers, "ly", KEEPER_KIND_LAYER, fd, e);

	return r ? r : list_dir(pool.sandboxes, "sb", KEEPER_KIND_SANDBOX, fd, e);
}

int pool_sync(struct err *e)
{
	return syncfs(pool.top) < 0 ? err_set(e, errno, "sync the pool: %m") : 0;
}

struct stale {
	uint64_t groups[256];
	unsigned count;
	uint64_t live[65536];
	unsigned live_count;
};

static void note_stale(void *arg, uint64_t group, uint64_t used)
{
	struct stale *s = arg;

	(void)used;
	if (group >> 48 != 1 || s->count == ARRAY_SIZE(s->groups))
		return;
	for (unsigned i = 0; i < s->live_count; i++) {
		if (s->live[i] == group)
			return;
	}
	s->groups[s->count++] = group;
}

int pool_janitor(void)
{
	_cleanup_free_ struct stale *s = calloc(1, sizeof(*s));
	int fd = openat(pool.sandboxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int removed = 0;

	if (!d || !s || !pool.quota) {
		if (!d)
			close_p(&fd);
		return 0;
	}
	while ((entry = readdir(d)) && s->live_count < ARRAY_SIZE(s->live)) {
		if (id_valid(entry->d_name, "sb"))
			s->live[s->live_count++] = group_of(entry->d_name);
	}
	if (s->live_count == ARRAY_SIZE(s->live) || quota_each(pool.top, note_stale, s) < 0)
		return 0;
	for (unsigned i = 0; i < s->count; i++)
		removed += !quota_group_remove(pool.top, s->groups[i]);
	return removed;
}

int pool_reopen(const char *dir, struct err *e)
{
	_cleanup_close_ int top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int layers = -1, sandboxes = -1;

	if (top < 0)
		return err_set(e, errno, "open pool '%s': %m", dir);
	layers = open_beneath(top, "layers", O_RDONLY | O_DIRECTORY, 0);
	sandboxes = open_beneath(top, "sandboxes", O_RDONLY | O_DIRECTORY, 0);
	if (layers < 0 || sandboxes < 0)
		return err_set(e, ENOENT, "open the directories of pool '%s'", dir);
	pool.top = take_fd(&top);
	pool.layers = take_fd(&layers);
	pool.sandboxes = take_fd(&sandboxes);
	return 0;
}
