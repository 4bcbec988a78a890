#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "api.h"
#include "cp.h"
#include "out.h"

enum {
	STEP_SAFE = 4096, /* a write of so many bytes does not block behind POLLOUT */
	AGAIN_MS = 100,
};

/* A FIFO without a reader is not opened for writing, which is no reason to be deaf meanwhile; one
 * without a writer is, and has nothing to read until it has had one. */
int copy_open(const struct copy *p, const char *path, int flags)
{
	struct pollfd cancel = { .fd = p->c->client->cancel_fd, .events = POLLIN };
	struct stat st;
	int fd;

	while ((fd = open(path, flags | O_NONBLOCK | O_CLOEXEC)) < 0) {
		if (errno != ENXIO || stat(path, &st) < 0 || !S_ISFIFO(st.st_mode))
			return -errno;
		if (poll(&cancel, 1, AGAIN_MS) > 0)
			return -EINTR;
	}
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

static int wait_for(const struct copy *p, int fd, short events)
{
	struct pollfd wait[2] = {
		{ .fd = fd, .events = events },
		{ .fd = p->c->client->cancel_fd, .events = POLLIN },
	};

	while (poll(wait, 2, -1) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return wait[1].revents ? -EINTR : 0;
}

ssize_t copy_read(const struct copy *p, int fd, void *data, size_t len)
{
	ssize_t n = wait_for(p, fd, POLLIN);

	if (n < 0)
		return n;
	do
		n = read(fd, data, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int copy_write(const struct copy *p, int fd, const void *data, size_t len)
{
	struct stat st;
	int r = 0;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return write_all(fd, data, len);
	while (len && !r) {
		size_t n = len < STEP_SAFE ? len : STEP_SAFE;

		r = wait_for(p, fd, POLLOUT);
		if (!r)
			r = write_all(fd, data, n);
		data = (const char *)data + n;
		len -= n;
	}
	return r;
}

int copy_failed(const struct copy *p, int failed, const char *what, struct err *e)
{
	e->code = 0;
	if (failed == -EINTR)
		return err_reason(e, EINTR, REASON_INTERRUPTED, "interrupted");
	if (failed == -EPIPE && str_eq(p->local, "-"))
		return err_reason(e, EPIPE, REASON_OUTPUT, "nobody reads the output");
	return err_set(e, failed, "%s '%s': %s", what, p->local, strerror(-failed));
}

mode_t copy_mode(const struct copy *p, const char * or)
{
	unsigned long mode = strtoul(json_text_or(p->item, "mode", or), NULL, 8);
	mode_t mask = umask(0);

	umask(mask);
	return (mode_t)mode & 0777 & ~mask;
}

int copy_show(const struct copy *p, const struct answer *answer, struct err *e)
{
	_cleanup_json_ json_t *item =
		json_loadb(buf_str(&answer->body), answer->body.len, JSON_ALLOW_NUL, NULL);

	return p->c->json && item ? out_json(item, e) : 0;
}
