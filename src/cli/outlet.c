#include "outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#include "out.h"
#include "tty.h"

enum {
	PENDING_MAX = 32 * 1024 * 1024, /* the caller keeps far below */
	NOTE_MAX = 64 * 1024,
	STEP_SAFE = 4096, /* a write of so many bytes does not block behind POLLOUT */
	STEP_WHOLE = 1024 * 1024,
};

struct head {
	int stream;
	size_t len;
};

static void end_init(struct outlet_end *end, int fd)
{
	char path[32];
	struct stat st;

	*end = (struct outlet_end){ .fd = fd, .own_fd = -1, .step = STEP_SAFE };
	if (fstat(fd, &st) < 0)
		return;
	if (S_ISREG(st.st_mode)) {
		end->step = STEP_WHOLE;
		return;
	}
	if (!S_ISFIFO(st.st_mode) && !isatty(fd))
		return;
	/* the flags of `fd` itself are shared with others */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	end->own_fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (end->own_fd >= 0)
		end->step = STEP_WHOLE;
}

void outlet_init(struct outlet *o)
{
	*o = (struct outlet){ 0 };
	buf_init(&o->data, PENDING_MAX);
	end_init(&o->ends[0], STDOUT_FILENO);
	end_init(&o->ends[1], STDERR_FILENO);
}

void outlet_release(struct outlet *o)
{
	close_p(&o->ends[0].own_fd);
	close_p(&o->ends[1].own_fd);
	buf_release(&o->data);
}

static bool writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, 0) > 0;
}

/* A count, or a negative errno; 0 when it would block. */
static ssize_t try_write(const struct outlet_end *end, const void *data, size_t len)
{
	int fd = end->own_fd >= 0 ? end->own_fd : end->fd;
	ssize_t n;

	if (end->own_fd < 0 && end->step == STEP_SAFE && !writable(fd))
		return 0;
	do
		n = write(fd, data, len < end->step ? len : end->step);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	return n;
}

/* As much as goes out now: a count, or a negative errno. */
static ssize_t write_some(struct outlet *o, int stream, const char *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = try_write(&o->ends[stream - 1], data + done, len - done);

		if (n < 0)
			return n;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int outlet_add(struct outlet *o, int stream, const void *data, size_t len)
{
	ssize_t n = outlet_pending(o) ? 0 : write_some(o, stream, data, len);
	struct head h = { .stream = stream };

	if (n < 0)
		return (int)n;
	h.len = len - (size_t)n;
	if (!h.len)
		return 0;
	buf_add(&o->data, &h, sizeof(h));
	return buf_add(&o->data, (const char *)data + n, h.len);
}

int outlet_note(struct outlet *o, const char *fmt, ...)
{
	_cleanup_buf_ struct buf raw = BUF_INIT(NOTE_MAX), text = BUF_INIT(NOTE_MAX * 6);
	const char *end = tty_is_raw() ? "\r\n" : "\n";
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&raw, fmt, ap);
	va_end(ap);
	buf_addf(&text, "%sskerry: ", tty_is_raw() ? end : "");
	out_escape(&text, buf_str(&raw), raw.len);
	buf_adds(&text, end);
	return outlet_add(o, STDERR_FILENO, buf_str(&text), text.len);
}

/* Moves each byte once at most. */
static void forget(struct outlet *o)
{
	if (o->at < o->data.len / 2)
		return;
	buf_consume(&o->data, o->at);
	o->at = 0;
}

int outlet_flush(struct outlet *o)
{
	while (outlet_pending(o)) {
		struct head h;
		char *piece = o->data.data + o->at;
		ssize_t n;

		memcpy(&h, piece, sizeof(h));
		n = write_some(o, h.stream, piece + sizeof(h), h.len);
		if (n < 0)
			return (int)n;
		if ((size_t)n < h.len) { /* its head moves before what is left */
			h.len -= (size_t)n;
			o->at += (size_t)n;
			memcpy(o->data.data + o->at, &h, sizeof(h));
			break;
		}
		o->at += sizeof(h) + h.len;
	}
	forget(o);
	return o->data.failed;
}

size_t outlet_pending(const struct outlet *o)
{
	return o->data.len - o->at;
}

int outlet_fd(const struct outlet *o)
{
	struct head h;

	if (!outlet_pending(o))
		return -1;
	memcpy(&h, o->data.data + o->at, sizeof(h));
	return o->ends[h.stream - 1].own_fd >= 0 ? o->ends[h.stream - 1].own_fd
						 : o->ends[h.stream - 1].fd;
}
