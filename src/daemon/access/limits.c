#include "access/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/banned.h"
#include "base/str.h"

struct count {
	char key[ID_SIZE];
	uint32_t n;
	struct count *next;
};

/* as many as there are tokens and sandboxes with a request under way: few */
static struct count *counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct count **place(const char *key)
{
	struct count **c = &counts;

	while (*c && !str_eq((*c)->key, key))
		c = &(*c)->next;
	return c;
}

static int enter(const char *key, uint32_t most)
{
	struct count **at = place(key);

	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			return -ENOMEM;
		str_copy((*at)->key, sizeof((*at)->key), key);
	}
	if ((*at)->n >= most)
		return -EUSERS;
	(*at)->n++;
	return 0;
}

int limit_enter(const char *key, uint32_t most, struct err *e)
{
	int r;

	pthread_mutex_lock(&lock);
	r = enter(key, most);
	pthread_mutex_unlock(&lock);
	if (r == -EUSERS) {
		err_reason(e, EUSERS, "too_many_requests",
			   "%u requests are under way at once for this token or sandbox", most);
		return err_hint(e, "wait for some of them to end");
	}
	return r < 0 ? err_set(e, -r, "out of memory") : 0;
}

void limit_leave(const char *key)
{
	struct count **at, *c;

	pthread_mutex_lock(&lock);
	at = place(key);
	c = *at;
	if (c && --c->n == 0) {
		*at = c->next;
		free(c);
	}
	pthread_mutex_unlock(&lock);
}
