#pragma once
/*
 * From a decoded RUN to a process: what happens between fork and exec.
 *
 * Everything that touches the sandbox's own files (users, directories, programs) happens in the
 * child, in the command's own cgroup and under its limits: a file system that never answers holds
 * up that command and not PID 1. The child tells on a pipe what it found: a report SPAWN_READY
 * right before exec, a report SPAWN_FAILED if that or anything before it failed; the pipe ends
 * without SPAWN_FAILED when, and only when, the program was executed (or the child was killed).
 */
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "wire/agent.h"

#include "init/cgroup.h"

enum spawn_kind { SPAWN_READY = 1, SPAWN_FAILED };

struct spawn_report {
	uint32_t kind; /* enum spawn_kind */
	uint32_t code; /* SPAWN_FAILED: as in struct agent_fail */
	char reason[32];
	char field[32];
	char text[768];
	char cwd[4096]; /* SPAWN_READY: as in struct agent_started */
	char user[256];
	char warning[768];
};

struct spawn_plan {
	const struct agent_run *run;
	const struct leaf *leaf;
	int stdio[3]; /* the child's ends; the caller's to close */
	int status;   /* the pipe for the reports, close-on-exec */
};

/* Settles the limits a command shall have, then raises those of PID 1. */
void spawn_init(void);

/* The pid, or a negative errno with `e` set. */
pid_t spawn(const struct spawn_plan *plan, struct err *e);

/* The child's part, in child.c. `in_leaf`: it was born in the leaf. */
_Noreturn void spawn_child(const struct spawn_plan *plan, bool in_leaf, uint64_t nofile_soft);
