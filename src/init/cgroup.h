#pragma once
/*
 * Leaves of the work cgroup: one per command, so that its whole tree can be signalled, killed and
 * watched, whatever its processes did to their sessions and parents.
 *
 * The cgroup tree below the work cgroup belongs to the sandbox as much as to us: a leaf may be
 * gone, renamed or emptied by root inside. That costs the sandbox the accuracy of its own commands,
 * nothing else. Without a cgroup2 mount a command has no leaf, and its tree is what procs.h finds.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct leaf {
	int dir;    /* -1: none */
	int events; /* its cgroup.events, for epoll (EPOLLPRI); -1: none. Handed on by the owner */
	char name[24];
};

#define LEAF_NONE                                                                                  \
	{                                                                                          \
		.dir = -1, .events = -1                                                            \
	}

void cgroup_init(void);      /* looks which descriptors are there */
bool cgroup_available(void); /* leaves can be made */

int leaf_make(struct leaf *ret); /* 0 or a negative errno */
void leaf_close(struct leaf *l); /* the descriptors only */
int leaf_kill(const struct leaf *l);
/* Sends `sig` to every process below the leaf; calls `each` (may be NULL) with its pid. The count. */
int leaf_signal(const struct leaf *l, int sig, void (*each)(void *arg, pid_t pid), void *arg);
bool leaf_populated(const struct leaf *l); /* false also when it is gone */
/* Removes the leaf and the empty cgroups below it. 0 or a negative errno (-EBUSY: in use). */
int leaf_remove(const struct leaf *l);

/* How often the kernel killed a process of the sandbox for memory since it started; -1 when nobody
 * tells. All of the work cgroup is one count: leaves have no memory controller. */
int64_t cgroup_oom_kills(void);

/* Moves the calling process: onto the work groups of every hierarchy, and into the leaf unless
 * `in_leaf` (clone3 put it there). Called in the child. 0 or a negative errno. */
int cgroup_enter(const struct leaf *l, bool in_leaf);
