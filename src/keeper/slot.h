#pragma once
/*
 * Slots: the user namespace and the network of one start, made ahead of it and used once.
 *
 * The user namespace is created with the effective ids of its mapped root, since the kernel charges
 * per-user counts (inotify, keys, queues) to the creator. Two descriptors hold a slot; when they
 * are closed unused, both namespaces and the link go. Called by workers.
 */
#include "base/err.h"

#include "conf.h"

struct slot_ns {
	int userns, netns; /* -1 = none */
};

#define SLOT_NS_INIT                                                                               \
	{                                                                                          \
		-1, -1                                                                             \
	}

void slot_ns_close(struct slot_ns *s);

/* A user namespace of 65,536 ids that begin at host id `root_id`, with a network namespace that it
 * owns (only `lo`, down). */
int slot_namespaces(uint32_t root_id, struct slot_ns *ret, struct err *e);

/* The same for slot `slot`, with its link. */
int slot_make(const struct conf *c, uint32_t slot, struct slot_ns *ret, struct err *e);
