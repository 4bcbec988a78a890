#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "wire/keeper.h"

#include "cpuset.h"

enum {
	RESERVE_MEMORY = 16 * 1024 * 1024,
	RESERVE_PIDS = 32,
	CPU_PERIOD_US = 100000,
	DEPTH = 64, /* of groups: more than a sandbox can make */
};

/* lxcfs takes the group above one of this name for a machine's. */
#define CGROUP_AGENT "init.scope"

enum cgroup_value { VALUE_MEMORY, VALUE_PIDS, VALUE_CPU };

/* One controller on one screen: its files on v2 and on v1. */
static const struct controller {
	const char *name;
	enum keeper_limit limit;
	enum cgroup_value value;
	const char *v2_max, *v1_max;
	/* what the agent gets beside the workload, and where kills are counted; or NULL */
	const char *v2_weight, *v1_weight, *weight;
	const char *v2_kills, *v1_kills;
} controllers[] = {
	{ "memory", KEEPER_LIMIT_MEMORY, VALUE_MEMORY, "memory.max", "memory.limit_in_bytes",
	  .v2_kills = "memory.events", .v1_kills = "memory.oom_control" },
	{ "pids", KEEPER_LIMIT_PIDS, VALUE_PIDS, "pids.max", "pids.max" },
	{ "cpu", KEEPER_LIMIT_CPU, VALUE_CPU, "cpu.max", "cpu.cfs_quota_us",
	  .v2_weight = "cpu.weight", .v1_weight = "cpu.shares", .weight = "10000" },
};

/* The devices a sandbox may open, for the v1 controller: children inherit it from <instance>. */
static const char *const devices[] = {
	"c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm",   "c 1:8 rwm",    "c 1:9 rwm",
	"c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm", "c 10:229 rwm", "c 10:200 rwm",
	"c *:* m",   "b *:* m", /* making a node is harmless: opening it is what is refused */
};

static struct {
	int v2; /* <instance> directory, or -1 */
	int v1[CGROUP_V1_MAX];
	int v1_controller[CGROUP_V1_MAX]; /* index into controllers */
	unsigned v1_count;
	int devices; /* v1: `tasks` of <instance>, one list for all sandboxes; or -1 */
	bool on_v2[ARRAY_SIZE(controllers)];
	bool on_v1[ARRAY_SIZE(controllers)];
	char path[64]; /* "/<instance>" as /proc/<pid>/cgroup shows it */
} cg = { .v2 = -1, .devices = -1 };

static int make_dir(int parent, const char *name, struct err *e)
{
	int fd;

	if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "make cgroup '%s': %m", name);
	fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0);
	return fd < 0 ? err_set(e, fd, "open cgroup '%s': %m", name) : fd;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n) {
		if ((p == list || strchr(" ,\n", p[-1])) && (!p[n] || strchr(" ,\n", p[n])))
			return true;
	}
	return false;
}

/* Finds where a hierarchy is mounted: v2 for controller NULL. */
static int find_mount(const char *controller, char *out, size_t size)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];

	while (f && fgets(line, sizeof(line), f)) {
		char where[PATH_MAX], type[32], options[512];
		const char *tail = strstr(line, " - ");

		if (!tail || sscanf(line, "%*s %*s %*s %*s %4095s", where) != 1 ||
		    sscanf(tail, " - %31s %*s %511s", type, options) != 2)
			continue;
		if (controller ? str_eq(type, "cgroup") && has_word(options, controller)
			       : str_eq(type, "cgroup2"))
			return str_copy(out, size, where) ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
}

static int open_instance(const char *controller, const char *instance, struct err *e)
{
	_cleanup_close_ int top = -1;
	char where[PATH_MAX];

	if (find_mount(controller, where, sizeof(where)) < 0)
		return -ENOENT;
	top = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return err_set(e, errno, "open '%s': %m", where);
	if (!controller) {
		(void)write_text_at(top, "cgroup.subtree_control", "+cpuset");
		for (unsigned i = 0; i < ARRAY_SIZE(controllers); i++) {
			char text[32];

			snprintf(text, sizeof(text), "+%s", controllers[i].name);
			(void)write_text_at(top, "cgroup.subtree_control", text);
		}
	}
	return make_dir(top, instance, e);
}

static int setup_v2(const char *instance, struct err *e)
{
	char have[512] = "";

	cg.v2 = open_instance(NULL, instance, e);
	if (cg.v2 < 0)
		return err_set(e, ENOENT, "no cgroup v2 hierarchy is mounted");
	(void)read_text_at(cg.v2, "cgroup.controllers", have, sizeof(have));
	for (unsigned i = 0; i < ARRAY_SIZE(controllers); i++) {
		char text[32];

		snprintf(text, sizeof(text), "+%s", controllers[i].name);
		cg.on_v2[i] = has_word(have, controllers[i].name) &&
			      !write_text_at(cg.v2, "cgroup.subtree_control", text);
	}
	return 0;
}

static void add_v1(int controller, const char *name, const char *instance)
{
	struct err e = ERR_INIT;
	int fd = open_instance(name, instance, &e);

	if (fd < 0) {
		if (e.code)
			log_warn("cgroup v1 %s: %s", name, e.text);
		return;
	}
	cg.on_v1[controller] = true;
	cg.v1[cg.v1_count] = fd;
	cg.v1_controller[cg.v1_count++] = controller;
}

/* A process that writes "0" to `tasks` moves itself without the kernel's global lock, which costs
 * a grace period (milliseconds) after a quiet time; only v1 has that file. */
static int open_tasks(int dir)
{
	return openat(dir, "tasks", O_WRONLY | O_CLOEXEC);
}

/* A process is put there before it becomes PID 1, and what it starts stays there. */
static void limit_devices(const char *instance)
{
	struct err e = ERR_INIT;
	_cleanup_close_ int fd = open_instance("devices", instance, &e);
	char list[4096] = "";

	if (fd < 0) {
		log_warn("no device is refused by a cgroup: %s", e.code ? e.text : "no hierarchy");
		return;
	}
	/* groups below it keep their parent's list: it is set before there are any */
	if (read_text_at(fd, "devices.list", list, sizeof(list)) > 0 && str_starts(list, "a ")) {
		if (write_text_at(fd, "devices.deny", "a")) {
			log_warn("no device is refused by a cgroup: it has groups already");
			return;
		}
		for (unsigned i = 0; i < ARRAY_SIZE(devices); i++) {
			if (write_text_at(fd, "devices.allow", devices[i]))
				log_warn("devices cgroup: allow '%s': refused", devices[i]);
		}
	}
	cg.devices = open_tasks(fd);
}

/* Down to <instance>, whose groups are the sandboxes. */
static bool pass_cpuset(void)
{
	char have[512] = "";

	(void)read_text_at(cg.v2, "cgroup.controllers", have, sizeof(have));
	return has_word(have, "cpuset") &&
	       !write_text_at(cg.v2, "cgroup.subtree_control", "+cpuset");
}

int cgroup_init(const char *instance, uint32_t *ret_limits, bool *ret_v2, struct err *e)
{
	uint32_t limits = 0;
	int r = setup_v2(instance, e);

	if (r < 0)
		return r;
	snprintf(cg.path, sizeof(cg.path), "/%s", instance);
	*ret_v2 = true;
	for (unsigned i = 0; i < ARRAY_SIZE(controllers); i++) {
		if (!cg.on_v2[i])
			add_v1((int)i, controllers[i].name, instance);
		if (cg.on_v2[i] || cg.on_v1[i])
			limits |= controllers[i].limit;
		*ret_v2 = *ret_v2 && cg.on_v2[i];
	}
	if (!*ret_v2)
		limit_devices(instance);
	cpuset_init(cg.v2, pass_cpuset(), *ret_v2 ? -1 : open_instance("cpuset", instance, e));
	*ret_limits = limits;
	return 0;
}

void cgroup_fds_close(struct cgroup_fds *fds)
{
	close_p(&fds->agent);
	close_p(&fds->work);
	close_p(&fds->work_procs);
	close_p(&fds->work_oom);
	for (unsigned i = 0; i < fds->v1_count; i++) {
		close_p(&fds->agent_v1[i]);
		close_p(&fds->work_v1[i]);
	}
	fds->v1_count = 0;
}

static int enter(const int *fds, unsigned count, struct err *e)
{
	for (unsigned i = 0; i < count; i++) {
		int r = write_all(fds[i], "0", 1);

		if (r)
			return err_set(e, r, "enter a cgroup: %m");
	}
	return 0;
}

int cgroup_enter_work(const struct cgroup_fds *fds, struct err *e)
{
	int r = cg.devices < 0 ? 0 : enter(&cg.devices, 1, e);

	return r ? r : enter(fds->work_v1, fds->v1_count, e);
}

int cgroup_enter_agent(const struct cgroup_fds *fds, struct err *e)
{
	return enter(fds->agent_v1, fds->v1_count, e);
}

static void value_text(enum cgroup_value v, bool v2, const struct cgroup_limits *l, bool reserve,
		       char *out, size_t size)
{
	uint64_t quota_us = (uint64_t)l->cpu_milli * CPU_PERIOD_US / 1000;

	switch (v) {
	case VALUE_MEMORY:
		snprintf(out, size, "%llu",
			 (unsigned long long)l->memory_bytes + (reserve ? RESERVE_MEMORY : 0));
		break;
	case VALUE_PIDS:
		snprintf(out, size, "%u", l->pids + (reserve ? RESERVE_PIDS : 0));
		break;
	case VALUE_CPU:
		if (v2)
			snprintf(out, size, "%llu %d", (unsigned long long)quota_us, CPU_PERIOD_US);
		else
			snprintf(out, size, "%llu", (unsigned long long)quota_us);
		break;
	}
}

/* Writes one limit and reads it back: the kernel rounds memory to pages and can refuse silently. */
static bool apply(int dir, unsigned c, bool v2, const struct cgroup_limits *l, bool reserve)
{
	const char *file = v2 ? controllers[c].v2_max : controllers[c].v1_max;
	char want[64], have[64];
	ssize_t n;

	value_text(controllers[c].value, v2, l, reserve, want, sizeof(want));
	if (write_text_at(dir, file, want))
		return false;
	n = read_text_at(dir, file, have, sizeof(have));
	if (n <= 0)
		return false;
	have[strcspn(have, "\n")] = '\0';
	if (controllers[c].value == VALUE_MEMORY) {
		uint64_t a, b;

		return !str_u64(want, 0, UINT64_MAX, &a) && !str_u64(have, 0, UINT64_MAX, &b) &&
		       b <= a && a - b < 65536;
	}
	return str_eq(want, have);
}

/* In both levels; on v1 a group's share of cpu cannot exceed its parent's, so the order depends on
 * whether it grows. */
static bool apply_levels(int dir, int work, unsigned c, bool v2, const struct cgroup_limits *l)
{
	if (apply(dir, c, v2, l, true))
		return apply(work, c, v2, l, false);
	return apply(work, c, v2, l, false) && apply(dir, c, v2, l, true);
}

/* A courtesy: without it the agent shares alike with what it starts. */
static void prefer_agent(const struct controller *c, bool v2, int agent)
{
	const char *file = v2 ? c->v2_weight : c->v1_weight;

	if (file)
		(void)write_text_at(agent, file, c->weight);
}

static void open_kills(const struct controller *c, bool v2, int work, int *ret)
{
	const char *file = v2 ? c->v2_kills : c->v1_kills;

	if (file)
		*ret = openat(work, file, O_RDONLY | O_CLOEXEC);
}

/* The two limited levels of one sandbox in one hierarchy; `c` < 0: no limit. */
static int make_levels(int top, const char *id, int c, bool v2, const struct cgroup_limits *l,
		       int *ret_agent, int *ret_work, int *ret_oom, uint32_t *enforced,
		       struct err *e)
{
	_cleanup_close_ int dir = make_dir(top, id, e);
	_cleanup_close_ int agent = -1, work = -1;

	if (dir < 0)
		return dir;
	if (v2) {
		for (unsigned i = 0; i < ARRAY_SIZE(controllers); i++) {
			char text[32];

			snprintf(text, sizeof(text), "+%s", controllers[i].name);
			if (cg.on_v2[i])
				(void)write_text_at(dir, "cgroup.subtree_control", text);
		}
	}
	agent = make_dir(dir, CGROUP_AGENT, e);
	if (agent < 0)
		return agent;
	work = make_dir(dir, "work", e);
	if (work < 0)
		return work;
	for (int i = v2 ? 0 : c; i >= 0 && i < (v2 ? (int)ARRAY_SIZE(controllers) : c + 1); i++) {
		if (v2 && !cg.on_v2[i])
			continue;
		if (apply_levels(dir, work, (unsigned)i, v2, l))
			*enforced |= controllers[i].limit;
		prefer_agent(&controllers[i], v2, agent);
		open_kills(&controllers[i], v2, work, ret_oom);
	}
	*ret_agent = take_fd(&agent);
	*ret_work = take_fd(&work);
	return 0;
}

/* Kernel memory of groups is not charged to the sandbox that makes them: their number is bounded. */
static int bound_groups(const char *id, int work, struct err *e)
{
	int r = write_text_at(work, "cgroup.max.descendants", "1024");

	if (!r)
		r = write_text_at(work, "cgroup.max.depth", "16");
	return r ? err_set(e, r, "bound the cgroups of '%s': %m", id) : 0;
}

/* The sandbox's root moves processes within work and below. From agent into work only PID 1 does,
 * by a group of the host that nobody inside can take: else root inside could move PID 1. */
static int delegate(const char *id, int work, uint32_t root_id, gid_t key, struct err *e)
{
	static const char *const files[] = { "cgroup.procs", "cgroup.threads",
					     "cgroup.subtree_control" };
	static const char *const keyed[] = { "cgroup.procs", CGROUP_AGENT "/cgroup.procs" };
	_cleanup_close_ int dir = open_beneath(cg.v2, id, O_RDONLY | O_DIRECTORY, 0);

	if (dir < 0 || fchown(work, root_id, root_id) < 0)
		return err_set(e, errno, "hand cgroup of '%s' over: %m", id);
	for (unsigned i = 0; i < ARRAY_SIZE(keyed); i++) {
		if (fchownat(dir, keyed[i], 0, key, 0) < 0 || fchmodat(dir, keyed[i], 0664, 0) < 0)
			return err_set(e, errno, "hand cgroup of '%s' over: %m", id);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		if (fchownat(work, files[i], root_id, root_id, 0) < 0)
			return err_set(e, errno, "hand cgroup of '%s' over: %m", id);
	}
	return bound_groups(id, work, e);
}

int cgroup_make(const char *id, uint32_t root_id, gid_t key, const struct cgroup_limits *l,
		struct cgroup_fds *ret, struct err *e)
{
	uint32_t enforced = 0;
	int r;

	*ret = (struct cgroup_fds){ .agent = -1, .work = -1, .work_procs = -1, .work_oom = -1 };
	r = make_levels(cg.v2, id, -1, true, l, &ret->agent, &ret->work, &ret->work_oom, &enforced,
			e);
	if (!r)
		r = delegate(id, ret->work, root_id, key, e);
	for (unsigned i = 0; !r && i < cg.v1_count; i++) {
		_cleanup_close_ int agent = -1, work = -1;

		r = make_levels(cg.v1[i], id, cg.v1_controller[i], false, l, &agent, &work,
				&ret->work_oom, &enforced, e);
		if (r)
			break;
		ret->agent_v1[i] = open_tasks(agent);
		ret->work_v1[i] = open_tasks(work);
		ret->v1_count = i + 1;
		if (ret->agent_v1[i] < 0 || ret->work_v1[i] < 0)
			r = err_set(e, errno, "open cgroup of '%s': %m", id);
	}
	if (!r && (ret->work_procs = openat(ret->work, "cgroup.procs", O_WRONLY | O_CLOEXEC)) < 0)
		r = err_set(e, errno, "open cgroup of '%s': %m", id);
	if (r) {
		cgroup_fds_close(ret);
		return r;
	}
	return (int)enforced;
}

/* -- other limits ------------------------------------------------------------------------------- */

static int v1_of(const char *name)
{
	for (unsigned i = 0; i < cg.v1_count; i++) {
		if (cg.v1_controller[i] >= 0 && str_eq(controllers[cg.v1_controller[i]].name, name))
			return cg.v1[i];
	}
	return -1;
}

/* What can be reclaimed goes; a limit below what cannot would make the kernel kill. */
static bool memory_fits_v2(int work, uint64_t bytes)
{
	char text[32];
	uint64_t used;
	bool fits;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	fits = !write_text_at(work, "memory.high", text) &&
	       read_text_at(work, "memory.current", text, sizeof(text)) > 0;
	text[strcspn(text, "\n")] = '\0';
	fits = fits && !str_u64(text, 0, UINT64_MAX, &used) && used <= bytes;
	(void)write_text_at(work, "memory.high", "max");
	return fits;
}

static int set_limit(int top, const char *id, unsigned c, bool v2, const struct cgroup_limits *l,
		     struct err *e)
{
	const char *file = v2 ? controllers[c].v2_max : controllers[c].v1_max;
	_cleanup_close_ int dir = open_beneath(top, id, O_RDONLY | O_DIRECTORY, 0);
	_cleanup_close_ int work =
		dir < 0 ? -1 : open_beneath(dir, "work", O_RDONLY | O_DIRECTORY, 0);
	bool memory = controllers[c].value == VALUE_MEMORY;
	char old_dir[64], old_work[64];

	if (work < 0 || read_text_at(dir, file, old_dir, sizeof(old_dir)) <= 0 ||
	    read_text_at(work, file, old_work, sizeof(old_work)) <= 0)
		return err_set(e, EIO, "read the limit of %s of '%s'", controllers[c].name, id);
	if ((!memory || !v2 || memory_fits_v2(work, l->memory_bytes)) &&
	    apply_levels(dir, work, c, v2, l))
		return 0;
	for (int i = 0; i < 2; i++) { /* whichever of them must go first */
		(void)write_text_at(dir, file, old_dir);
		(void)write_text_at(work, file, old_work);
	}
	if (memory)
		return err_reason(e, EBUSY, "memory_in_use",
				  "more than %llu MiB of memory are in use",
				  (unsigned long long)(l->memory_bytes >> 20));
	return err_set(e, EIO, "set the limit of %s of '%s'", controllers[c].name, id);
}

int cgroup_limit(const char *id, const struct cgroup_limits *l, struct err *e)
{
	uint32_t enforced = 0;
	int r = 0;

	/* memory is the first controller, and the one that may be refused */
	for (unsigned i = 0; !r && i < ARRAY_SIZE(controllers); i++) {
		int top = cg.on_v2[i] ? cg.v2 : cg.on_v1[i] ? v1_of(controllers[i].name) : -1;

		if (top < 0)
			continue;
		r = set_limit(top, id, i, cg.on_v2[i], l, e);
		enforced |= controllers[i].limit;
	}
	return r < 0 ? r : (int)enforced;
}

static void threads_below(int parent, const char *name, unsigned depth,
			  void (*each)(void *arg, int tid), void *arg)
{
	int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0), list, tid;
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_fclose_ FILE *f = NULL;
	struct dirent *entry;

	if (fd < 0)
		return;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return;
	}
	list = open_beneath(fd, "cgroup.threads", O_RDONLY, 0);
	f = list < 0 ? NULL : fdopen(list, "r");
	while (f && fscanf(f, "%d", &tid) == 1)
		each(arg, tid);
	while (depth && (entry = readdir(d))) {
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			threads_below(fd, entry->d_name, depth - 1, each, arg);
	}
}

void cgroup_threads(const char *id, void (*each)(void *arg, int tid), void *arg)
{
	threads_below(cg.v2, id, DEPTH, each, arg);
}

/* -- the end ------------------------------------------------------------------------------------- */

int cgroup_kill(const char *id, struct err *e)
{
	_cleanup_close_ int dir = open_beneath(cg.v2, id, O_RDONLY | O_DIRECTORY, 0);
	int r;

	if (dir == -ENOENT)
		return 0;
	r = dir < 0 ? dir : write_text_at(dir, "cgroup.kill", "1");
	return r ? err_set(e, r, "kill cgroup '%s': %m", id) : 0;
}

/* Depth first; what a sandbox made below is directories only. */
static int remove_tree(int parent, const char *name, unsigned depth)
{
	int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0);
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *entry;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while (depth && (entry = readdir(d))) {
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			(void)remove_tree(dirfd(d), entry->d_name, depth - 1);
	}
	return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int cgroup_remove(const char *id, struct err *e)
{
	int worst = remove_tree(cg.v2, id, DEPTH);

	for (unsigned i = 0; i < cg.v1_count; i++) {
		int r = remove_tree(cg.v1[i], id, DEPTH);

		worst = worst ? worst : r;
	}
	worst = worst ? worst : cpuset_remove(id);
	return worst ? err_set(e, worst, "remove cgroup '%s': %m", id) : 0;
}

bool cgroup_holds(const char *id, int pid)
{
	char path[64], want[128], text[8192];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	snprintf(want, sizeof(want), "%s/%s/" CGROUP_AGENT, cg.path, id);
	return read_text_at(AT_FDCWD, path, text, sizeof(text)) > 0 && strstr(text, want);
}

static uint64_t read_number(int dir, const char *id, const char *file)
{
	char path[128], text[64];
	uint64_t v;

	snprintf(path, sizeof(path), "%s/%s", id, file);
	if (dir < 0 || read_text_at(dir, path, text, sizeof(text)) <= 0)
		return 0;
	text[strcspn(text, "\n")] = '\0';
	return str_u64(text, 0, UINT64_MAX, &v) ? 0 : v;
}

/* "key value" lines, as in cpu.stat and memory.events */
static uint64_t read_keyed(int dir, const char *id, const char *file, const char *key)
{
	char path[128], text[4096], line[64];
	const char *p;
	uint64_t v;

	snprintf(path, sizeof(path), "%s/%s", id, file);
	if (dir < 0 || read_text_at(dir, path, text, sizeof(text)) <= 0)
		return 0;
	for (p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
		size_t n = strlen(key);

		if (strncmp(p, key, n) || p[n] != ' ')
			continue;
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(p + n + 1, "\n"), p + n + 1);
		return str_u64(line, 0, UINT64_MAX, &v) ? 0 : v;
	}
	return 0;
}

void cgroup_stats(const char *id, struct cgroup_stats *ret)
{
	*ret = (struct cgroup_stats){ 0 };
	/* cpu.stat of v2 has usage_usec even where the controller is on v1 */
	ret->cpu_ns = read_keyed(cg.v2, id, "cpu.stat", "usage_usec") * 1000;
	if (cg.on_v2[0]) {
		ret->memory_bytes = read_number(cg.v2, id, "memory.current");
		ret->oom_kills = read_keyed(cg.v2, id, "memory.events", "oom_kill");
	} else {
		ret->memory_bytes = read_number(v1_of("memory"), id, "memory.usage_in_bytes");
		ret->oom_kills =
			read_keyed(v1_of("memory"), id, "work/memory.oom_control", "oom_kill");
	}
	ret->pids = read_number(cg.on_v2[1] ? cg.v2 : v1_of("pids"), id, "pids.current");
}
