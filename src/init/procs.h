#pragma once
/*
 * The processes of the sandbox as /proc shows them, through a private mount of it that nobody else
 * in the sandbox can cover or unmount.
 */
#include <stdbool.h>
#include <sys/types.h>

struct proc {
	pid_t pid, parent, group, session;
};

void procs_init(void);
int procs_dir(void); /* -1 when there is no /proc */

/* Every process but PID 1 and zombies. `*ret` is the caller's to free. The count, or a negative
 * errno. */
ssize_t procs_list(struct proc **ret);

/* For commands without a leaf: what descends from `pid` or is of its session or group. A process
 * that was orphaned in a session of its own is not found. The count of those sent `sig` (0: only
 * counted). */
int procs_signal_tree(pid_t pid, int sig);
