#pragma once
/*
 * The btrfs pool: layers, the sandboxes' disks and their quota groups.
 *
 *   layers/<ly…>                a read-only subvolume
 *   layers/<ly…>.engine         the same; only where the image has content for engines (engine.h)
 *   sandboxes/<sb…>/root        subvolume: upper, work
 *   sandboxes/<sb…>/engine      subvolume: docker, containerd
 *
 * A level-1 quota group per sandbox, its number made of the sandbox's id, holds both subvolumes and
 * carries the limit; quota calls go through the pool's own, unlimited top. Names are ids of ours,
 * checked before they get here. All of it may wait on the disk: workers call it, except pool_open
 * and pool_usage.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/keeper.h"

enum pool_quota { QUOTA_NONE, QUOTA_CLASSIC, QUOTA_SIMPLE };

/* Opens the mounted pool, makes the two directories, finds the quota mode. */
int pool_open(const char *dir, enum pool_quota *ret_quota, struct err *e);
bool pool_has_quota(void);
int pool_usage(struct keeper_pool_reply *ret, struct err *e);

/* `layer`: whose engine content the disk begins with, "" for none. */
int pool_sandbox_create(const char *id, const char *layer, uint64_t disk_bytes, struct err *e);
/* Removes what is there, complete or not; -ENOENT is no error. */
int pool_sandbox_destroy(const char *id, struct err *e);
int pool_sandbox_limit(const char *id, uint64_t disk_bytes, struct err *e);
/* Directory descriptor of sandboxes/<id>. */
int pool_sandbox_open(const char *id, struct err *e);
int pool_sandbox_used(const char *id, uint64_t *ret_bytes);

/* A new layer is made under a name of its own and gets its final one when it is whole. Its engine is
 * made before that and removed before it: so none is there without a layer, whole or not, whose
 * removal removes it. */
int pool_layer_begin(const char *layer, struct err *e); /* its directory descriptor */
int pool_layer_commit(const char *layer, struct err *e);
void pool_layer_abort(const char *layer);
int pool_layer_delete(const char *layer, struct err *e);
int pool_layer_open(const char *layer, struct err *e);

/* Everything that lies in the pool: writes struct keeper_object[] to `fd`. A layer's engine is part
 * of the layer. */
int pool_list(int fd, struct err *e);

int pool_sync(struct err *e);

/* Removes quota groups whose subvolumes are gone; the count removed. */
int pool_janitor(void);

/* Opens the pool's directories anew, for a process in another mount namespace. */
int pool_reopen(const char *dir, struct err *e);
