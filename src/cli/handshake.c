#include "handshake.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/accept.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include "http.h"

enum {
	KEY_BYTES = 16,
	KEY_MAX = 32,
	HEAD_MAX = 16 * 1024,
	REFUSAL_MAX = 64 * 1024, /* bytes of an error's body */
	ANSWER_MS = 60000,
	REFUSAL_MS = 5000, /* to come whole */
};

struct asked {
	struct cli *c;
	struct line *line;
	const char *path;
	char accept[ACCEPT_SIZE];
	struct buf in; /* head, and what came behind it */
	uint64_t deadline_ns;
	struct err *e;
};

static int make_key(struct buf *key, char accept[ACCEPT_SIZE])
{
	unsigned char random[KEY_BYTES];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	if (base64_encode(key, random, sizeof(random)) < 0)
		return -ENOMEM;
	accept_of_key(buf_str(key), accept);
	return *accept ? 0 : -ENOMEM;
}

/* Waits for the line, the deadline or an interruption. */
static int wait_line(struct asked *a, short events)
{
	struct pollfd p[] = {
		{ .fd = a->line->fd, .events = events },
		{ .fd = a->c->client->cancel_fd, .events = POLLIN },
	};
	int n = poll(p, ARRAY_SIZE(p), clock_left_ms(a->deadline_ns));

	if (n > 0 && p[1].revents)
		return err_reason(a->e, EINTR, REASON_INTERRUPTED, "interrupted");
	if (!n) {
		err_reason(a->e, ETIMEDOUT, REASON_CONNECTION, "no answer from %s in time",
			   a->c->conf.url.text);
		return err_hint(a->e, "try: skerry doctor");
	}
	return 0;
}

static int lost(struct asked *a)
{
	return err_reason(a->e, EIO, REASON_CONNECTION, "connection to %s lost",
			  a->c->conf.url.text);
}

static int send_all(struct asked *a, const struct buf *b)
{
	size_t at = 0;
	int r = 0;

	while (!r && at < b->len) {
		ssize_t n = a->line->send(a->line, b->data + at, b->len - at);

		if (n == -EAGAIN)
			r = wait_line(a, POLLOUT);
		else if (n < 0)
			r = lost(a);
		else
			at += (size_t)n;
	}
	return r;
}

static int ask(struct asked *a)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_MAX_LEN + HEAD_MAX), key = BUF_INIT(KEY_MAX);
	const struct line *l = a->line;
	int r = make_key(&key, a->accept);

	if (r < 0)
		return err_set(a->e, r, "no key for the connection: %s", strerror(-r));
	buf_addf(&b, "GET %s%s HTTP/1.1\r\nHost: %s\r\n", l->prefix, a->path, l->host);
	buf_addf(&b, "User-Agent: skerry/" SKERRY_VERSION "\r\n%s%s", l->auth ? l->auth : "",
		 l->auth ? "\r\n" : "");
	buf_addf(&b,
		 "Upgrade: websocket\r\nConnection: Upgrade\r\n"
		 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
		 buf_str(&key));
	r = b.failed ? err_set(a->e, b.failed, "a name is too long") : send_all(a, &b);
	if (b.data)
		explicit_bzero(b.data, b.len);
	return r;
}

/* Adds what comes to `in`. 1, or 0 at the end of the connection. */
static int more(struct asked *a)
{
	char data[4096];

	for (;;) {
		ssize_t n = a->line->recv(a->line, data, sizeof(data));

		if (n == -EAGAIN) {
			int r = wait_line(a, POLLIN);

			if (r < 0)
				return r;
			continue;
		}
		if (n <= 0)
			return n < 0 ? lost(a) : 0;
		if (buf_add(&a->in, data, (size_t)n) < 0)
			return err_reason(a->e, EMSGSIZE, REASON_ANSWER,
					  "the answer of %s is too long", a->c->conf.url.text);
		return 1;
	}
}

/* The length of the head with its empty line, or a negative errno. */
static int take_head(struct asked *a)
{
	for (;;) {
		const char *end = a->in.len ? memmem(a->in.data, a->in.len, "\r\n\r\n", 4) : NULL;
		int r;

		if (end)
			return (int)(end - a->in.data) + 4;
		if (a->in.len > HEAD_MAX)
			return err_reason(a->e, EMSGSIZE, REASON_ANSWER,
					  "the answer of %s is no HTTP", a->c->conf.url.text);
		r = more(a);
		if (r <= 0)
			return r < 0 ? r : lost(a);
	}
}

static void head_value(const struct asked *a, int head, const char *name, char *out, size_t size)
{
	const char *p = a->in.data, *end = p + head;

	*out = '\0';
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((nl ? nl : end) - p);

		if (!*out)
			http_header(p, len, name, out, size);
		p += len + 1;
	}
}

static int head_status(const struct asked *a)
{
	const char *p = a->in.data;

	if (a->in.len < strlen("HTTP/1.1 200") || !str_starts(p, "HTTP/1.") || p[8] != ' ' ||
	    strspn(p + 9, "0123456789") < 3)
		return 0;
	return (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
}

/* The body of a refusal, as far as it comes; what is missing is missing in the text only. */
static int refused(struct asked *a, int head, int status)
{
	const struct request request = { .method = "GET", .path = a->path };
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct err ignored = ERR_INIT, *e = a->e;
	uint64_t left_ns = clock_mono_ns() + REFUSAL_MS * NS_PER_MS;
	char text[24];
	size_t want;
	int r = 1;

	head_value(a, head, "content-length:", text, sizeof(text));
	want = *text ? strtoul(text, NULL, 10) : REFUSAL_MAX;
	a->e = &ignored;
	a->deadline_ns = left_ns < a->deadline_ns ? left_ns : a->deadline_ns;
	while (r > 0 && a->in.len - (size_t)head < want)
		r = more(a);
	a->e = e;
	if (r == -EINTR)
		return err_reason(e, EINTR, REASON_INTERRUPTED, "interrupted");
	answer.status = status;
	head_value(a, head, "x-request-id:", answer.request_id, sizeof(answer.request_id));
	buf_add(&answer.body, a->in.data + head, a->in.len - (size_t)head);
	return api_refusal(a->c, &request, &answer, e);
}

static int judge(struct asked *a, int head)
{
	char upgrade[32], accept[KEY_MAX];
	int status = head_status(a);

	if (status != 101)
		return status ? refused(a, head, status)
			      : err_reason(a->e, EPROTO, REASON_ANSWER,
					   "the answer of %s is no HTTP", a->c->conf.url.text);
	head_value(a, head, "upgrade:", upgrade, sizeof(upgrade));
	head_value(a, head, "sec-websocket-accept:", accept, sizeof(accept));
	if (strcasecmp(upgrade, "websocket") || !str_eq(accept, a->accept)) {
		err_reason(a->e, EPROTO, REASON_ANSWER, "%s does not speak WebSocket",
			   a->c->conf.url.text);
		return err_hint(a->e, "does the URL name a Skerry API? see: skerry config");
	}
	return 0;
}

int handshake(struct cli *c, struct line *l, const char *path, struct buf *early, struct err *e)
{
	struct asked a = {
		.c = c,
		.line = l,
		.path = path,
		.in = BUF_INIT(HEAD_MAX + REFUSAL_MAX),
		.deadline_ns = clock_mono_ns() + ANSWER_MS * NS_PER_MS,
		.e = e,
	};
	int r = ask(&a);

	if (!r)
		r = take_head(&a);
	if (r > 0) {
		int head = r;

		r = judge(&a, head);
		if (!r && buf_add(early, a.in.data + head, a.in.len - (size_t)head) < 0)
			r = err_set(e, ENOMEM, "out of memory");
	}
	buf_release(&a.in);
	return r;
}
