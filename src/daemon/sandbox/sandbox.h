#pragma once
/*
 * Sandboxes as things that live: create, start, stop, delete, and what becomes of them when a
 * machine or the daemon ends. Called from API threads and from the backend's thread.
 *
 * Each sandbox has one lifecycle lock. API calls do not wait for it: who comes second gets a
 * conflict (-EBUSY) that names the state. Reads take no lock.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "config.h"
#include "store/tables.h"

struct idempotency_ref {
	const char *token, *path, *key;
};

struct size_request {
	const char *resources;
	uint32_t cpus, memory_mb, disk_gb, pids; /* 0: absent */
};

struct create_request {
	const char *name, *identifier, *os, *isolation, *scope, *environment;
	struct size_request size;
	json_t *tags;
	bool auto_start;
};

struct create_options {
	const struct project_row *project;
	const struct actor *actor;
	const struct idempotency_ref *idempotency; /* NULL without a key */
	uint32_t wait_ms; /* for RUNNING; a later answer is told by the state */
};

/* Reconciles; call once, after the backend is there. */
int sandbox_init(const struct config *config, const struct backend *backend, struct err *e);
/* Waits for creates that go on behind their answer. */
void sandbox_shutdown(void);
const struct backend *sandbox_backend(void);

int sandbox_create(const struct create_request *in, const struct create_options *o,
		   struct sandbox_row *ret, struct err *e);
int sandbox_start(const char *id, const struct actor *a, struct sandbox_row *ret, struct err *e);
int sandbox_stop(const char *id, uint32_t grace_ms, const struct actor *a, struct sandbox_row *ret,
		 struct err *e);
int sandbox_restart(const char *id, uint32_t grace_ms, const struct actor *a,
		    struct sandbox_row *ret, struct err *e);
/* What is absent stays. Limits are in force at once, for what runs already too. */
struct sandbox_change {
	const char *name;
	json_t *tags; /* borrowed */
	struct size_request size;
};
int sandbox_change(const char *id, const struct sandbox_change *c, const struct actor *a,
		   struct sandbox_row *ret, struct err *e);
int sandbox_delete(const char *id, const struct actor *a, struct err *e);
int sandbox_get(const char *id, struct sandbox_row *ret, struct err *e);

/* -ENOSPC where the pool has no room for what is new. */
int sandbox_pool_check(struct err *e);

/* Writes a state of the machine without an event of the table: after a lost connection, or when
 * the daemon starts. Under the sandbox's lock. */
int sandbox_settle_as(struct sandbox_row *row, int status, const char *code, const char *text,
		      struct err *e);

/* reconcile.c: compares the store with the backend's live machines and objects. */
int sandbox_reconcile(struct err *e);

/* image.c */
int image_forget_layer(const char *layer, struct err *e); /* deletes one that nobody uses */

/* The lifecycle lock of a sandbox. Returns -EBUSY when an operation holds it (but with LOCK_WAIT),
 * -ENOMEM. LOCK_BRIEF is for the daemon's own look at a sandbox, which no client has asked for:
 * whoever wants the lock meanwhile waits instead of telling its client of a conflict. */
enum lock_flags { LOCK_WAIT = 1, LOCK_BRIEF = 2 };
int sandbox_lock(const char *id, unsigned flags);
void sandbox_unlock(const char *id);

/* An error of the backend as one of ours: full disks and lost connections keep their meaning, all
 * else becomes `code` with `reason`. */
int backend_fault(struct err *e, int code, const char *reason);
