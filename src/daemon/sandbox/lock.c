/*
 * The lifecycle locks: a list of the ids that are held. It is short (what is starting, stopping or
 * being made right now), so a list does.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/str.h"

#include "sandbox/sandbox.h"

struct held {
	char id[ID_SIZE];
	bool brief;
	struct held *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static struct held *all;

static struct held *find(const char *id)
{
	struct held *h = all;

	while (h && !str_eq(h->id, id))
		h = h->next;
	return h;
}

int sandbox_lock(const char *id, unsigned flags)
{
	struct held *mine = calloc(1, sizeof(*mine));
	const struct held *other;
	int r = 0;

	if (!mine)
		return -ENOMEM;
	str_copy(mine->id, sizeof(mine->id), id);
	mine->brief = flags & LOCK_BRIEF;
	pthread_mutex_lock(&lock);
	while ((other = find(id)) && ((flags & LOCK_WAIT) || other->brief))
		pthread_cond_wait(&freed, &lock);
	if (other) {
		r = -EBUSY;
	} else {
		mine->next = all;
		all = mine;
		mine = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(mine);
	return r;
}

void sandbox_unlock(const char *id)
{
	struct held *gone = NULL;

	pthread_mutex_lock(&lock);
	for (struct held **h = &all; *h; h = &(*h)->next) {
		if (str_eq((*h)->id, id)) {
			gone = *h;
			*h = gone->next;
			break;
		}
	}
	pthread_cond_broadcast(&freed);
	pthread_mutex_unlock(&lock);
	free(gone);
}
