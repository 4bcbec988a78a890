#pragma once
/*
 * The cgroups of sandboxes, on v2 and on hybrid hosts behind one table.
 *
 *   <instance>/<id>        the limits and a reserve; holds no process
 *   <instance>/<id>/init.scope  PID 1 (the agent)
 *   <instance>/<id>/work   the stated limits; everything the sandbox runs, root of its cgroup view
 *
 * The v2 hierarchy has all three levels everywhere (it kills and freezes); a controller's limits
 * are set there where v2 has it, else in the v1 hierarchy that has. Called from the dispatcher and
 * its workers; kernel files only, nothing here waits on a disk.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { CGROUP_V1_MAX = 6 };

struct cgroup_limits {
	uint32_t cpu_milli, pids;
	uint64_t memory_bytes;
};

/* What a sandbox's processes need of its cgroups, as descriptors. */
struct cgroup_fds {
	int agent;      /* v2 directory: PID 1 is born there */
	int work;       /* v2 directory: the launcher is born there */
	int work_procs; /* write-only cgroup.procs of work */
	int work_oom; /* read-only: a file whose line "oom_kill N" counts kills in work; -1 = none */
	/* write-only, for a process that moves itself by writing "0"; -1 = none */
	int agent_v1[CGROUP_V1_MAX], work_v1[CGROUP_V1_MAX];
	unsigned v1_count;
};

/* Finds the hierarchies, makes <instance> in each and lets it pass controllers on. `ret_limits`:
 * bits of enum keeper_limit that can be enforced. */
int cgroup_init(const char *instance, uint32_t *ret_limits, bool *ret_v2, struct err *e);

/* Makes the groups of `id` with their limits, lets `root_id` (host id of the sandbox's root) move
 * its own processes inside, and members of the host's group `key` put processes there. Returns the bits of enum keeper_limit in force, read back. */
int cgroup_make(const char *id, uint32_t root_id, gid_t key, const struct cgroup_limits *l,
		struct cgroup_fds *ret, struct err *e);
void cgroup_fds_close(struct cgroup_fds *fds);
/* Other limits for groups that are there. Returns the bits in force; -EBUSY (reason memory_in_use)
 * where more memory is in use that cannot be reclaimed; then, and after any other failure, they are
 * as they were. */
int cgroup_limit(const char *id, const struct cgroup_limits *l, struct err *e);
/* Calls `each` for every thread of the sandbox. */
void cgroup_threads(const char *id, void (*each)(void *arg, int tid), void *arg);
/* Moves the calling process into the work, or the agent's, groups of the v1 hierarchies. */
int cgroup_enter_work(const struct cgroup_fds *fds, struct err *e);
int cgroup_enter_agent(const struct cgroup_fds *fds, struct err *e);

/* Kills every process of the sandbox (v2 cgroup.kill). Unknown ids are no error. */
int cgroup_kill(const char *id, struct err *e);

/* Removes the groups with all that was made below; -EBUSY while a process is left. */
int cgroup_remove(const char *id, struct err *e);

/* True when `pid` lives below the sandbox's groups (adoption). */
bool cgroup_holds(const char *id, int pid);

struct cgroup_stats {
	uint64_t cpu_ns, memory_bytes, pids, oom_kills;
};
void cgroup_stats(const char *id, struct cgroup_stats *ret);
