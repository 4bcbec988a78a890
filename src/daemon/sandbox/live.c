#include "daemon/sandbox/live.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

enum { BUCKETS = 1024, ASK_MS = 2 };

struct node {
	char id[ID_SIZE];
	uint64_t total[2]; /* bytes of stdout and stderr in the files */
	bool held;         /* the pump waits for a viewer */
	bool hurry;        /* nobody is waited for any more */
	int wake_fd;       /* the pump's; -1: it asks by the clock while it is held */
	struct live_viewer *viewers;
	struct node *next;
};

static struct node *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gone_away = PTHREAD_COND_INITIALIZER;

static struct node **place(const char *id)
{
	unsigned h = 0;
	struct node **n;

	for (const char *p = id; *p; p++)
		h = h * 31 + (unsigned char)*p;
	for (n = &buckets[h % BUCKETS]; *n && !str_eq((*n)->id, id); n = &(*n)->next)
		;
	return n;
}

int live_add(const char *id)
{
	struct node *n = calloc(1, sizeof(*n));
	struct node **at;

	if (n)
		n->wake_fd = -1;
	if (!n || !str_copy(n->id, sizeof(n->id), id)) {
		free(n);
		return -ENOMEM;
	}
	pthread_mutex_lock(&lock);
	at = place(id);
	if (!*at) {
		*at = n;
		n = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(n);
	return 0;
}

/* An eventfd cannot fail for us: it does not block, and its count does not come near the end. */
static void ring(int fd)
{
	const uint64_t one = 1;

	if (fd >= 0)
		(void)!write(fd, &one, sizeof(one));
}

void live_remove(const char *id)
{
	struct node **at, *gone;

	pthread_mutex_lock(&lock);
	at = place(id);
	gone = *at;
	if (gone)
		*at = gone->next;
	for (struct live_viewer *v = gone ? gone->viewers : NULL; v; v = v->next) {
		v->ended = true;
		ring(v->event);
	}
	pthread_cond_broadcast(&gone_away);
	pthread_mutex_unlock(&lock);
	free(gone);
}

bool live_has(const char *id)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = *place(id);
	pthread_mutex_unlock(&lock);
	return has;
}

void live_wait(const char *id, int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&lock);
	/* one that nobody pumps waits for the clock */
	while (pthread_cond_timedwait(&gone_away, &lock, &until) != ETIMEDOUT && *place(id))
		;
	pthread_mutex_unlock(&lock);
}

int live_view(struct live_viewer *v, const char *id, const uint64_t at[2], bool holds,
	      struct err *e)
{
	struct node *n;

	*v = (struct live_viewer){ .event = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK),
				   .holds = holds,
				   .at = { at[0], at[1] },
				   .moved_ns = clock_mono_ns() };
	if (v->event < 0)
		return err_set(e, errno, "make an eventfd: %m");
	str_copy(v->id, sizeof(v->id), id);
	pthread_mutex_lock(&lock);
	n = *place(id);
	if (n) {
		v->next = n->viewers;
		n->viewers = v;
	} else {
		v->ended = true;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

void live_view_end(struct live_viewer *v)
{
	struct node *n;

	if (v->event < 0)
		return;
	pthread_mutex_lock(&lock);
	n = *place(v->id);
	for (struct live_viewer **p = n ? &n->viewers : NULL; p && *p; p = &(*p)->next) {
		if (*p == v) {
			*p = v->next;
			break;
		}
	}
	if (n && n->held)
		ring(n->wake_fd);
	pthread_mutex_unlock(&lock);
	close_p(&v->event);
}

bool live_more(struct live_viewer *v)
{
	uint64_t count;
	bool ended;

	(void)!read(v->event, &count, sizeof(count));
	pthread_mutex_lock(&lock);
	ended = v->ended;
	pthread_mutex_unlock(&lock);
	return !ended;
}

static bool behind(const struct live_viewer *v, const uint64_t total[2])
{
	return v->at[0] < total[0] || v->at[1] < total[1];
}

void live_passed(struct live_viewer *v, const uint64_t at[2])
{
	struct node *n;

	pthread_mutex_lock(&lock);
	n = v->ended ? NULL : *place(v->id);
	memcpy(v->at, at, sizeof(v->at));
	v->moved_ns = clock_mono_ns();
	if (n && v->released && !behind(v, n->total))
		v->released = false;
	if (n && n->held && v->holds)
		ring(n->wake_fd);
	pthread_mutex_unlock(&lock);
}

/* What this viewer allows. */
static void hold_for(struct live_viewer *v, const uint64_t total[2], uint64_t now_ns,
		     struct live_hold *ret)
{
	uint64_t until = v->moved_ns + LIVE_PATIENCE_MS * NS_PER_MS;

	if (!v->holds || v->released || !behind(v, total))
		return;
	if (now_ns >= until) {
		v->released = true;
		return;
	}
	for (int i = 0; i < 2; i++) {
		if (!ret->held || v->at[i] < ret->limit[i])
			ret->limit[i] = v->at[i];
	}
	if (!ret->held || until < ret->until_ns)
		ret->until_ns = until;
	ret->held = true;
}

void live_output(const char *id, const uint64_t total[2], uint64_t now_ns, struct live_hold *ret)
{
	struct node *n;

	*ret = (struct live_hold){ 0 };
	pthread_mutex_lock(&lock);
	n = *place(id);
	for (struct live_viewer *v = n ? n->viewers : NULL; v; v = v->next) {
		if (!behind(v, n->total))
			v->moved_ns = now_ns;
		if (total[0] != n->total[0] || total[1] != n->total[1])
			ring(v->event);
		if (!n->hurry)
			hold_for(v, total, now_ns, ret);
	}
	if (n && n->wake_fd < 0 && ret->held && ret->until_ns > now_ns + ASK_MS * NS_PER_MS)
		ret->until_ns = now_ns + ASK_MS * NS_PER_MS;
	if (n) {
		memcpy(n->total, total, sizeof(n->total));
		n->held = ret->held;
	}
	pthread_mutex_unlock(&lock);
}

void live_hurry(const char *id)
{
	struct node *n;

	pthread_mutex_lock(&lock);
	n = *place(id);
	if (n) {
		n->hurry = true;
		ring(n->wake_fd);
	}
	pthread_mutex_unlock(&lock);
}

bool live_hurried(const char *id)
{
	struct node *n;
	bool hurry;

	pthread_mutex_lock(&lock);
	n = *place(id);
	hurry = n && n->hurry;
	pthread_mutex_unlock(&lock);
	return hurry;
}

void live_wake_by(const char *id, int wake_fd)
{
	struct node *n;

	pthread_mutex_lock(&lock);
	n = *place(id);
	if (n)
		n->wake_fd = wake_fd;
	pthread_mutex_unlock(&lock);
}
