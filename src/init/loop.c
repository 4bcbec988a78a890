#include "init/loop.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

static int epoll_fd = -1;
static bool quit;
static struct timer *timers; /* sorted, the next to fire first */

int loop_init(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_fd < 0 ? -errno : 0;
}

void loop_quit(void)
{
	quit = true;
}

int source_open(struct source *s, int fd, uint32_t events,
		void (*ready)(struct source *s, uint32_t events))
{
	struct epoll_event ev = { .events = events, .data.ptr = s };
	int r = fd_nonblock(fd, 1);

	if (!r && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		r = -errno;
	if (r) {
		close(fd);
		return r;
	}
	*s = (struct source){ .fd = fd, .events = events, .ready = ready };
	return 0;
}

void source_want(struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };
	int op = !events ? EPOLL_CTL_DEL : s->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (s->fd < 0 || s->events == events)
		return;
	if (epoll_ctl(epoll_fd, op, s->fd, &ev) < 0)
		log_error("epoll_ctl: op=%d errno=%d", op, errno);
	else
		s->events = events;
}

void source_close(struct source *s)
{
	if (s->fd < 0)
		return;
	/* by hand: a child between fork and exec may still hold the file, and an entry lives as
	 * long as the file does */
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	close(s->fd);
	s->fd = -1;
}

void timer_set(struct timer *t, uint64_t at, void (*fire)(struct timer *t))
{
	struct timer **p = &timers;

	timer_cancel(t);
	while (*p && (*p)->at <= at)
		p = &(*p)->next;
	*t = (struct timer){ .at = at, .fire = fire, .next = *p, .armed = true };
	*p = t;
}

void timer_cancel(struct timer *t)
{
	struct timer **p = &timers;

	if (!t->armed)
		return;
	while (*p != t)
		p = &(*p)->next;
	*p = t->next;
	t->armed = false;
}

static void fire_timers(void)
{
	uint64_t now = clock_mono_ns();

	while (timers && timers->at <= now) {
		struct timer *t = timers;

		timers = t->next;
		t->armed = false;
		t->fire(t);
	}
}

static struct timespec left_until(uint64_t at)
{
	uint64_t now = clock_mono_ns(), left = at > now ? at - now : 0;

	return (struct timespec){ .tv_sec = (time_t)(left / NS_PER_SEC),
				  .tv_nsec = (long)(left % NS_PER_SEC) };
}

void loop_run(void)
{
	while (!quit) {
		struct epoll_event ev;
		struct timespec left = timers ? left_until(timers->at) : (struct timespec){ 0 };
		int n = epoll_pwait2(epoll_fd, &ev, 1, timers ? &left : NULL, NULL);

		if (n < 0 && errno != EINTR)
			log_error("epoll_wait: errno=%d", errno);
		if (n == 1) {
			struct source *s = ev.data.ptr;

			s->ready(s, ev.events);
		}
		fire_timers();
	}
}
