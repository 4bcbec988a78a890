#include "backend_keeper.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"

const char fake_keeper_path[] = "fake-keeper.sock";
struct keeper_hello_reply fake_keeper_hello = {
	.version = KEEPER_VERSION,
	.slots_max = 100,
	.limits = 0xff,
	.host_cpus = 2,
	.host_memory = 1 << 30,
	.agent_dir = "/nonexistent",
	.boot_id = "boot",
	.notes = "a note",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static int listener = -1, conn = -1;
static int stop_pipe[2];
static unsigned connections;
static fake_handler handle;

void fake_keeper_raw(const void *data, size_t len, int fd)
{
	pthread_mutex_lock(&lock);
	if (conn >= 0)
		send_fds(conn, data, len, &fd, fd >= 0 ? 1 : 0);
	pthread_mutex_unlock(&lock);
}

void fake_keeper_answer(const struct keeper_head *to, int status, const void *data, size_t len,
			int fd)
{
	unsigned char message[sizeof(struct keeper_head) + KEEPER_MESSAGE_MAX];
	struct keeper_head head = {
		.verb = to->verb, .size = (uint32_t)len, .seq = to->seq, .status = status
	};

	memcpy(message, &head, sizeof(head));
	if (len)
		memcpy(message + sizeof(head), data, len);
	fake_keeper_raw(message, sizeof(head) + len, fd);
}

void fake_keeper_fail(const struct keeper_head *to, int status, const char *reason,
		      const char *text)
{
	struct keeper_failure f = { 0 };

	str_copy(f.reason, sizeof(f.reason), reason);
	str_copy(f.text, sizeof(f.text), text);
	fake_keeper_answer(to, status, &f, sizeof(f), -1);
}

void fake_keeper_exit(const char *id, uint32_t slot)
{
	struct keeper_event_exit x = { .slot = slot, .exit_known = 1, .code = 3 };
	const struct keeper_head head = { .verb = KEEPER_EVENT_EXIT };

	str_copy(x.id, sizeof(x.id), id);
	fake_keeper_answer(&head, 0, &x, sizeof(x), -1);
}

int fake_keeper_file(const void *data, size_t len)
{
	int fd = memfd_create("list", MFD_CLOEXEC);

	if (fd < 0 || write_all(fd, data, len) < 0)
		abort();
	return fd;
}

/* False at the end of the connection. */
static bool serve_one(int sock)
{
	unsigned char message[sizeof(struct keeper_head) + KEEPER_MESSAGE_MAX];
	struct fake_request q = { .fd = -1 };
	int fds[FDS_MAX];
	unsigned n;
	ssize_t len = recv_fds(sock, message, sizeof(message), fds, &n, 0);

	if (len < (ssize_t)sizeof(q.head))
		return false;
	memcpy(&q.head, message, sizeof(q.head));
	if (q.head.size != (size_t)len - sizeof(q.head))
		abort();
	memcpy(q.body, message + sizeof(q.head), q.head.size);
	q.fd = fds[0];
	if (q.head.verb == KEEPER_HELLO) {
		const struct keeper_hello *h = (const struct keeper_hello *)q.body;

		if (h->version != KEEPER_VERSION || h->sizes != keeper_sizes())
			abort();
		fake_keeper_answer(&q.head, 0, &fake_keeper_hello, sizeof(fake_keeper_hello), -1);
	} else {
		handle(&q);
	}
	close_p(&q.fd);
	return true;
}

static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		struct pollfd p[2] = { { .fd = conn >= 0 ? conn : listener, .events = POLLIN },
				       { .fd = stop_pipe[0], .events = POLLIN } };

		if (poll(p, 2, -1) < 0)
			abort();
		if (p[1].revents)
			return NULL;
		if (conn >= 0 && serve_one(conn))
			continue;
		pthread_mutex_lock(&lock);
		if (conn >= 0) {
			close_p(&conn);
		} else {
			conn = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			connections++;
		}
		pthread_mutex_unlock(&lock);
	}
}

void fake_keeper_start(fake_handler handler)
{
	handle = handler;
	listener = unix_listen(fake_keeper_path, SOCK_SEQPACKET, 0600, 8);
	if (listener < 0 || pipe(stop_pipe) < 0 || pthread_create(&thread, NULL, serve, NULL))
		abort();
}

void fake_keeper_stop(void)
{
	if (write(stop_pipe[1], "x", 1) != 1)
		abort();
	pthread_join(thread, NULL);
	close_p(&conn);
	close_p(&listener);
	close_p(&stop_pipe[0]);
	close_p(&stop_pipe[1]);
	unlink(fake_keeper_path);
}

void fake_keeper_cut(void)
{
	pthread_mutex_lock(&lock);
	if (conn >= 0)
		shutdown(conn, SHUT_RDWR);
	pthread_mutex_unlock(&lock);
}

unsigned fake_keeper_connections(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = connections;
	pthread_mutex_unlock(&lock);
	return n;
}

void wait_for(bool (*check)(void), const char *what)
{
	for (int i = 0; i < 60000; i++) {
		if (check())
			return;
		usleep(1000);
	}
	fprintf(stderr, "never happened: %s\n", what);
	abort();
}
