#include "command_agent.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/err.h"

enum { AGENTS_MAX = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_agent playing;
static void *playing_arg;
static bool playing_wait;
static int refuse_error;
static unsigned refuse_times;
static pthread_t agents[AGENTS_MAX];
static unsigned agents_count;

struct start {
	struct fake_conn conn;
	fake_agent agent;
	bool wait;
};

/* HELLO and the request. */
static bool hear_both(struct fake_conn *c)
{
	for (int i = 0; i < 2; i++)
		if (!fake_next(c))
			return false;
	return true;
}

static void *agent_main(void *arg)
{
	struct start *s = arg;

	frame_reader_init(&s->conn.in, AGENT_MESSAGE_MAX);
	if (!s->wait || hear_both(&s->conn))
		s->agent(&s->conn);
	close(s->conn.fd);
	frame_reader_release(&s->conn.in);
	free(s);
	return NULL;
}

static int fake_dial(const char *id, struct err *e)
{
	struct start *s;
	int pair[2], r = 0;

	(void)id;
	pthread_mutex_lock(&lock);
	if (refuse_times) {
		refuse_times--;
		r = err_set(e, refuse_error, "refused");
	} else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		r = err_set(e, errno, "socketpair: %m");
	} else {
		s = calloc(1, sizeof(*s));
		s->conn.fd = pair[1];
		s->conn.number = agents_count;
		s->conn.arg = playing_arg;
		s->agent = playing;
		s->wait = playing_wait;
		if (agents_count == AGENTS_MAX ||
		    pthread_create(&agents[agents_count++], NULL, agent_main, s))
			abort();
		r = pair[0];
	}
	pthread_mutex_unlock(&lock);
	return r;
}

const struct backend fake_backend = { .name = "fake", .dial = fake_dial };

void fake_play(fake_agent agent, void *arg, bool wait)
{
	pthread_mutex_lock(&lock);
	playing = agent;
	playing_arg = arg;
	playing_wait = wait;
	pthread_mutex_unlock(&lock);
}

void fake_refuse(int error, unsigned times)
{
	pthread_mutex_lock(&lock);
	refuse_error = error;
	refuse_times = times;
	pthread_mutex_unlock(&lock);
}

unsigned fake_connections(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = agents_count;
	pthread_mutex_unlock(&lock);
	return n;
}

void fake_reset(void)
{
	unsigned n = fake_connections();

	for (unsigned i = 0; i < n; i++)
		pthread_join(agents[i], NULL);
	pthread_mutex_lock(&lock);
	agents_count = 0;
	refuse_times = 0;
	pthread_mutex_unlock(&lock);
}

bool fake_next(struct fake_conn *c)
{
	for (;;) {
		int r = frame_reader_next(&c->in, &c->m);

		if (r)
			return r > 0;
		if (frame_reader_fill(&c->in, c->fd) <= 0)
			return false;
	}
}

void fake_send(struct fake_conn *c, struct buf *out)
{
	size_t at = 0;

	while (at < out->len) {
		ssize_t n = send(c->fd, out->data + at, out->len - at, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	buf_release(out);
}

void fake_hello(struct buf *out)
{
	agent_put_hello(out, 0);
}

void fake_started(struct buf *out)
{
	agent_put_started(
		out, &(struct agent_started){
			     .pid = 42, .cwd = "/workspace", .user = "skerry", .warning = "" });
}

void fake_output(struct buf *out, int stream, uint64_t offset, const void *data, size_t len)
{
	agent_put_output(out, &(struct agent_output){ (uint8_t)stream, offset, data, len });
}

void fake_stdin_ack(struct buf *out, uint64_t taken)
{
	agent_put_stdin_ack(out, taken);
}

void fake_exit(struct buf *out, uint32_t code, uint64_t out_total, uint64_t err_total)
{
	agent_put_exit(out, &(struct agent_exit){ .reason = REASON_EXITED,
						  .code = code,
						  .total = { out_total, err_total } });
}
