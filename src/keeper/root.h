#pragma once
/*
 * The keeper's own view of the file system: a mount namespace with the root file system and the few
 * mounts it works with. Each mount here is copied by every launch, and what a sandbox is cloned
 * from should hold little.
 */
#include "base/err.h"

#include "conf.h"

int root_init(const struct conf *c, struct err *e);
