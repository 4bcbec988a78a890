#include "server.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#include "job.h"
#include "machine.h"
#include "ready.h"
#include "verbs.h"

enum { BACKLOG = 8, CLIENTS_MAX = 16, JOBS_MAX = 4096 };

struct client {
	struct source source; /* first */
	bool hello;
	struct client *next;
};

static struct {
	const struct conf *conf;
	struct source listener;
	struct client *clients;
	unsigned clients_count, jobs_count;
	struct job *jobs; /* all, so that a client that leaves can be struck from them */
} srv;

static void client_close(struct client *c)
{
	struct client **at = &srv.clients;

	for (struct job *j = srv.jobs; j; j = j->all_next) {
		if (j->client == c)
			j->client = NULL;
	}
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	srv.clients_count--;
	ready_drop_all(c);
	loop_remove(&c->source);
	close(c->source.fd);
	free(c);
}

static void send_message(struct client *c, const struct keeper_head *h, const void *payload, int fd)
{
	char message[KEEPER_MESSAGE_MAX];
	ssize_t r;

	memcpy(message, h, sizeof(*h));
	if (h->size)
		memcpy(message + sizeof(*h), payload, h->size);
	r = send_fds(c->source.fd, message, sizeof(*h) + h->size, &fd, fd >= 0);
	if (r == -EAGAIN)
		log_warn("a client does not read its replies: its connection ends");
	if (r < 0)
		shutdown(c->source.fd, SHUT_RDWR); /* closed by the loop, not under our feet */
}

static void job_free(struct job *j)
{
	struct machine *m = j->machine;
	struct job **at = &srv.jobs;

	while (*at != j)
		at = &(*at)->all_next;
	*at = j->all_next;
	srv.jobs_count--;
	close_p(&j->fd);
	if (m)
		machine_dequeue(m);
	free(j);
}

void job_done(struct job *j, const void *payload, size_t len, int fd)
{
	const struct keeper_head h = { .verb = j->req.verb,
				       .size = (uint32_t)len,
				       .seq = j->req.seq };

	if (j->client)
		send_message(j->client, &h, payload, fd);
	job_free(j);
}

void job_fail(struct job *j, const struct err *e)
{
	struct keeper_failure f = { 0 };
	const struct keeper_head h = {
		.verb = j->req.verb,
		.size = sizeof(f),
		.seq = j->req.seq,
		.status = e->code ? -e->code : -EIO,
	};

	if (e->reason)
		str_copy(f.reason, sizeof(f.reason), e->reason);
	str_copy(f.text, sizeof(f.text), e->text);
	if (j->client)
		send_message(j->client, &h, &f, -1);
	job_free(j);
}

void server_event(uint32_t verb, const void *payload, size_t len)
{
	const struct keeper_head h = { .verb = verb, .size = (uint32_t)len };

	for (struct client *c = srv.clients; c; c = c->next) {
		if (c->hello)
			send_message(c, &h, payload, -1);
	}
}

/* Makes the job of a message, or NULL for one that no client of ours sends. A descriptor it takes is
 * -1 afterwards. */
static struct job *make_job(struct client *c, const char *message, size_t len, int *fd,
			    unsigned fds)
{
	struct job *j;

	if (srv.jobs_count == JOBS_MAX || !(j = calloc(1, sizeof(*j))))
		return NULL;
	if (!request_parse(message, len, fds, srv.conf->slots_max, &j->req) ||
	    (!c->hello && j->req.verb != KEEPER_HELLO)) {
		free(j);
		return NULL;
	}
	j->client = c;
	j->fd = fds ? take_fd(fd) : -1;
	j->all_next = srv.jobs;
	srv.jobs = j;
	srv.jobs_count++;
	return j;
}

static void dispatch(struct job *j)
{
	const struct verb *v = verb_find(j->req.verb);
	struct machine *m;

	if (j->req.verb == KEEPER_HELLO)
		j->client->hello = true;
	if (!v->machine) {
		v->run(j);
		return;
	}
	m = machine_get(v->machine(j));
	if (m) {
		machine_enqueue(m, j, v->run);
	} else {
		struct err e = ERR_INIT;

		err_set(&e, ENOMEM, "%s: out of memory", v->name);
		job_fail(j, &e);
	}
}

static void on_message(struct source *s, uint32_t events)
{
	struct client *c = (struct client *)s;
	char message[KEEPER_MESSAGE_MAX];
	int fds[FDS_MAX];
	unsigned count = 0;
	struct job *j;
	ssize_t n;

	(void)events;
	n = recv_fds(s->fd, message, sizeof(message), fds, &count, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		if (n == -EMSGSIZE)
			log_warn("a client sent a message that is too long");
		client_close(c);
		return;
	}
	j = make_job(c, message, (size_t)n, &fds[0], count);
	for (unsigned i = 0; i < FDS_MAX; i++)
		close_p(&fds[i]);
	if (!j) {
		log_warn("a client sent a malformed message: its connection ends");
		client_close(c);
		return;
	}
	dispatch(j);
}

static bool allowed(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       (peer.uid == 0 || peer.uid == srv.conf->uid);
}

static void on_connect(struct source *s, uint32_t events)
{
	_cleanup_close_ int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *c;

	(void)events;
	if (fd < 0 || !allowed(fd) || srv.clients_count == CLIENTS_MAX)
		return;
	c = calloc(1, sizeof(*c));
	if (!c)
		return;
	c->source = (struct source){ .fd = fd, .ready = on_message };
	if (loop_add(&c->source, EPOLLIN) < 0) {
		free(c);
		return;
	}
	c->next = srv.clients;
	srv.clients = c;
	srv.clients_count++;
	(void)take_fd(&fd);
}

int server_init(const struct conf *c, struct err *e)
{
	char path[PATH_MAX];
	int fd;

	srv.conf = c;
	snprintf(path, sizeof(path), "%.*s/keeper.sock", PATH_MAX - 16, c->run_dir);
	fd = unix_listen(path, SOCK_SEQPACKET, 0660, BACKLOG);
	if (fd < 0)
		return err_set(e, fd, "listen on '%s': %m", path);
	if (chown(path, 0, c->gid) < 0)
		return err_set(e, errno, "chown '%s': %m", path);
	srv.listener = (struct source){ .fd = fd, .ready = on_connect };
	return loop_add(&srv.listener, EPOLLIN);
}
