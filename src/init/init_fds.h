#pragma once
/*
 * The descriptors skerry-init is started with. The keeper puts them in place before the exec and
 * closes everything else; skerry-init looks which of the optional ones are there. Nothing else is
 * agreed between the two but the argument "run" (or "unpack") and an empty environment.
 *
 * None of them reaches a command: a command's process has 0, 1 and 2 only.
 */

enum {
	INIT_FD_NULL = 0, /* /dev/null */
	INIT_FD_OUT = 1,  /* the host's log of this sandbox */
	INIT_FD_ERR = 2,  /* the same */

	INIT_FD_LISTEN = 3, /* listening Unix stream socket of the agent protocol */

	/* Optional from here on. */
	INIT_FD_CGROUP = 4, /* directory: root of a cgroup2 mount that begins at the work cgroup */
	INIT_FD_PROCS = 5,  /* write-only: cgroup.procs of the work cgroup, opened by the host */
	INIT_FD_CGNS = 6,   /* cgroup namespace whose root is the work cgroup */

	INIT_FD_V1_FIRST = 7, /* write-only: tasks or cgroup.procs of the work groups on v1 */
	INIT_FD_V1_LAST = 12,

	/* read-only: memory.oom_control (v1) or memory.events (v2) of the work cgroup */
	INIT_FD_OOM = 13,

	INIT_FD_END = 14, /* first number that is not the keeper's to fill */
};
