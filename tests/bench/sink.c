/*
 * sink ADDRESS TOKEN SANDBOX BYTES: how fast the output of a command arrives, beside a plain pipe.
 * ADDRESS is the path of api.sock, or a port of the loopback.
 *
 * Each byte on standard input is one step, answered by a line with the nanoseconds from the request
 * to the end of what came:
 *
 *   p   `head -c BYTES /dev/zero` started here, read from a pipe
 *   s   the same in the sandbox, over GET exec
 *
 * Both readers take what comes into one buffer and count it; a wrong count ends the program. Run by
 * bench.py.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum {
	BUFFER = 256 * 1024,
	TEXT_MAX = 4096,
	SHORT_MAX = 125,
	TEXT_FRAME = 0x81,
	BINARY_FRAME = 0x82
};

static const char *address, *token, *sandbox, *count;
static unsigned char buffer[BUFFER];

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "sink: %s: %s\n", what, strerror(errno));
	exit(1);
}

static size_t take(int fd, void *to, size_t len)
{
	ssize_t n;

	do
		n = read(fd, to, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		die("read");
	return (size_t)n;
}

/* -- a plain pipe -------------------------------------------------------------------------------- */

static pid_t start(int out)
{
	char *const argv[] = { (char *)"head", (char *)"-c", (char *)count, (char *)"/dev/zero",
			       NULL };
	posix_spawn_file_actions_t files;
	pid_t pid;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, out, 1);
	errno = posix_spawn(&pid, "/usr/bin/head", &files, NULL, argv, environ);
	if (errno)
		die("head");
	posix_spawn_file_actions_destroy(&files);
	return pid;
}

static uint64_t from_pipe(void)
{
	uint64_t total = 0;
	int ends[2], status;
	size_t n;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		die("pipe");
	pid = start(ends[1]);
	close(ends[1]);
	while ((n = take(ends[0], buffer, sizeof(buffer))))
		total += n;
	close(ends[0]);
	if (waitpid(pid, &status, 0) < 0 || status)
		die("head");
	return total;
}

/* -- GET exec ------------------------------------------------------------------------------------ */

static int connect_tcp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(address)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("connect");
	return fd;
}

static int connect_api(void)
{
	int fd = *address == '/' ? unix_connect(address, SOCK_STREAM) : connect_tcp();

	if (fd < 0)
		die("connect");
	return fd;
}

static void say(int fd, const char *text, size_t len)
{
	if (write_all(fd, text, len) < 0)
		die("write");
}

static void upgrade(int fd)
{
	char text[TEXT_MAX] = "";
	size_t have = 0;

	dprintf(fd,
		"GET /workspaces/default/sandboxes/%s/exec HTTP/1.1\r\nHost: localhost\r\n"
		"Authorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2tlcnJ5IGJlbmNobWFyaw==\r\n\r\n",
		sandbox, token);
	while (have < 4 || memcmp(text + have - 4, "\r\n\r\n", 4) != 0) {
		if (have == sizeof(text) || !take(fd, text + have, 1))
			die("upgrade");
		have++;
	}
	if (strncmp(text, "HTTP/1.1 101", 12) != 0)
		die("refused");
}

/* The first frame, with a mask of zeros. */
static void ask(int fd)
{
	char frame[6 + SHORT_MAX + 1];
	int len = snprintf(frame + 6, SHORT_MAX + 1,
			   "{\"args\":[\"head\",\"-c\",\"%s\",\"/dev/zero\"]}", count);

	frame[0] = (char)TEXT_FRAME;
	frame[1] = (char)(0x80 | len);
	memset(frame + 2, 0, 4);
	say(fd, frame, 6 + (size_t)len);
}

struct frames {
	int fd;
	size_t at, end; /* of the buffer */
};

static void more(struct frames *f)
{
	memmove(buffer, buffer + f->at, f->end - f->at);
	f->end -= f->at;
	f->at = 0;
	size_t n = take(f->fd, buffer + f->end, sizeof(buffer) - f->end);

	if (!n)
		die("the stream ended early");
	f->end += n;
}

static unsigned char *want(struct frames *f, size_t len)
{
	while (f->end - f->at < len)
		more(f);
	return buffer + f->at;
}

/* The length of the next frame, of at most 64 KiB; its head is taken. */
static size_t head(struct frames *f, unsigned char *ret_kind)
{
	const unsigned char *p = want(f, 4);
	size_t len = p[1];

	*ret_kind = p[0];
	if (len == 127)
		die("a long frame");
	f->at += len == 126 ? 4 : 2;
	return len == 126 ? (size_t)p[2] << 8 | p[3] : len;
}

/* Past `len` bytes of payload, as they come. */
static void pass(struct frames *f, size_t len)
{
	while (len) {
		size_t here = f->end - f->at;

		if (here >= len) {
			f->at += len;
			return;
		}
		len -= here;
		f->at = f->end = 0;
		more(f);
	}
}

static uint64_t from_api(void)
{
	struct frames f = { .fd = connect_api() };
	uint64_t total = 0;

	upgrade(f.fd);
	ask(f.fd);
	for (;;) {
		unsigned char kind;
		size_t len = head(&f, &kind);

		if (kind == BINARY_FRAME) {
			total += len - 1;
		} else if (kind == TEXT_FRAME && memmem(want(&f, len), len, "\"exit\"", 6)) {
			break;
		} else if (kind == TEXT_FRAME && !memmem(want(&f, len), len, "\"started\"", 9)) {
			die("an unexpected word");
		}
		pass(&f, len);
	}
	close(f.fd);
	return total;
}

int main(int argc, char **argv)
{
	int step;

	if (argc != 5)
		return 2;
	address = argv[1];
	token = argv[2];
	sandbox = argv[3];
	count = argv[4];
	while ((step = getchar()) != EOF) {
		uint64_t begin = clock_mono_ns(), total = step == 'p' ? from_pipe() : from_api();

		if (total != strtoull(count, NULL, 10))
			die("not all came");
		printf("%llu\n", (unsigned long long)(clock_mono_ns() - begin));
		fflush(stdout);
	}
	return 0;
}
