#pragma once
/*
 * Which processors a sandbox runs on: as many of ours as its limit of cpu, so that `nproc` inside
 * tells it. Slots next to each other begin at different ones.
 */
#include <stdint.h>

/* Of the thread `tid`, 0: the caller. What cannot be set stays as it is. */
void affinity_set(int tid, uint32_t cpu_milli, uint32_t slot);
