#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "mounts.h"

enum { KEPT_MAX = 32 };

/* Mounts taken along where they exist. /proc and /sys come whole and without what lies on them, so
 * that the kernel lets sandboxes mount their own. */
static const struct kept_mount {
	const char *path;
	bool recursive;
} fixed[] = {
	{ "/usr", false }, /* nft and its libraries, where /usr is its own file system */
	{ "/etc", false }, { "/var", false },          { "/dev", false }, { "/proc", false },
	{ "/sys", false }, { "/sys/fs/cgroup", true }, { "/run", false },
};

struct kept {
	char path[PATH_MAX];
	int mount;
};

static bool is_mount_point(const char *path)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], where[PATH_MAX];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %*s %*s %*s %4095s", where) == 1 && str_eq(where, path))
			return true;
	}
	return false;
}

static int keep(struct kept *k, const char *path, bool recursive, struct err *e)
{
	str_copy(k->path, sizeof(k->path), path);
	k->mount = mount_clone(AT_FDCWD, path, recursive);
	return k->mount < 0 ? err_set(e, k->mount, "clone the mount of '%s': %m", path) : 0;
}

static int collect(const struct conf *c, struct kept kept[KEPT_MAX], unsigned *ret_count,
		   struct err *e)
{
	const char *const own[] = { c->run_dir, c->pool_dir };
	unsigned n = 0;
	int r = 0;

	for (unsigned i = 0; !r && i < ARRAY_SIZE(fixed); i++) {
		if (is_mount_point(fixed[i].path))
			r = keep(&kept[n++], fixed[i].path, fixed[i].recursive, e);
	}
	for (unsigned i = 0; !r && i < ARRAY_SIZE(own); i++)
		r = keep(&kept[n++], own[i], false, e);
	*ret_count = n;
	return r;
}

static int put_back(struct kept *kept, unsigned count, struct err *e)
{
	for (unsigned i = 0; i < count; i++) {
		int r = mount_attach(kept[i].mount, AT_FDCWD, kept[i].path);

		if (r)
			return err_set(e, r, "attach '%s': %m", kept[i].path);
	}
	return 0;
}

int root_init(const struct conf *c, struct err *e)
{
	static struct kept kept[KEPT_MAX];
	_cleanup_close_ int base = -1;
	unsigned count = 0;
	int r;

	if (unshare(CLONE_NEWNS) < 0)
		return err_set(e, errno, "make mount namespace: %m");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_set(e, errno, "make mounts private: %m");
	r = collect(c, kept, &count, e);
	base = r ? -1 : mount_clone(AT_FDCWD, "/", false);
	if (!r && base < 0)
		r = err_set(e, base, "clone the root mount: %m");
	/* the clone lands on top of '/', and becomes the root */
	if (!r && (r = mount_attach(base, AT_FDCWD, "/")))
		err_set(e, r, "attach the root: %m");
	if (!r && fchdir(base) < 0)
		r = err_set(e, errno, "enter the root: %m");
	if (!r && syscall(SYS_pivot_root, ".", ".") < 0)
		r = err_set(e, errno, "pivot_root: %m");
	if (!r && (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0))
		r = err_set(e, errno, "let the old root go: %m");
	if (!r)
		r = put_back(kept, count, e);
	for (unsigned i = 0; i < count; i++)
		close_p(&kept[i].mount);
	return r;
}
