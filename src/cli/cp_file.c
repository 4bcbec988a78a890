#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "api.h"
#include "cp.h"
#include "out.h"
#include "progress.h"

enum { PATHS = 8192 };

/* One of the two ends of a transfer. */
struct transfer {
	const struct copy *p;
	int fd;
	int failed; /* a negative errno of this side */
	struct progress progress;
};

static ssize_t read_some(void *arg, void *data, size_t len)
{
	struct transfer *t = arg;
	ssize_t n = copy_read(t->p, t->fd, data, len);

	if (n < 0)
		return t->failed = (int)n;
	progress_add(&t->progress, n);
	return n;
}

static int write_some(void *arg, const void *data, size_t len)
{
	struct transfer *t = arg;

	t->failed = copy_write(t->p, t->fd, data, len);
	progress_add(&t->progress, (int64_t)len);
	return t->failed;
}

static int fail_here(const struct copy *p, const char *what, struct err *e)
{
	return copy_failed(p, -errno, what, e);
}

/* -- up ------------------------------------------------------------------------------------------ */

int copy_file_up(struct copy *p, int fd, struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct transfer t = { .p = p, .fd = fd };
	struct request q = { .method = "POST",
			     .type = "application/octet-stream",
			     .source = read_some,
			     .source_len = -1,
			     .arg = &t };
	char mode[8] = "";
	struct stat st;
	int r = remote_url(p->c, &p->remote, "content/upload", &url, e);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return fail_here(p, "look at", e);
	if (S_ISREG(st.st_mode)) {
		off_t at = lseek(fd, 0, SEEK_CUR);

		q.source_len = st.st_size > at ? st.st_size - at : 0;
		snprintf(mode, sizeof(mode), "%04o", (unsigned)st.st_mode & 0777);
	}
	api_query(&url, "userName", p->user);
	api_query(&url, "mode", *mode ? mode : NULL);
	q.path = buf_str(&url);
	progress_init(&t.progress, p->remote.path, q.source_len, p->quiet);
	r = api_send(p->c, &q, &answer, e);
	progress_end(&t.progress);
	if (r < 0 && t.failed)
		return copy_failed(p, t.failed, "read", e);
	return r < 0 ? r : copy_show(p, &answer, e);
}

/* -- down ---------------------------------------------------------------------------------------- */

static int64_t size_of(const json_t *item)
{
	int64_t size = json_int_or(item, "size", -1);

	return size > 0 ? size : -1; /* files of the kernel tell none */
}

static int receive(struct copy *p, int fd, struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct transfer t = { .p = p, .fd = fd };
	struct request q = { .method = "GET", .sink = write_some, .arg = &t };
	int r = remote_url(p->c, &p->remote, "download", &url, e);

	if (r < 0)
		return r;
	q.path = buf_str(&url);
	progress_init(&t.progress, p->remote.path, size_of(p->item), p->quiet);
	r = api_send(p->c, &q, &answer, e);
	progress_end(&t.progress);
	if (r < 0 && t.failed)
		return copy_failed(p, t.failed, "write", e);
	return r;
}

/* The file that a name stands for: a link that was named is followed. */
static int resolve(const struct copy *p, char out[PATHS], struct err *e)
{
	_cleanup_free_ char *real = realpath(p->local, NULL);

	if (!real && errno != ENOENT)
		return fail_here(p, "find", e);
	if (!str_copy(out, PATHS, real ? real : p->local))
		return copy_failed(p, -ENAMETOOLONG, "find", e);
	return 0;
}

/* That of the file it replaces, else the sandbox's. */
static mode_t mode_for(const struct copy *p, const char *target)
{
	struct stat st;

	return stat(target, &st) == 0 ? st.st_mode & 07777 : copy_mode(p, "0644");
}

static int into(struct copy *p, const char *target, struct err *e)
{
	_cleanup_close_ int fd = -1;
	char temporary[PATHS];
	struct stat st;
	int r;

	if (stat(target, &st) == 0 && !S_ISREG(st.st_mode)) { /* /dev/null, a FIFO */
		fd = copy_open(p, target, O_WRONLY);
		return fd < 0 ? copy_failed(p, fd, "open", e) : receive(p, fd, e);
	}
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.skerry-XXXXXX", target) >=
	    sizeof(temporary))
		return copy_failed(p, -ENAMETOOLONG, "write", e);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return fail_here(p, "write beside", e);
	r = receive(p, fd, e);
	if (!r &&
	    (fchmod(fd, mode_for(p, target)) < 0 || fsync(fd) < 0 || rename(temporary, target) < 0))
		r = fail_here(p, "write", e);
	if (r < 0)
		unlink(temporary);
	return r;
}

int copy_file_down(struct copy *p, struct err *e)
{
	char target[PATHS];
	int r;

	if (str_eq(p->local, "-"))
		return receive(p, STDOUT_FILENO, e);
	r = resolve(p, target, e);
	if (!r)
		r = into(p, target, e);
	return r < 0 ? r : p->c->json ? out_json(p->item, e) : 0;
}
