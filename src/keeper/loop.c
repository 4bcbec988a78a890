#include "loop.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>

#include "base/banned.h"
#include "base/clock.h"

enum { BATCH = 64 };

static int epoll = -1;
static bool stopped;
static struct source *sources;
static struct epoll_event batch[BATCH]; /* what is being delivered: loop_remove strikes from it */
static int batch_count;

int loop_init(void)
{
	epoll = epoll_create1(EPOLL_CLOEXEC);
	return epoll < 0 ? -errno : 0;
}

int loop_add(struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, s->fd, &ev) < 0)
		return -errno;
	s->next = sources;
	s->link = &sources;
	if (sources)
		sources->link = &s->next;
	sources = s;
	return 0;
}

void loop_remove(struct source *s)
{
	if (!s->link)
		return;
	epoll_ctl(epoll, EPOLL_CTL_DEL, s->fd, NULL);
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	s->next = NULL;
	s->link = NULL;
	for (int i = 0; i < batch_count; i++) {
		if (batch[i].data.ptr == s)
			batch[i].data.ptr = NULL;
	}
}

static int next_timeout(void)
{
	uint64_t first = UINT64_MAX;

	for (const struct source *s = sources; s; s = s->next) {
		if (s->deadline_ns && s->deadline_ns < first)
			first = s->deadline_ns;
	}
	return clock_left_ms(first);
}

/* One late source a round: its callback may remove others. */
static void run_late(void)
{
	uint64_t now = clock_mono_ns();

	for (struct source *s = sources; s; s = s->next) {
		if (s->deadline_ns && s->deadline_ns <= now) {
			s->deadline_ns = 0;
			s->late(s);
			return;
		}
	}
}

int loop_run(void)
{
	while (!stopped) {
		int n = epoll_wait(epoll, batch, BATCH, next_timeout());

		if (n < 0 && errno != EINTR)
			return -errno;
		batch_count = n < 0 ? 0 : n;
		for (int i = 0; i < batch_count; i++) {
			struct source *s = batch[i].data.ptr;

			if (s)
				s->ready(s, batch[i].events);
		}
		batch_count = 0;
		run_late();
	}
	return 0;
}

void loop_stop(void)
{
	stopped = true;
}
