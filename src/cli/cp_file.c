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
	int fd;
	int failed; /* a negative errno of this side */
	struct progress progress;
};

static ssize_t read_some(void *arg, void *data, size_t len)
{
	struct transfer *t = arg;
	ssize_t n;

	do
		n = read(t->fd, data, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return t->failed = -errno;
	progress_add(&t->progress, n);
	return n;
}

static int write_some(void *arg, const void *data, size_t len)
{
	struct transfer *t = arg;

	t->failed = write_all(t->fd, data, len);
	progress_add(&t->progress, (int64_t)len);
	return t->failed;
}

static int fail_here(const struct copy *p, int code, const char *what, struct err *e)
{
	return err_set(e, code, "%s '%s': %s", what, p->local, strerror(code < 0 ? -code : code));
}

/* -- up ------------------------------------------------------------------------------------------ */

static int show_item(const struct copy *p, const struct answer *answer, struct err *e)
{
	_cleanup_json_ json_t *item =
		json_loadb(buf_str(&answer->body), answer->body.len, JSON_ALLOW_NUL, NULL);

	return p->c->json && item ? out_json(item, e) : 0;
}

int copy_file_up(struct copy *p, int fd, struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct transfer t = { .fd = fd };
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
		return fail_here(p, errno, "look at", e);
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
		return fail_here(p, t.failed, "read", e);
	return r < 0 ? r : show_item(p, &answer, e);
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
	struct transfer t = { .fd = fd };
	struct request q = { .method = "GET", .sink = write_some, .arg = &t };
	int r = remote_url(p->c, &p->remote, "download", &url, e);

	if (r < 0)
		return r;
	q.path = buf_str(&url);
	progress_init(&t.progress, p->remote.path, size_of(p->item), p->quiet);
	r = api_send(p->c, &q, &answer, e);
	progress_end(&t.progress);
	if (r < 0 && t.failed) {
		e->code = 0;
		return str_eq(p->local, "-") && t.failed == -EPIPE
			       ? err_reason(e, EPIPE, REASON_OUTPUT, "nobody reads the output")
			       : fail_here(p, t.failed, "write", e);
	}
	return r;
}

/* The file that a name stands for: a link that was named is followed. */
static int resolve(const struct copy *p, char out[PATHS], struct err *e)
{
	_cleanup_free_ char *real = realpath(p->local, NULL);

	if (!real && errno != ENOENT)
		return fail_here(p, errno, "find", e);
	if (!str_copy(out, PATHS, real ? real : p->local))
		return fail_here(p, ENAMETOOLONG, "find", e);
	return 0;
}

/* That of the file it replaces, else the sandbox's, as far as our mask allows it. */
static mode_t mode_for(const struct copy *p, const char *target)
{
	unsigned long mode = strtoul(json_text_or(p->item, "mode", "0644"), NULL, 8);
	mode_t mask = umask(0);
	struct stat st;

	umask(mask);
	if (stat(target, &st) == 0)
		return st.st_mode & 07777;
	return (mode_t)mode & 0777 & ~mask;
}

static int into(struct copy *p, const char *target, struct err *e)
{
	_cleanup_close_ int fd = -1;
	char temporary[PATHS];
	struct stat st;
	int r;

	if (stat(target, &st) == 0 && !S_ISREG(st.st_mode)) { /* /dev/null, a FIFO */
		fd = open(target, O_WRONLY | O_CLOEXEC);
		return fd < 0 ? fail_here(p, errno, "open", e) : receive(p, fd, e);
	}
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.skerry-XXXXXX", target) >=
	    sizeof(temporary))
		return fail_here(p, ENAMETOOLONG, "write", e);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return fail_here(p, errno, "write beside", e);
	r = receive(p, fd, e);
	if (!r &&
	    (fchmod(fd, mode_for(p, target)) < 0 || fsync(fd) < 0 || rename(temporary, target) < 0))
		r = fail_here(p, errno, "write", e);
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
