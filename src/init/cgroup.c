#include "init/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "init/init_fds.h"

enum { DEPTH_MAX = 16, NAME_TRIES = 1000 };

static bool have[INIT_FD_END];
static uint64_t next_leaf;

void cgroup_init(void)
{
	/* by what they are: a stray descriptor of the caller's is not taken for a cgroup's */
	for (int fd = INIT_FD_CGROUP; fd < INIT_FD_END; fd++) {
		long type = fd == INIT_FD_CGNS      ? NSFS_MAGIC
			    : fd < INIT_FD_V1_FIRST ? CGROUP2_SUPER_MAGIC
						    : CGROUP_SUPER_MAGIC;
		struct statfs fs;

		if (fstatfs(fd, &fs) < 0)
			continue;
		have[fd] = fs.f_type == type ||
			   (fd == INIT_FD_OOM && fs.f_type == CGROUP2_SUPER_MAGIC);
	}
}

bool cgroup_available(void)
{
	return have[INIT_FD_CGROUP];
}

int leaf_make(struct leaf *ret)
{
	_cleanup_close_ int dir = -1;
	struct leaf l = LEAF_NONE;
	int r = 0;

	/* names may be taken: by what an earlier command left, or by root inside */
	for (int i = 0; i < NAME_TRIES; i++) {
		snprintf(l.name, sizeof(l.name), "c-%llu", (unsigned long long)++next_leaf);
		r = mkdirat(INIT_FD_CGROUP, l.name, 0755) < 0 ? -errno : 0;
		if (r != -EEXIST)
			break;
	}
	if (r < 0)
		return r;
	dir = open_beneath(INIT_FD_CGROUP, l.name, O_RDONLY | O_DIRECTORY, 0);
	if (dir >= 0)
		l.events = open_beneath(dir, "cgroup.events", O_RDONLY, 0);
	if (dir < 0 || l.events < 0) {
		r = dir < 0 ? dir : l.events;
		unlinkat(INIT_FD_CGROUP, l.name, AT_REMOVEDIR);
		return r;
	}
	l.dir = take_fd(&dir);
	*ret = l;
	return 0;
}

void leaf_close(struct leaf *l)
{
	close_p(&l->dir);
	close_p(&l->events);
}

int leaf_kill(const struct leaf *l)
{
	return write_text_at(l->dir, "cgroup.kill", "1");
}

static int signal_one(int dir, int sig, void (*each)(void *arg, pid_t pid), void *arg)
{
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_close_ int fd = open_beneath(dir, "cgroup.procs", O_RDONLY, 0);
	int count = 0, pid;

	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f)
		return 0;
	take_fd(&fd);
	/* 0 stands for a process of another pid namespace, and would mean our own group */
	while (fscanf(f, "%d", &pid) == 1) {
		if (pid <= 1 || (sig && kill(pid, sig) < 0))
			continue;
		if (each)
			each(arg, pid);
		count++;
	}
	return count;
}

/* Calls `visit` for every cgroup below `dir`, the deepest first. */
static void walk(int dir, unsigned depth,
		 void (*visit)(int parent, const char *name, int dir, void *arg), void *arg)
{
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_close_ int fd = open_beneath(dir, ".", O_RDONLY | O_DIRECTORY, 0);
	struct dirent *ent;

	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return;
	take_fd(&fd);
	while ((ent = readdir(d))) {
		_cleanup_close_ int sub = -1;

		if (ent->d_type != DT_DIR || ent->d_name[0] == '.')
			continue;
		sub = open_beneath(dir, ent->d_name, O_RDONLY | O_DIRECTORY, 0);
		if (sub < 0)
			continue;
		if (depth < DEPTH_MAX)
			walk(sub, depth + 1, visit, arg);
		visit(dir, ent->d_name, sub, arg);
	}
}

struct signal_walk {
	int sig, count;
	void (*each)(void *arg, pid_t pid);
	void *arg;
};

static void signal_visit(int parent, const char *name, int dir, void *arg)
{
	struct signal_walk *s = arg;

	(void)parent;
	(void)name;
	s->count += signal_one(dir, s->sig, s->each, s->arg);
}

int leaf_signal(const struct leaf *l, int sig, void (*each)(void *arg, pid_t pid), void *arg)
{
	struct signal_walk s = { .sig = sig, .each = each, .arg = arg };

	walk(l->dir, 0, signal_visit, &s);
	return s.count + signal_one(l->dir, sig, each, arg);
}

bool leaf_populated(const struct leaf *l)
{
	char text[256];
	ssize_t n;

	/* a cgroup that was removed answers ENODEV */
	n = l->dir < 0 ? -1 : read_text_at(l->dir, "cgroup.events", text, sizeof(text));
	return n > 0 && strstr(text, "populated 1");
}

static void remove_visit(int parent, const char *name, int dir, void *arg)
{
	(void)dir;
	(void)arg;
	unlinkat(parent, name, AT_REMOVEDIR);
}

int leaf_remove(const struct leaf *l)
{
	struct stat ours, there;

	/* the name may be another's by now: only the directory we made is removed */
	if (fstat(l->dir, &ours) < 0)
		return -errno;
	if (fstatat(INIT_FD_CGROUP, l->name, &there, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (ours.st_ino != there.st_ino)
		return 0;
	if (unlinkat(INIT_FD_CGROUP, l->name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	walk(l->dir, 0, remove_visit, NULL);
	return unlinkat(INIT_FD_CGROUP, l->name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int64_t cgroup_oom_kills(void)
{
	static const char key[] = "\noom_kill ";
	char text[1024] = "\n";
	unsigned long long v;
	const char *p;
	ssize_t n = -1;

	if (have[INIT_FD_OOM])
		n = pread(INIT_FD_OOM, text + 1, sizeof(text) - 2, 0);
	if (n < 0)
		return -1;
	text[1 + n] = '\0';
	p = strstr(text, key);
	return p && sscanf(p + strlen(key), "%llu", &v) == 1 && v <= INT64_MAX ? (int64_t)v : -1;
}

int cgroup_enter(const struct leaf *l, bool in_leaf)
{
	for (int fd = INIT_FD_V1_FIRST; fd <= INIT_FD_V1_LAST; fd++) {
		if (have[fd] && write(fd, "0", 1) < 0)
			return -errno;
	}
	if (!in_leaf && have[INIT_FD_PROCS] && write(INIT_FD_PROCS, "0", 1) < 0)
		return -errno;
	if (!in_leaf && l->dir >= 0) {
		int r = write_text_at(l->dir, "cgroup.procs", "0");

		if (r < 0)
			return r;
	}
	if (have[INIT_FD_CGNS] && setns(INIT_FD_CGNS, CLONE_NEWCGROUP) < 0)
		return -errno;
	return 0;
}
