#pragma once
/*
 * Slots of the host: which numbers are in our hands, and a few prepared ahead.
 *
 * A number is taken from the store before the keeper hears of it and goes back only when the keeper
 * has said that nothing uses it any more. One thread prepares, drops and releases; starts take a
 * prepared number, or a new one where none is ready, and go before preparing. After the keeper was
 * lost, what it still runs is asked for and everything else is forgotten.
 */
#include "base/err.h"
#include "wire/keeper.h"

#include "daemon/backend/backend.h"

struct slots;

/* The verbs that slots need; called without any lock held. */
struct slots_keeper {
	void *arg;
	int (*prepare)(void *arg, uint32_t slot, struct err *e);
	int (*drop)(void *arg, uint32_t slot, struct err *e);
	/* The live machines; the array is the caller's to free. */
	int (*list)(void *arg, struct keeper_live **ret, unsigned *ret_count, struct err *e);
};

/* `want` slots are kept prepared. Starts the thread, which asks for the live machines first. */
int slots_new(unsigned want, uint32_t slots_max, const struct slot_store *store,
	      const struct slots_keeper *keeper, struct slots **ret, struct err *e);
void slots_free(struct slots *s); /* ends the thread; nothing is released or dropped */

/* A number for the machine `id`, and whether it is a prepared one. Ends with slots_started. */
int slots_take(struct slots *s, const char *id, uint32_t *ret_slot, struct err *e);

enum slots_outcome {
	SLOTS_RUNNING, /* the machine uses it */
	SLOTS_FAILED,  /* the keeper says there is no machine */
	SLOTS_UNKNOWN, /* the keeper was lost meanwhile, or has something else there */
};
void slots_started(struct slots *s, uint32_t slot, enum slots_outcome outcome);

/* The keeper said that this machine ended. Does not wait. */
void slots_exited(struct slots *s, const char *id, uint32_t slot);
/* The connection to the keeper ended. Does not wait. */
void slots_lost(struct slots *s);
/* There is a new connection: find out what lives. Does not wait. */
void slots_reconnected(struct slots *s, uint32_t slots_max);
