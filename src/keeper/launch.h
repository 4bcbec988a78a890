#pragma once
/*
 * From a slot, layers and a disk to a running PID 1.
 *
 * The launcher is a forked child of the keeper in a mount namespace of its own that still belongs
 * to the initial user namespace. There it mounts overlay and engine with their final flags, then
 * enters the slot's namespaces and clones PID 1 as the keeper's child (CLONE_PARENT): the copy of
 * the mounts that PID 1 gets belongs to the sandbox's user namespace, so their flags are locked.
 * What is mounted inside the new root is PID 1's own work, done with the sandbox's rights before
 * its first foreign instruction (inside.c).
 */
#include <stdint.h>

#include "base/err.h"
#include "wire/keeper.h"

#include "cgroup.h"
#include "conf.h"
#include "lxcfs.h"
#include "slot.h"

/* All descriptors are borrowed. */
struct launch {
	const struct conf *conf;
	const struct keeper_sandbox_start *start; /* NULL: unpack `layer` */
	const char *layer;
	struct slot_ns ns;
	uint32_t root_id; /* host id of the sandbox's root */
	int init;         /* the skerry-init program */
	int listen;       /* agent socket; unpack: -1 */
	int in, out, err; /* unpack: the tar, the result, complaints; start: -1 = /dev/null */
	int go;           /* PID 1 waits here for one byte; end of file ends it */
	int status;       /* PID 1 writes what failed here; closed by a successful exec */
	const struct cgroup_fds *cgroup; /* NULL: none */
	int cgns;                        /* set by the launcher */
	int lxcfs[LXCFS_FILES];          /* the same: detached mounts, -1 = none */
};

struct launched {
	int pid;
	int pidfd;
};

/* Runs in the launcher. On success PID 1 exists and prepares itself; its end of `status` tells
 * whether it came as far as its exec. */
int launch_run(struct launch *l, struct launched *ret, struct err *e);

/* Unpacks the tar on `in` into the new layer `layer` and waits for it, in a sandbox of its own
 * without network; `root_id` is the range that no slot has. Runs in a worker. */
int unpack_run(const struct conf *c, const char *layer, int init, int in, uint32_t root_id,
	       struct keeper_layer_reply *ret, struct err *e);

/* PID 1's half, in inside.c: mounts, descriptors, filter, exec. Returns only on failure. */
int inside_run(const struct launch *l, struct err *e);

/* The directory where a launcher attaches what it mounts, <run_dir>/stage: a tmpfs made once by the
 * keeper in its own mount namespace. Returns a descriptor of the skerry-init program there. */
int launch_stage_init(const struct conf *c, struct err *e);
int launch_stage_enter(const struct conf *c, struct err *e);
