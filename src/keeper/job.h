#pragma once
/*
 * Requests in work, their workers and their clients.
 *
 * A job is one request from its arrival to its reply. A verb's function either finishes it at once
 * with job_done or job_fail, or starts a worker and returns; the worker's `done` goes on. Jobs of
 * one sandbox run one after the other; a client that leaves does not end its jobs.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/fd.h"
#include "wire/keeper.h"

#include "loop.h"
#include "request.h"

enum { PAYLOAD_MAX = KEEPER_MESSAGE_MAX - sizeof(struct keeper_head), REASON_SIZE = 32 };

struct client;
struct machine;

struct job {
	struct client *client; /* NULL once it left */
	struct request req;
	int fd; /* the request's descriptor, or -1 */
	struct machine *machine;
	void (*run)(struct job *j);
	struct job *next;     /* in the queue of its machine */
	struct job *all_next; /* in the list of all */
};

/* Replies and frees the job; then the machine's next one runs. `fd` is borrowed, or -1. */
void job_done(struct job *j, const void *payload, size_t len, int fd);
void job_fail(struct job *j, const struct err *e);

/* What a worker hands back: 0 and a payload, or an error. */
struct worker_result {
	int status;
	struct err err;
	char reason[REASON_SIZE]; /* that of `err` */
	size_t len;
	char payload[PAYLOAD_MAX];
	int fds[FDS_MAX];
	unsigned fds_count;
};

struct worker_spec {
	/* in the child: fills `r` (payload, fds) or returns a negative errno with `e` set */
	int (*work)(void *arg, struct worker_result *r, struct err *e);
	/* in the keeper, once; descriptors it does not take are closed afterwards */
	void (*done)(void *arg, struct worker_result *r);
	void *arg;
	uint32_t timeout_ms;
	uint64_t clone_flags; /* CLONE_NEWNS or 0 */
	int cgroup;           /* v2 directory the child is born in, or -1 */
};

/* Forks. On failure `done` is not called. */
int worker_start(const struct worker_spec *spec, struct err *e);
/* Reaps ended workers; call on SIGCHLD. */
void worker_reap(void);
