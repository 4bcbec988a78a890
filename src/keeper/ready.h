#pragma once
/*
 * The slots that are ready: namespaces made ahead, held by their descriptors, by number. A ready slot
 * belongs to the connection it was prepared for and goes with it: whoever comes next knows nothing of
 * it. The table is the dispatcher's; `ready_make` is for its workers.
 */
#include <stdbool.h>

#include "base/err.h"

#include "conf.h"
#include "job.h"
#include "slot.h"

int ready_init(const struct conf *c, struct err *e);

bool ready_has(uint32_t slot);
/* Takes the descriptors; `owner` is only compared. */
void ready_put(uint32_t slot, struct slot_ns *ns, const void *owner);
bool ready_take(uint32_t slot, struct slot_ns *ret);
void ready_drop(uint32_t slot);
void ready_drop_all(const void *owner);

/* For workers: makes slot `slot`, after its block of addresses was let through the table. */
int ready_make(uint32_t slot, struct worker_result *r, struct err *e);
/* The dispatcher's note that a worker has done so. */
void ready_admitted(uint32_t slot);
