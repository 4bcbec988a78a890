#include "sandbox/live.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/banned.h"
#include "base/str.h"

enum { BUCKETS = 1024 };

struct node {
	char id[ID_SIZE];
	struct node *next;
};

static struct node *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

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

void live_remove(const char *id)
{
	struct node **at, *gone;

	pthread_mutex_lock(&lock);
	at = place(id);
	gone = *at;
	if (gone)
		*at = gone->next;
	pthread_cond_broadcast(&ended);
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
	while (pthread_cond_timedwait(&ended, &lock, &until) != ETIMEDOUT && *place(id))
		;
	pthread_mutex_unlock(&lock);
}
