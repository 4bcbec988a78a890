#include "daemon/backend/keeper_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include "daemon/backend/words.h"

enum { HELLO_WAIT_MS = 5000, DELAY_FIRST_MS = 10 };

/* A caller that waits; lives on its stack, linked while unanswered. */
struct pending {
	uint64_t seq;
	const struct keeper_call *call;
	pthread_cond_t done_cond;
	bool done;
	bool lost; /* the connection ended first */
	int status;
	int fd;
	struct keeper_failure failure;
	struct pending *next;
};

struct keeper_client {
	char *path;
	struct keeper_client_hooks hooks;
	pthread_t reader;
	pthread_mutex_t send_lock; /* taken before `lock`, held while a message is sent */
	pthread_mutex_t lock;      /* everything below */
	pthread_cond_t changed;    /* `up` or `stopping` changed */
	int sock;                  /* closed by the reader only, under both locks */
	bool up;
	bool stopping;
	uint64_t last_seq;
	struct pending *pending;
	struct keeper_hello_reply hello;
};

/* A message as received; `fds` are closed unless taken. */
struct packet {
	struct keeper_head head;
	union {
		unsigned char bytes[KEEPER_MESSAGE_MAX];
		uint64_t align;
	} body;
	int fds[FDS_MAX];
	unsigned fds_count;
};

static void packet_release(struct packet *p)
{
	for (unsigned i = 0; i < FDS_MAX; i++)
		close_p(&p->fds[i]);
}

bool keeper_text_ok(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static int err_lost(struct err *e, int code, const char *what)
{
	err_reason(e, code, "keeper_lost", "%s", what);
	if (e)
		err_hint(e, "skerry-keeper is not there or restarts: try again in a moment");
	return -code;
}

static int send_message(int sock, uint64_t seq, const struct keeper_call *call)
{
	unsigned char message[sizeof(struct keeper_head) + KEEPER_MESSAGE_MAX];
	struct keeper_head head = { .verb = call->verb, .size = call->request_size, .seq = seq };
	ssize_t n;

	if (call->request_size > KEEPER_MESSAGE_MAX)
		return -EMSGSIZE;
	memcpy(message, &head, sizeof(head));
	if (call->request_size)
		memcpy(message + sizeof(head), call->request, call->request_size);
	n = send_fds(sock, message, sizeof(head) + call->request_size, &call->fd,
		     call->fd >= 0 ? 1 : 0);
	return n < 0 ? (int)n : 0;
}

/* 0 and a message whose size is what its head says; -ECONNRESET at the end. */
static int recv_message(int sock, struct packet *ret)
{
	unsigned char message[sizeof(struct keeper_head) + KEEPER_MESSAGE_MAX];
	ssize_t n = recv_fds(sock, message, sizeof(message), ret->fds, &ret->fds_count, 0);

	if (n < 0)
		return (int)n;
	if ((size_t)n < sizeof(ret->head)) {
		packet_release(ret);
		return n ? -EPROTO : -ECONNRESET;
	}
	memcpy(&ret->head, message, sizeof(ret->head));
	if (ret->head.size != (size_t)n - sizeof(ret->head) || ret->head.status > 0) {
		packet_release(ret);
		return -EPROTO;
	}
	memcpy(ret->body.bytes, message + sizeof(ret->head), ret->head.size);
	return 0;
}

/* What the keeper answered must be exactly what the verb's answer is. */
static bool reply_fits(const struct packet *p, const struct keeper_call *call)
{
	const struct keeper_failure *f = (const struct keeper_failure *)p->body.bytes;

	if (p->head.verb != call->verb)
		return false;
	if (p->head.status < 0)
		return p->head.size == sizeof(*f) && p->fds_count == 0 && p->head.status >= -4095 &&
		       KEEPER_TEXT_OK(f->reason) && KEEPER_TEXT_OK(f->text);
	return p->head.size == call->reply_size && p->fds_count == (call->ret_fd ? 1u : 0u);
}

static int err_failure(struct err *e, int status, const struct keeper_failure *f)
{
	const char *text = f->text[0] ? f->text : strerror(-status);

	if (f->reason[0])
		return err_reason(e, status, word_intern(f->reason, "keeper_failed"), "%s", text);
	return err_set(e, status, "%s", text);
}

static bool hello_sound(const struct keeper_hello_reply *h)
{
	return h->version == KEEPER_VERSION && KEEPER_TEXT_OK(h->agent_dir) &&
	       KEEPER_TEXT_OK(h->gateway4) && KEEPER_TEXT_OK(h->gateway6) &&
	       KEEPER_TEXT_OK(h->boot_id) && KEEPER_TEXT_OK(h->notes) && h->agent_dir[0] == '/';
}

/* Says HELLO on a fresh connection and waits for the answer. */
static int exchange_hello(int sock, struct keeper_hello_reply *ret, struct err *e)
{
	const struct keeper_hello hello = { KEEPER_VERSION, keeper_sizes() };
	const struct keeper_call call = {
		.verb = KEEPER_HELLO,
		.request = &hello,
		.request_size = sizeof(hello),
		.fd = -1,
		.reply_size = sizeof(*ret),
	};
	struct pollfd pfd = { .fd = sock, .events = POLLIN };
	uint64_t deadline = clock_mono_ns() + HELLO_WAIT_MS * NS_PER_MS;
	struct packet p;
	int r = send_message(sock, 1, &call);

	if (r < 0)
		return err_lost(e, -r, "the keeper ended the connection");
	do
		r = poll(&pfd, 1, clock_left_ms(deadline));
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return err_lost(e, ETIMEDOUT, "the keeper does not answer");
	r = recv_message(sock, &p);
	if (r < 0)
		return err_lost(e, -r, "the keeper ended the connection");
	if (p.head.seq != 1 || !reply_fits(&p, &call) ||
	    (!p.head.status && !hello_sound((struct keeper_hello_reply *)p.body.bytes)))
		r = err_reason(e, EPROTO, "keeper_mismatch",
			       "skerryd and skerry-keeper are not of one version");
	else if (p.head.status < 0)
		r = err_failure(e, p.head.status, (struct keeper_failure *)p.body.bytes);
	else
		memcpy(ret, p.body.bytes, sizeof(*ret));
	packet_release(&p);
	return r;
}

static int connect_keeper(const char *path, struct keeper_hello_reply *ret, struct err *e)
{
	_cleanup_close_ int sock = unix_connect(path, SOCK_SEQPACKET);
	int r;

	if (sock < 0)
		return err_lost(e, -sock, "cannot reach the keeper");
	r = exchange_hello(sock, ret, e);
	return r < 0 ? r : take_fd(&sock);
}

/* Wakes the caller that waits for this answer. The lock is held. */
static int deliver_reply(struct keeper_client *k, struct packet *p)
{
	struct pending **at = &k->pending;
	struct pending *w;

	while (*at && (*at)->seq != p->head.seq)
		at = &(*at)->next;
	w = *at;
	if (!w || !reply_fits(p, w->call))
		return -EPROTO;
	w->status = p->head.status;
	if (w->status < 0)
		memcpy(&w->failure, p->body.bytes, sizeof(w->failure));
	else if (w->call->reply_size)
		memcpy(w->call->reply, p->body.bytes, w->call->reply_size);
	w->fd = take_fd(&p->fds[0]);
	w->done = true;
	*at = w->next;
	pthread_cond_signal(&w->done_cond);
	return 0;
}

static int deliver_event(struct keeper_client *k, const struct packet *p)
{
	const struct keeper_event_exit *x = (const struct keeper_event_exit *)p->body.bytes;

	if (p->head.verb != KEEPER_EVENT_EXIT || p->head.size != sizeof(*x) || p->fds_count ||
	    p->head.status || !KEEPER_TEXT_OK(x->id) || !id_valid(x->id, NULL))
		return -EPROTO;
	if (k->hooks.on_exit)
		k->hooks.on_exit(k->hooks.arg, x);
	return 0;
}

/* Serves the connection until it ends; the reason as a negative errno. */
static int read_messages(struct keeper_client *k)
{
	struct packet p;
	int r;

	for (;;) {
		r = recv_message(k->sock, &p);
		if (r < 0)
			return r;
		if (p.head.seq == 0) {
			r = deliver_event(k, &p);
		} else {
			pthread_mutex_lock(&k->lock);
			r = deliver_reply(k, &p);
			pthread_mutex_unlock(&k->lock);
		}
		packet_release(&p);
		if (r < 0)
			return r;
	}
}

/* Closes the connection and fails everybody who waits for an answer on it. */
static void drop_connection(struct keeper_client *k)
{
	/* wakes a sender that holds the send lock */
	shutdown(k->sock, SHUT_RDWR);
	pthread_mutex_lock(&k->send_lock);
	pthread_mutex_lock(&k->lock);
	close_p(&k->sock);
	k->up = false;
	while (k->pending) {
		struct pending *w = k->pending;

		k->pending = w->next;
		w->lost = true;
		w->done = true;
		pthread_cond_signal(&w->done_cond);
	}
	pthread_mutex_unlock(&k->lock);
	pthread_mutex_unlock(&k->send_lock);
}

static bool wait_until(struct keeper_client *k, uint64_t deadline_ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_SEC),
		.tv_nsec = (long)(deadline_ns % NS_PER_SEC),
	};

	return pthread_cond_timedwait(&k->changed, &k->lock, &t) == 0;
}

/* Sleeps; true when the client is being freed. */
static bool pause_reader(struct keeper_client *k, unsigned ms)
{
	uint64_t deadline = clock_mono_ns() + ms * NS_PER_MS;
	bool stopping;

	pthread_mutex_lock(&k->lock);
	while (!k->stopping && wait_until(k, deadline))
		;
	stopping = k->stopping;
	pthread_mutex_unlock(&k->lock);
	return stopping;
}

/* False, and the socket closed, when the client is being freed. */
static bool adopt_connection(struct keeper_client *k, int sock,
			     const struct keeper_hello_reply *hello)
{
	bool stopping;

	pthread_mutex_lock(&k->lock);
	stopping = k->stopping;
	if (!stopping) {
		k->sock = sock;
		k->hello = *hello;
		k->up = true;
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->lock);
	if (stopping)
		close(sock);
	return !stopping;
}

/* False when the client is being freed. */
static bool reconnect(struct keeper_client *k)
{
	unsigned delay = DELAY_FIRST_MS;
	char told[sizeof(((struct err *)0)->text)] = "";

	while (!pause_reader(k, delay)) {
		struct keeper_hello_reply hello;
		struct err e = ERR_INIT;
		int sock = connect_keeper(k->path, &hello, &e);

		if (sock >= 0) {
			if (!adopt_connection(k, sock, &hello))
				return false;
			log_notice("connected to the keeper again");
			return true;
		}
		if (!str_eq(told, e.text))
			log_warn("keeper: %s", e.text);
		str_copy(told, sizeof(told), e.text);
		delay *= 2;
		if (delay > KEEPER_CLIENT_DELAY_MAX_MS)
			delay = KEEPER_CLIENT_DELAY_MAX_MS;
	}
	return false;
}

static void *reader_main(void *arg)
{
	struct keeper_client *k = arg;

	for (;;) {
		int r = read_messages(k);
		bool stopping;

		drop_connection(k);
		pthread_mutex_lock(&k->lock);
		stopping = k->stopping;
		pthread_mutex_unlock(&k->lock);
		if (stopping)
			return NULL;
		log_warn("lost the keeper: %s", strerror(-r));
		if (k->hooks.on_lost)
			k->hooks.on_lost(k->hooks.arg);
		if (!reconnect(k))
			return NULL;
		if (k->hooks.on_reconnect)
			k->hooks.on_reconnect(k->hooks.arg, &k->hello);
	}
}

static void cond_init_mono(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

static int start_reader(struct keeper_client *k)
{
	sigset_t all, old;
	int r;

	/* signals are for the main thread */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&k->reader, NULL, reader_main, k);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

static void client_release(struct keeper_client *k)
{
	close_p(&k->sock);
	pthread_cond_destroy(&k->changed);
	pthread_mutex_destroy(&k->lock);
	pthread_mutex_destroy(&k->send_lock);
	free(k->path);
	free(k);
}

int keeper_client_new(const char *path, const struct keeper_client_hooks *hooks,
		      struct keeper_client **ret, struct err *e)
{
	struct keeper_client *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(e, ENOMEM, "out of memory");
	k->sock = -1;
	k->hooks = *hooks;
	k->last_seq = 1; /* HELLO's */
	pthread_mutex_init(&k->send_lock, NULL);
	pthread_mutex_init(&k->lock, NULL);
	cond_init_mono(&k->changed);
	k->path = strdup(path);
	r = k->path ? connect_keeper(path, &k->hello, e) : err_set(e, ENOMEM, "out of memory");
	if (r < 0) {
		client_release(k);
		return r;
	}
	k->sock = r;
	k->up = true;
	r = start_reader(k);
	if (r < 0) {
		client_release(k);
		return err_set(e, r, "start the keeper's reader: %s", strerror(-r));
	}
	*ret = k;
	return 0;
}

void keeper_client_free(struct keeper_client *k)
{
	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->stopping = true;
	if (k->up)
		shutdown(k->sock, SHUT_RDWR);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->reader, NULL);
	client_release(k);
}

/* Waits for a connection; 0, or -ECONNRESET when none came in time. The lock is held. */
static int wait_connected(struct keeper_client *k)
{
	uint64_t deadline = clock_mono_ns() + KEEPER_CLIENT_WAIT_MS * NS_PER_MS;

	while (!k->up)
		if (k->stopping || (!wait_until(k, deadline) && !k->up))
			return -ECONNRESET;
	return 0;
}

/* Waits for a connection, registers the call and sends it on that connection. */
static int submit(struct keeper_client *k, struct pending *w)
{
	int r;

	pthread_mutex_lock(&k->lock);
	r = w->call->at_once && !k->up ? -ECONNRESET : wait_connected(k);
	pthread_mutex_unlock(&k->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&k->send_lock);
	pthread_mutex_lock(&k->lock);
	r = k->up ? 0 : -ECONNRESET;
	if (!r) {
		w->seq = ++k->last_seq;
		w->next = k->pending;
		k->pending = w;
	}
	pthread_mutex_unlock(&k->lock);
	/* the socket cannot be closed while the send lock is held */
	if (!r && send_message(k->sock, w->seq, w->call) < 0)
		shutdown(k->sock, SHUT_RDWR); /* the reader fails the call with all others */
	pthread_mutex_unlock(&k->send_lock);
	return r;
}

int keeper_client_call(struct keeper_client *k, const struct keeper_call *call, struct err *e)
{
	struct pending w = { .call = call, .fd = -1 };
	int r;

	if (call->request_size > KEEPER_MESSAGE_MAX || call->reply_size > KEEPER_MESSAGE_MAX)
		return err_set(e, EMSGSIZE, "keeper request %u does not fit", call->verb);
	pthread_cond_init(&w.done_cond, NULL);
	r = submit(k, &w);
	if (!r) {
		pthread_mutex_lock(&k->lock);
		while (!w.done)
			pthread_cond_wait(&w.done_cond, &k->lock);
		pthread_mutex_unlock(&k->lock);
		r = w.status;
	} else {
		w.lost = true;
	}
	pthread_cond_destroy(&w.done_cond);
	if (w.lost)
		return err_lost(e, ECONNRESET, "the connection to the keeper was lost");
	if (r < 0)
		return err_failure(e, r, &w.failure);
	if (call->ret_fd)
		*call->ret_fd = w.fd;
	return 0;
}

void keeper_client_hello(struct keeper_client *k, struct keeper_hello_reply *ret)
{
	pthread_mutex_lock(&k->lock);
	*ret = k->hello;
	pthread_mutex_unlock(&k->lock);
}
