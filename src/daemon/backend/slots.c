#include "daemon/backend/slots.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

enum {
	SLOTS_TABLE_MAX = 65536, /* 32-bit ids hold no more ranges */
	STARTS_FIRST_MS = 50,    /* how long starts in flight put off a preparation */
	BACKOFF_FIRST_MS = 200,
	BACKOFF_MAX_MS = 30000,
};

enum slot_state {
	SLOT_FREE,      /* not ours: the store may give it to anybody */
	SLOT_PREPARING, /* the thread is at it */
	SLOT_PREPARED,
	SLOT_STARTING, /* a start holds it */
	SLOT_RUNNING,
	SLOT_UNKNOWN, /* the keeper was lost during its start: the next list tells */
	SLOT_DROP,    /* the keeper may still have it prepared */
	SLOT_GONE,    /* the keeper has let go: to be released in the store */
	SLOT_STATES,
};

struct slot {
	enum slot_state state;
	bool exited; /* STARTING: its end was told already */
	bool stale;  /* PREPARING: made by a keeper that is gone */
	char id[ID_SIZE + 1];
};

struct slots {
	unsigned want;
	const struct slot_store *store;
	struct slots_keeper keeper;
	pthread_t thread;
	/* Held over the store's take and retain and the change of the table that belongs to it, so
	 * that no number is forgotten between the two. Taken before `lock`. */
	pthread_mutex_t store_lock;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t changed;
	bool stopping;
	bool reconcile;    /* the live machines must be asked for */
	bool up;           /* there is a connection */
	unsigned exits;    /* ends of machines told */
	unsigned starting; /* starts in flight */
	uint64_t quiet_at; /* CLOCK_MONOTONIC: no preparation before */
	unsigned backoff_ms;
	uint32_t take_max;  /* numbers the keeper accepts now */
	uint32_t slots_max; /* size of the table */
	struct slot *table;
	unsigned count[SLOT_STATES]; /* slots in each state */
};

static bool find_state(const struct slots *s, enum slot_state state, uint32_t *ret)
{
	if (!s->count[state])
		return false;
	for (uint32_t i = 0; i < s->slots_max; i++) {
		if (s->table[i].state == state) {
			*ret = i;
			return true;
		}
	}
	return false;
}

/* The one place where a slot changes its state. `id`: NULL keeps the one it has. */
static void set_state(struct slots *s, uint32_t slot, enum slot_state state, const char *id)
{
	struct slot *t = &s->table[slot];

	s->count[t->state]--;
	s->count[state]++;
	t->state = state;
	t->exited = false;
	t->stale = false;
	if (id)
		str_copy(t->id, sizeof(t->id), id);
}

/* Takes a number that nobody has and marks it. */
static int take_number(struct slots *s, enum slot_state state, const char *id, uint32_t *ret,
		       struct err *e)
{
	uint32_t slot, max;
	int r;

	pthread_mutex_lock(&s->store_lock);
	pthread_mutex_lock(&s->lock);
	max = s->take_max;
	pthread_mutex_unlock(&s->lock);
	r = s->store->take(max, &slot, e);
	if (r >= 0) {
		pthread_mutex_lock(&s->lock);
		if (slot >= s->slots_max || s->table[slot].state != SLOT_FREE) {
			r = err_set(e, EUCLEAN, "slot %u was given out twice", slot);
		} else {
			set_state(s, slot, state, id);
			*ret = slot;
		}
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&s->store_lock);
	return r < 0 ? r : 0;
}

int slots_take(struct slots *s, const char *id, uint32_t *ret_slot, struct err *e)
{
	uint32_t slot = 0;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	s->starting++;
	if (find_state(s, SLOT_PREPARED, &slot)) {
		set_state(s, slot, SLOT_STARTING, id);
		pthread_mutex_unlock(&s->lock);
		*ret_slot = slot;
		return 0;
	}
	pthread_mutex_unlock(&s->lock);
	r = take_number(s, SLOT_STARTING, id, ret_slot, e);
	if (r < 0) {
		pthread_mutex_lock(&s->lock);
		s->starting--;
		pthread_cond_signal(&s->changed);
		pthread_mutex_unlock(&s->lock);
	}
	return r;
}

void slots_started(struct slots *s, uint32_t slot, enum slots_outcome outcome)
{
	pthread_mutex_lock(&s->lock);
	if (outcome == SLOTS_FAILED)
		set_state(s, slot, SLOT_DROP, NULL);
	else if (s->table[slot].exited)
		set_state(s, slot, SLOT_GONE, NULL);
	else
		set_state(s, slot, outcome == SLOTS_RUNNING ? SLOT_RUNNING : SLOT_UNKNOWN, NULL);
	/* a list that was asked for while this start was under way did not decide about it */
	if (outcome == SLOTS_UNKNOWN)
		s->reconcile = true;
	s->starting--;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void slots_exited(struct slots *s, const char *id, uint32_t slot)
{
	struct slot *t;

	pthread_mutex_lock(&s->lock);
	t = slot < s->slots_max ? &s->table[slot] : NULL;
	if (t && t->state == SLOT_STARTING && str_eq(t->id, id))
		t->exited = true;
	else if (t && (t->state == SLOT_RUNNING || t->state == SLOT_UNKNOWN) && str_eq(t->id, id))
		set_state(s, slot, SLOT_GONE, NULL);
	s->exits++;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void slots_lost(struct slots *s)
{
	pthread_mutex_lock(&s->lock);
	s->up = false;
	for (uint32_t i = 0; i < s->slots_max; i++) {
		struct slot *t = &s->table[i];

		if (t->state == SLOT_PREPARED)
			set_state(s, i, SLOT_DROP, NULL);
		else if (t->state == SLOT_PREPARING)
			t->stale = true;
	}
	pthread_mutex_unlock(&s->lock);
}

void slots_reconnected(struct slots *s, uint32_t slots_max)
{
	pthread_mutex_lock(&s->lock);
	s->take_max = slots_max < s->slots_max ? slots_max : s->slots_max;
	s->up = true;
	s->reconcile = true;
	s->quiet_at = 0;
	s->backoff_ms = 0;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Puts what the keeper said into the table: its machines run, what was thought to run and is not
 * among them is gone. The lock is held. */
static void apply_live(struct slots *s, const struct keeper_live *live, unsigned count)
{
	for (uint32_t i = 0; i < s->slots_max; i++) {
		struct slot *t = &s->table[i];
		bool lives = false;

		if (t->state != SLOT_RUNNING && t->state != SLOT_UNKNOWN)
			continue;
		for (unsigned n = 0; n < count && !lives; n++)
			lives = live[n].slot == i && str_eq(live[n].id, t->id);
		set_state(s, i, lives ? SLOT_RUNNING : SLOT_GONE, NULL);
	}
	for (unsigned n = 0; n < count; n++) {
		uint32_t slot = live[n].slot;

		if (slot < s->slots_max && s->table[slot].state != SLOT_STARTING &&
		    s->table[slot].state != SLOT_RUNNING)
			set_state(s, slot, SLOT_RUNNING, live[n].id);
	}
}

/* Tells the store which numbers are in use. The store lock is held. */
static int retain_numbers(struct slots *s, struct err *e)
{
	_cleanup_free_ uint32_t *used = NULL;
	unsigned count = 0;

	used = calloc(s->slots_max, sizeof(*used));
	if (!used)
		return err_set(e, ENOMEM, "out of memory");
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->slots_max; i++)
		if (s->table[i].state != SLOT_FREE)
			used[count++] = i;
	pthread_mutex_unlock(&s->lock);
	return s->store->retain(used, count, e);
}

/* Asks what lives. A machine that ends between the keeper's list and its way into the table would
 * stay there for ever, so the list is asked for again until no end was told meanwhile. */
static int reconcile(struct slots *s, struct err *e)
{
	unsigned exits;
	bool again;
	int r;

	do {
		_cleanup_free_ struct keeper_live *live = NULL;
		unsigned count;

		pthread_mutex_lock(&s->lock);
		exits = s->exits;
		pthread_mutex_unlock(&s->lock);
		r = s->keeper.list(s->keeper.arg, &live, &count, e);
		if (r < 0)
			return r;
		pthread_mutex_lock(&s->store_lock);
		pthread_mutex_lock(&s->lock);
		apply_live(s, live, count);
		again = exits != s->exits;
		pthread_mutex_unlock(&s->lock);
		r = again ? 0 : retain_numbers(s, e);
		pthread_mutex_unlock(&s->store_lock);
	} while (again);
	return r;
}

/* No work that can fail before this time; longer after each failure. The lock is held. */
static void back_off(struct slots *s)
{
	s->backoff_ms = s->backoff_ms ? s->backoff_ms * 2 : BACKOFF_FIRST_MS;
	if (s->backoff_ms > BACKOFF_MAX_MS)
		s->backoff_ms = BACKOFF_MAX_MS;
	s->quiet_at = clock_mono_ns() + s->backoff_ms * NS_PER_MS;
}

/* Each work_* is called with the lock held and gives it up while it waits. */
static void work_reconcile(struct slots *s)
{
	struct err e = ERR_INIT;
	int r;

	s->reconcile = false;
	pthread_mutex_unlock(&s->lock);
	r = reconcile(s, &e);
	pthread_mutex_lock(&s->lock);
	if (r < 0) {
		log_warn("cannot learn which slots are in use: %s", e.text);
		s->reconcile = true;
		back_off(s);
	}
}

static void work_release(struct slots *s, uint32_t slot)
{
	struct err e = ERR_INIT;
	int r;

	pthread_mutex_unlock(&s->lock);
	r = s->store->release(slot, &e);
	pthread_mutex_lock(&s->lock);
	if (r < 0) {
		log_warn("cannot release slot %u: %s", slot, e.text);
		back_off(s);
		return;
	}
	set_state(s, slot, SLOT_FREE, "");
}

static void work_drop(struct slots *s, uint32_t slot)
{
	int r;

	pthread_mutex_unlock(&s->lock);
	r = s->keeper.drop(s->keeper.arg, slot, NULL);
	pthread_mutex_lock(&s->lock);
	switch (r) {
	case -ECONNRESET: /* unheard: again with the next connection */
		break;
	case -EBUSY: /* a machine is there after all: the list tells which */
		set_state(s, slot, SLOT_UNKNOWN, NULL);
		s->reconcile = true;
		break;
	default: /* a number that the keeper does not have prepared is as good as dropped */
		set_state(s, slot, SLOT_GONE, NULL);
	}
}

/* Starts go first, but not for ever. */
static void yield_to_starts(struct slots *s)
{
	uint64_t deadline = clock_mono_ns() + STARTS_FIRST_MS * NS_PER_MS;
	struct timespec t = {
		.tv_sec = (time_t)(deadline / NS_PER_SEC),
		.tv_nsec = (long)(deadline % NS_PER_SEC),
	};

	while (s->starting && !s->stopping)
		if (pthread_cond_timedwait(&s->changed, &s->lock, &t))
			return;
}

static void work_prepare(struct slots *s)
{
	struct err e = ERR_INIT;
	uint32_t slot;
	int r;

	yield_to_starts(s);
	if (s->stopping || s->reconcile || !s->up)
		return;
	pthread_mutex_unlock(&s->lock);
	r = take_number(s, SLOT_PREPARING, NULL, &slot, &e);
	if (r < 0) {
		pthread_mutex_lock(&s->lock);
	} else {
		r = s->keeper.prepare(s->keeper.arg, slot, &e);
		pthread_mutex_lock(&s->lock);
		set_state(s, slot, r < 0 || s->table[slot].stale ? SLOT_DROP : SLOT_PREPARED, NULL);
	}
	if (r >= 0) {
		s->backoff_ms = 0;
		return;
	}
	if (s->up)
		log_warn("cannot prepare a slot: %s", e.text);
	back_off(s);
}

/* Does one thing; false when there is nothing to do before something changes or `quiet_at`. */
static bool work(struct slots *s)
{
	uint32_t slot;

	if (s->quiet_at && clock_mono_ns() < s->quiet_at)
		return false;
	s->quiet_at = 0;
	if (s->reconcile && s->up)
		work_reconcile(s);
	else if (find_state(s, SLOT_GONE, &slot))
		work_release(s, slot);
	else if (s->up && find_state(s, SLOT_DROP, &slot))
		work_drop(s, slot);
	else if (s->up && s->count[SLOT_PREPARED] < s->want)
		work_prepare(s);
	else
		return false;
	return true;
}

static void *slots_main(void *arg)
{
	struct slots *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stopping) {
		struct timespec t;

		if (work(s))
			continue;
		if (!s->quiet_at) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		t.tv_sec = (time_t)(s->quiet_at / NS_PER_SEC);
		t.tv_nsec = (long)(s->quiet_at % NS_PER_SEC);
		pthread_cond_timedwait(&s->changed, &s->lock, &t);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void slots_release(struct slots *s)
{
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->store_lock);
	free(s->table);
	free(s);
}

static int slots_init(struct slots *s, uint32_t slots_max)
{
	pthread_condattr_t attr;
	sigset_t all, old;
	int r;

	pthread_mutex_init(&s->store_lock, NULL);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	s->slots_max = slots_max < SLOTS_TABLE_MAX ? slots_max : SLOTS_TABLE_MAX;
	s->take_max = s->slots_max;
	s->count[SLOT_FREE] = s->slots_max;
	s->table = calloc(s->slots_max ? s->slots_max : 1, sizeof(*s->table));
	if (!s->table)
		return -ENOMEM;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&s->thread, NULL, slots_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int slots_new(unsigned want, uint32_t slots_max, const struct slot_store *store,
	      const struct slots_keeper *keeper, struct slots **ret, struct err *e)
{
	struct slots *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ENOMEM, "out of memory");
	s->want = want;
	s->store = store;
	s->keeper = *keeper;
	s->up = true;
	s->reconcile = true;
	r = slots_init(s, slots_max);
	if (r < 0) {
		slots_release(s);
		return err_set(e, r, "start the slots' thread: %s", strerror(-r));
	}
	*ret = s;
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	slots_release(s);
}
