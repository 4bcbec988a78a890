#pragma once
/*
 * Sandboxes as the keeper knows them: what is running, what is asked of it, what follows from its
 * end. A machine exists while its sandbox lives or has a job; its jobs run one after the other.
 *
 *   NONE -> STARTING (slot, launch) -> RUNNING -> ENDING (groups, socket, record) -> NONE
 */
#include <stdbool.h>

#include "base/err.h"

#include "cgroup.h"
#include "conf.h"
#include "job.h"
#include "slot.h"

enum machine_state { MACHINE_NONE, MACHINE_STARTING, MACHINE_RUNNING, MACHINE_ENDING };

struct machine {
	struct source pid;    /* first: the pidfd of PID 1 */
	struct source status; /* what PID 1 says before its exec */
	char id[ID_SIZE + 1];
	enum machine_state state;
	int host_pid;
	uint32_t slot, enforced;
	bool warm;
	bool told; /* the start was answered: its end is an event */
	struct keeper_event_exit end;
	int go; /* write end: lets PID 1 go on */
	int listen;
	int launch_go, launch_status; /* the launcher's ends; valid while it is forked */
	struct slot_ns ns;
	struct cgroup_fds cgroup;
	struct err start_error;
	struct job *head, *tail; /* the first one runs */
	struct machine *next;
};

void machine_init(const struct conf *c, int init);

/* The machine of `id`, made when missing; NULL when out of memory. */
struct machine *machine_get(const char *id);
struct machine *machine_find(const char *id);
struct machine *machine_first(void);
bool machine_slot_used(uint32_t slot);

/* Puts the job behind the machine's others and runs it when it is the first. */
void machine_enqueue(struct machine *m, struct job *j, void (*run)(struct job *j));
/* The head is done: the next one runs; a machine without state or jobs is freed. */
void machine_dequeue(struct machine *m);

/* The verbs that change a machine; each ends in job_done or job_fail. */
void machine_start(struct job *j);
void machine_stop(struct job *j);
void machine_kill(struct job *j);
void machine_destroy(struct job *j);
void machine_limit(struct job *j);

/* Takes running sandboxes over from the keeper before. */
int machine_adopt(struct err *e);
