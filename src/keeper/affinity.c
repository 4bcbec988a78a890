#include "affinity.h"

#include <sched.h>

void affinity_set(int tid, uint32_t cpu_milli, uint32_t slot)
{
	unsigned want = (cpu_milli + 999) / 1000, have, first, n = 0;
	cpu_set_t ours, its;

	if (sched_getaffinity(0, sizeof(ours), &ours) < 0 || !want)
		return;
	have = (unsigned)CPU_COUNT(&ours);
	first = slot % have;
	CPU_ZERO(&its);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &ours) && (n++ + have - first) % have < want)
			CPU_SET(cpu, &its);
	}
	(void)sched_setaffinity(tid, sizeof(its), &its);
}
