/*
 * The watch thread: pumps all commands that run in the background.
 *
 * A command gets one turn for each time its connection has something, and a turn reads no more than
 * a frame's worth, so a flood from one sandbox does not hold up the others.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include "daemon/sandbox/command_live.h"

enum { EVENTS = 64, RETRY_EPOLL_MS = 100 };

static struct {
	pthread_t thread;
	int epoll;
	int wake; /* eventfd: there is something new below */
	pthread_mutex_t lock;
	bool running;
	bool stopping;
	struct command *handed; /* not seen by the thread yet */
	/* the thread's own */
	struct command *watched;
	uint64_t wake_ns; /* no command wants a turn before this time */
} watch = { .epoll = -1, .wake = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

static void link_command(struct command **list, struct command *c)
{
	c->next = *list;
	c->prev = list;
	if (c->next)
		c->next->prev = &c->next;
	*list = c;
}

static void unlink_command(struct command *c)
{
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

/* The epoll set as the command wants it. A descriptor that was closed has left the set by itself,
 * and a new connection may have the old one's number, so `fresh` tells. 0 or a negative errno. */
static int set_interest(struct command *c, bool fresh)
{
	short events = command_events(c);
	struct epoll_event ev = { .data.ptr = c };
	int op;

	if (events == 0) {
		c->watched_fd = -1;
		return 0;
	}
	if (!fresh && c->watched_fd == c->conn.fd && c->watched_events == events)
		return 0;
	op = !fresh && c->watched_fd == c->conn.fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	ev.events = (events & POLLIN ? EPOLLIN : 0u) | (events & POLLOUT ? EPOLLOUT : 0u);
	if (epoll_ctl(watch.epoll, op, c->conn.fd, &ev) < 0)
		return -errno;
	c->watched_fd = c->conn.fd;
	c->watched_events = events;
	return 0;
}

static void finish(struct command *c)
{
	unlink_command(c);
	if (c->done)
		c->done(c->done_arg, c->sandbox, c->id, &c->result);
	command_free(c);
}

static void turn(struct command *c, short revents)
{
	uint64_t now = clock_mono_ns(), made = c->connected_ns, wake;

	command_turn(c, revents, now);
	if (c->state == LIVE_ENDED) {
		finish(c);
		return;
	}
	wake = command_wake_ns(c);
	if (set_interest(c, made != c->connected_ns) < 0) {
		c->watched_fd = -1;
		wake = now + RETRY_EPOLL_MS * NS_PER_MS; /* pumped by the clock meanwhile */
	}
	if (wake < watch.wake_ns)
		watch.wake_ns = wake;
}

/* Gives a turn to those whose time has come. */
static void turn_by_clock(void)
{
	uint64_t now = clock_mono_ns();
	struct command *next;

	if (now < watch.wake_ns)
		return;
	watch.wake_ns = UINT64_MAX;
	for (struct command *c = watch.watched; c; c = next) {
		uint64_t wake = command_wake_ns(c);

		next = c->next;
		if (wake <= now || (command_events(c) && c->watched_fd < 0))
			turn(c, 0);
		else if (wake < watch.wake_ns)
			watch.wake_ns = wake;
	}
}

/* Those who wait for a viewer: one has moved on. */
static void turn_held(void)
{
	struct command *next;

	for (struct command *c = watch.watched; c; c = next) {
		next = c->next;
		if (c->hold.held)
			turn(c, 0);
	}
}

/* Takes over what was handed in; false when the thread is to end. */
static bool take_handed(void)
{
	struct command *list;
	uint64_t count;
	bool stopping;

	if (read(watch.wake, &count, sizeof(count)) < 0 && errno != EAGAIN && errno != EINTR)
		log_error("watch: %s", strerror(errno));
	pthread_mutex_lock(&watch.lock);
	list = watch.handed;
	watch.handed = NULL;
	stopping = watch.stopping;
	pthread_mutex_unlock(&watch.lock);
	while (list) {
		struct command *c = list;

		list = c->next;
		link_command(&watch.watched, c);
		live_wake_by(c->id, watch.wake);
		if (!stopping)
			turn(c, 0);
	}
	return !stopping;
}

static short poll_events(uint32_t events)
{
	return (short)((events & EPOLLIN ? POLLIN : 0) | (events & EPOLLOUT ? POLLOUT : 0) |
		       (events & EPOLLHUP ? POLLHUP : 0) | (events & EPOLLERR ? POLLERR : 0));
}

static void *watch_main(void *arg)
{
	struct epoll_event ev[EVENTS];
	bool going = true;

	(void)arg;
	while (going) {
		int n = epoll_wait(watch.epoll, ev, EVENTS, clock_left_ms(watch.wake_ns));
		bool handed = false;

		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr)
				turn(ev[i].data.ptr, poll_events(ev[i].events));
			else
				handed = true;
		}
		turn_by_clock();
		if (handed) {
			going = take_handed();
			turn_held();
		}
	}
	while (watch.watched) {
		struct command *c = watch.watched;

		live_wake_by(c->id, -1);
		unlink_command(c);
		command_free(c);
	}
	return NULL;
}

void command_background(struct command *c,
			void (*done)(void *arg, const char *sandbox, const char *id,
				     const struct command_result *result),
			void *arg)
{
	const uint64_t one = 1;
	bool running;

	c->done = done;
	c->done_arg = arg;
	pthread_mutex_lock(&watch.lock);
	running = watch.running && !watch.stopping;
	if (running) {
		c->next = watch.handed;
		watch.handed = c;
		/* cannot fail: the counter does not come near its end */
		if (write(watch.wake, &one, sizeof(one)) < 0)
			log_error("watch: %s", strerror(errno));
	}
	pthread_mutex_unlock(&watch.lock);
	if (!running)
		command_free(c);
}

static int start_thread(void)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&watch.thread, NULL, watch_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int command_watch_start(struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int r = 0;

	watch.stopping = false;
	watch.handed = watch.watched = NULL;
	watch.wake_ns = UINT64_MAX;
	watch.epoll = epoll_create1(EPOLL_CLOEXEC);
	watch.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watch.epoll < 0 || watch.wake < 0 ||
	    epoll_ctl(watch.epoll, EPOLL_CTL_ADD, watch.wake, &ev) < 0)
		r = -errno;
	if (!r)
		r = start_thread();
	if (r < 0) {
		close_p(&watch.epoll);
		close_p(&watch.wake);
		return err_set(e, r, "start the watch thread: %s", strerror(-r));
	}
	watch.running = true;
	return 0;
}

void command_watch_stop(void)
{
	const uint64_t one = 1;

	if (!watch.running)
		return;
	pthread_mutex_lock(&watch.lock);
	watch.stopping = true;
	if (write(watch.wake, &one, sizeof(one)) < 0)
		log_error("watch: %s", strerror(errno));
	pthread_mutex_unlock(&watch.lock);
	pthread_join(watch.thread, NULL);
	pthread_mutex_lock(&watch.lock);
	watch.running = false;
	close_p(&watch.epoll);
	close_p(&watch.wake);
	pthread_mutex_unlock(&watch.lock);
}
