#pragma once
/*
 * Which processors a sandbox runs on: as many of ours as its limit of cpu, so that `nproc` and
 * /proc/cpuinfo inside tell it. Slots next to each other begin at different ones.
 *
 * By the cpuset controller: on v2 in <instance>/<id>, on v1 in a group of that name which holds all
 * of the sandbox's processes. Where the host has none, by the affinity of each thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* `v2`: the directory <instance> of that hierarchy, `on_v2`: it has the controller; `v1`: the same of
 * the controller's own hierarchy, or -1. They are borrowed. */
void cpuset_init(int v2, bool on_v2, int v1);
bool cpuset_available(void);

/* The group of `id`, made where it is missing, and its processors. */
int cpuset_set(const char *id, uint32_t cpu_milli, uint32_t slot, struct err *e);
/* Moves the calling process into it. */
int cpuset_enter(const char *id, struct err *e);
int cpuset_remove(const char *id);

/* Of the thread `tid`, 0: the caller. What cannot be set stays as it is. */
void cpuset_affinity(int tid, uint32_t cpu_milli, uint32_t slot);
