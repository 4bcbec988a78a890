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
	REFILL_AFTER_MS = 30,    /* a start is followed by its first command: that goes first too */
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
	bool news;   /* something changed since the list of live machines was asked for */
	char id[ID_SIZE + 1];
};

/* No new try before `at_ns` (CLOCK_MONOTONIC, 0 = at once); longer after each failure. */
struct pause {
	uint64_t at_ns;
	unsigned ms;
};

struct slots {
	unsigned want;
	const struct slot_store *store;
	struct slots_keeper keeper;
	pthread_t thread;
	/* Held over each call of the store and the change of the table that belongs to it, so that
	 * the two never disagree for another thread. Taken before `lock`. */
	pthread_mutex_t store_lock;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t changed;
	bool stopping;
	bool reconcile;         /* the live machines must be asked for */
	bool up;                /* there is a connection */
	unsigned starting;      /* starts in flight */
	struct pause asking;    /* the keeper, after it failed */
	struct pause releasing; /* in the store, after it failed */
	uint64_t quiet_ns;      /* no preparation before, while half of the wanted ones are there */
	uint64_t yield_ns;  /* until then a preparation makes way for starts; 0: none wants to */
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
static void change_state(struct slots *s, uint32_t slot, enum slot_state state, const char *id)
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

static void set_state(struct slots *s, uint32_t slot, enum slot_state state, const char *id)
{
	change_state(s, slot, state, id);
	s->table[slot].news = true;
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
	s->quiet_ns = clock_mono_ns() + REFILL_AFTER_MS * NS_PER_MS;
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
	if (t)
		t->news = true;
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
	s->asking = (struct pause){ 0 };
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Puts what the keeper said into the table: its machines run, what was thought to run and is not
 * among them is gone. Where something was told since, that is newer than the list. The lock is
 * held. */
static void apply_live(struct slots *s, const struct keeper_live *live, unsigned count)
{
	for (uint32_t i = 0; i < s->slots_max; i++) {
		struct slot *t = &s->table[i];

		if (!t->news && t->state == SLOT_RUNNING)
			change_state(s, i, SLOT_GONE, NULL);
		else if (!t->news && t->state == SLOT_UNKNOWN) /* perhaps still prepared */
			change_state(s, i, SLOT_DROP, NULL);
	}
	for (unsigned n = 0; n < count; n++) {
		uint32_t slot = live[n].slot;

		if (slot < s->slots_max && !s->table[slot].news &&
		    s->table[slot].state != SLOT_STARTING)
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

/* Asks what lives, and makes table and store say the same. */
static int reconcile(struct slots *s, struct err *e)
{
	_cleanup_free_ struct keeper_live *live = NULL;
	unsigned count;
	int r;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->slots_max; i++)
		s->table[i].news = false;
	pthread_mutex_unlock(&s->lock);
	r = s->keeper.list(s->keeper.arg, &live, &count, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->store_lock);
	pthread_mutex_lock(&s->lock);
	apply_live(s, live, count);
	pthread_mutex_unlock(&s->lock);
	r = retain_numbers(s, e);
	pthread_mutex_unlock(&s->store_lock);
	return r;
}

static void back_off(struct pause *p)
{
	p->ms = p->ms ? p->ms * 2 : BACKOFF_FIRST_MS;
	if (p->ms > BACKOFF_MAX_MS)
		p->ms = BACKOFF_MAX_MS;
	p->at_ns = clock_mono_ns() + p->ms * NS_PER_MS;
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
		back_off(&s->asking);
	}
}

static void work_release(struct slots *s, uint32_t slot)
{
	struct err e = ERR_INIT;
	int r;

	pthread_mutex_unlock(&s->lock);
	pthread_mutex_lock(&s->store_lock);
	r = s->store->release(slot, &e);
	pthread_mutex_lock(&s->lock);
	if (r >= 0)
		set_state(s, slot, SLOT_FREE, "");
	pthread_mutex_unlock(&s->store_lock);
	if (r >= 0) {
		s->releasing = (struct pause){ 0 };
		return;
	}
	log_warn("cannot release slot %u: %s", slot, e.text);
	back_off(&s->releasing);
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
		set_state(s, slot, SLOT_UNKNOWN, "");
		s->reconcile = true;
		break;
	default: /* a number that the keeper does not have prepared is as good as dropped */
		set_state(s, slot, SLOT_GONE, NULL);
	}
}

static void prepared(struct slots *s, uint32_t slot, int r)
{
	if (r == -EBUSY) { /* a machine uses it: the list tells which */
		set_state(s, slot, SLOT_UNKNOWN, "");
		s->reconcile = true;
	} else if (r < 0 || s->table[slot].stale) {
		set_state(s, slot, SLOT_DROP, NULL);
	} else {
		set_state(s, slot, SLOT_PREPARED, NULL);
	}
}

static void work_prepare(struct slots *s)
{
	struct err e = ERR_INIT;
	uint32_t slot;
	int r;

	s->yield_ns = 0;
	pthread_mutex_unlock(&s->lock);
	r = take_number(s, SLOT_PREPARING, NULL, &slot, &e);
	if (r < 0) {
		pthread_mutex_lock(&s->lock);
	} else {
		r = s->keeper.prepare(s->keeper.arg, slot, &e);
		if (r == -EEXIST) /* for an earlier process of ours, which did not use it */
			r = 0;
		pthread_mutex_lock(&s->lock);
		prepared(s, slot, r);
	}
	if (r >= 0) {
		s->asking = (struct pause){ 0 };
		return;
	}
	if (s->up)
		log_warn("cannot prepare a slot: %s", e.text);
	back_off(&s->asking);
}

/* Starts go first, but not for ever. 0 when a preparation may begin, else when to ask again. */
static uint64_t prepare_at(struct slots *s, uint64_t now_ns)
{
	if (!s->starting && s->count[SLOT_PREPARED] * 2 >= s->want && now_ns < s->quiet_ns)
		return s->quiet_ns;
	if (!s->starting)
		return 0;
	if (!s->yield_ns)
		s->yield_ns = now_ns + STARTS_FIRST_MS * NS_PER_MS;
	return now_ns >= s->yield_ns ? 0 : s->yield_ns;
}

static void sooner(uint64_t *wake_ns, uint64_t at_ns)
{
	if (at_ns < *wake_ns)
		*wake_ns = at_ns;
}

/* Does one thing and returns 0; or returns when to look again if nothing changes before. What gives
 * numbers back goes before what takes one. */
static uint64_t work(struct slots *s)
{
	uint64_t now = clock_mono_ns(), wake = UINT64_MAX;
	bool prepare = s->count[SLOT_PREPARED] < s->want;
	uint32_t slot;

	if (s->up && s->reconcile && now >= s->asking.at_ns) {
		work_reconcile(s);
		return 0;
	}
	if (find_state(s, SLOT_GONE, &slot)) {
		if (now >= s->releasing.at_ns) {
			work_release(s, slot);
			return 0;
		}
		sooner(&wake, s->releasing.at_ns);
	}
	if (s->up && !s->reconcile && find_state(s, SLOT_DROP, &slot)) {
		work_drop(s, slot);
		return 0;
	}
	if (s->up && (s->reconcile || prepare) && now < s->asking.at_ns) {
		sooner(&wake, s->asking.at_ns);
	} else if (s->up && prepare) {
		uint64_t at = prepare_at(s, now);

		if (!at) {
			work_prepare(s);
			return 0;
		}
		sooner(&wake, at);
	}
	return wake;
}

static void *slots_main(void *arg)
{
	struct slots *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stopping) {
		uint64_t wake = work(s);
		const struct timespec t = {
			.tv_sec = (time_t)(wake / NS_PER_SEC),
			.tv_nsec = (long)(wake % NS_PER_SEC),
		};

		if (wake == UINT64_MAX)
			pthread_cond_wait(&s->changed, &s->lock);
		else if (wake)
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
