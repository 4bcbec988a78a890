#include "cpuset.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

enum { LIST_MAX = 4096 };

static int v1_dir = -1, v2_dir = -1;

/* A group of v1 begins without processors and without memory: ours has all, and what is made in it
 * is a copy of it. */
static bool fill(int dir)
{
	static const char *const files[] = { "cpuset.mems", "cpuset.cpus" };
	char text[LIST_MAX], from[64];

	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_close_ int up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		snprintf(from, sizeof(from), "%s", files[i]);
		if (read_text_at(up, from, text, sizeof(text)) <= 0)
			return false;
		text[strcspn(text, "\n")] = '\0';
		if (write_text_at(dir, files[i], text))
			return false;
	}
	return !write_text_at(dir, "cgroup.clone_children", "1");
}

void cpuset_init(int v2, bool on_v2, int v1)
{
	if (on_v2)
		v2_dir = v2;
	else if (v1 >= 0 && fill(v1))
		v1_dir = v1;
	else
		log_notice("no cpuset controller: processors are given by affinity");
}

bool cpuset_available(void)
{
	return v1_dir >= 0 || v2_dir >= 0;
}

/* False where it is all of ours. */
static bool pick(uint32_t cpu_milli, uint32_t slot, cpu_set_t *ret)
{
	unsigned want = (cpu_milli + 999) / 1000, have, first, n = 0;
	cpu_set_t ours;

	CPU_ZERO(ret);
	if (sched_getaffinity(0, sizeof(ours), &ours) < 0 || !want)
		return false;
	have = (unsigned)CPU_COUNT(&ours);
	first = slot % have;
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &ours) && (n++ + have - first) % have < want)
			CPU_SET(cpu, ret);
	}
	return want < have;
}

void cpuset_affinity(int tid, uint32_t cpu_milli, uint32_t slot)
{
	cpu_set_t its;

	(void)pick(cpu_milli, slot, &its);
	if (CPU_COUNT(&its))
		(void)sched_setaffinity(tid, sizeof(its), &its);
}

int cpuset_set(const char *id, uint32_t cpu_milli, uint32_t slot, struct err *e)
{
	_cleanup_(buf_release)
	struct buf list = BUF_INIT(LIST_MAX);
	const int top = v1_dir >= 0 ? v1_dir : v2_dir;
	char path[ID_SIZE + sizeof("/cpuset.cpus")];
	bool some, made = mkdirat(top, id, 0755) == 0;
	cpu_set_t its;
	int r;

	if (!made && errno != EEXIST)
		return err_set(e, errno, "make the cpuset of '%s': %m", id);
	some = pick(cpu_milli, slot, &its);
	if (made && !some)
		return 0; /* it begins with all */
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &its))
			buf_addf(&list, "%s%u", list.len ? "," : "", cpu);
	}
	snprintf(path, sizeof(path), "%s/cpuset.cpus", id);
	r = list.failed ? list.failed : write_text_at(top, path, buf_str(&list));
	return r ? err_set(e, r, "set the processors of '%s': %m", id) : 0;
}

int cpuset_enter(const char *id, struct err *e)
{
	char path[ID_SIZE + sizeof("/tasks")];
	int r;

	if (v1_dir < 0)
		return 0; /* on v2 it is born in it */
	snprintf(path, sizeof(path), "%s/tasks", id);
	r = write_text_at(v1_dir, path, "0");
	return r ? err_set(e, r, "enter the cpuset of '%s': %m", id) : 0;
}

int cpuset_remove(const char *id)
{
	return v1_dir >= 0 && unlinkat(v1_dir, id, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno
											: 0;
}
