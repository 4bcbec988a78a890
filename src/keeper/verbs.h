#pragma once
/*
 * The closed list of what the keeper does. One row a verb; a verb's function opens with the
 * argument why it is safe for a hostile caller.
 */
#include <stdbool.h>

#include "conf.h"
#include "job.h"

struct verb {
	const char *name;
	const char *(*machine)(const struct job *j); /* whose jobs it queues with, or NULL */
	void (*run)(struct job *j);
};

/* `number`: of a request that was parsed. */
const struct verb *verb_find(uint32_t number);

struct verbs_info {
	uint32_t limits, quota;
	bool v2;
	int init; /* the skerry-init program */
	char notes[512];
};
void verbs_init(const struct conf *c, const struct verbs_info *info);
