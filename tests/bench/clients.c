/*
 * clients ADDRESS TOKEN CLIENTS CALLS SANDBOX...: what one `POST exec` of ["/bin/true"] takes while
 * many clients make them. ADDRESS is the path of api.sock, or a port of the loopback.
 *
 * Each byte on standard input is one step: CLIENTS threads, each with a connection of its own that it
 * keeps, make CALLS calls one after the other, the sandboxes in turn. The answer is a line with the
 * nanoseconds of every call. A call that fails ends the program. Run by bench.py.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { ANSWER_MAX = 16 * 1024, CLIENTS_MAX = 256 };

static const char *address, *token;
static char **sandboxes;
static unsigned sandboxes_count, clients, calls;

struct client {
	pthread_t thread;
	unsigned number;
	uint64_t *took;
};

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "clients: %s: %s\n", what, why);
	exit(1);
}

static int connect_tcp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(address)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("connect", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static int connect_api(void)
{
	int fd = *address == '/' ? unix_connect(address, SOCK_STREAM) : connect_tcp();

	if (fd < 0)
		die("connect", strerror(-fd));
	return fd;
}

/* The answer, its body included. */
static void answer(int fd, char text[ANSWER_MAX])
{
	size_t have = 0;

	for (;;) {
		ssize_t n = read(fd, text + have, ANSWER_MAX - 1 - have);
		const char *body, *length;

		if (n <= 0)
			die("read", n ? strerror(errno) : "the connection ended");
		have += (size_t)n;
		text[have] = '\0';
		body = strstr(text, "\r\n\r\n");
		length = body ? strcasestr(text, "\r\ncontent-length:") : NULL;
		if (length && (size_t)(text + have - (body + 4)) >=
				      strtoul(length + strlen("\r\ncontent-length:"), NULL, 10))
			return;
	}
}

static void call(int fd, const char *sandbox)
{
	static const char body[] = "{\"args\":[\"/bin/true\"]}";
	char text[ANSWER_MAX];
	int len = snprintf(text, sizeof(text),
			   "POST /workspaces/default/sandboxes/%s/exec HTTP/1.1\r\n"
			   "Host: localhost\r\nAuthorization: Bearer %s\r\n"
			   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			   sandbox, token, sizeof(body) - 1, body);

	if (write_all(fd, text, (size_t)len) < 0)
		die("write", strerror(errno));
	answer(fd, text);
	if (strncmp(text, "HTTP/1.1 200", 12) != 0 || !strstr(text, "\"exit_code\":0"))
		die("exec", text);
}

static void *work(void *arg)
{
	struct client *c = arg;
	int fd = connect_api();

	for (unsigned i = 0; i < calls; i++) {
		uint64_t begin = clock_mono_ns();

		call(fd, sandboxes[(c->number + i) % sandboxes_count]);
		c->took[i] = clock_mono_ns() - begin;
	}
	close(fd);
	return NULL;
}

static void burst(struct client *all)
{
	for (unsigned i = 0; i < clients; i++) {
		if (pthread_create(&all[i].thread, NULL, work, &all[i]))
			die("start a thread", strerror(errno));
	}
	for (unsigned i = 0; i < clients; i++)
		pthread_join(all[i].thread, NULL);
	for (unsigned i = 0; i < clients * calls; i++)
		printf("%llu ", (unsigned long long)all[i / calls].took[i % calls]);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct client all[CLIENTS_MAX];

	if (argc < 6)
		return 2;
	address = argv[1];
	token = argv[2];
	clients = (unsigned)strtoul(argv[3], NULL, 10);
	calls = (unsigned)strtoul(argv[4], NULL, 10);
	sandboxes = argv + 5;
	sandboxes_count = (unsigned)argc - 5;
	if (!clients || clients > CLIENTS_MAX || !calls)
		return 2;
	for (unsigned i = 0; i < clients; i++) {
		all[i] = (struct client){ .number = i, .took = calloc(calls, sizeof(uint64_t)) };
		if (!all[i].took)
			die("memory", strerror(errno));
	}
	while (getchar() != EOF)
		burst(all);
	return 0;
}
