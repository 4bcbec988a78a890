/*
 * Directories travel as a tar, packed or unpacked by a child of ours at the other end of a pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "api.h"
#include "cp.h"
#include "cp_archive.h"
#include "cp_merge.h"
#include "out.h"
#include "progress.h"

enum { PATHS = 8192 };

/* The child at work, and our side of the transfer. */
struct worker {
	const struct copy *p;
	pid_t pid; /* 0: it was waited for, and ended with `status` */
	int status;
	int data;   /* our end of the tar's pipe */
	int word;   /* what the child says when it fails */
	int failed; /* a negative errno of the pipe */
	struct progress progress;
};

static int fail_here(const struct copy *p, const char *what, struct err *e)
{
	return copy_failed(p, -errno, what, e);
}

/* `packs`: it makes the tar of `directory`, else it unpacks one there. */
static int begin(struct worker *w, bool packs, const char *directory, struct err *e)
{
	int data[2], word[2];

	if (pipe2(data, O_CLOEXEC) < 0)
		return fail_here(w->p, "make a pipe for", e);
	if (pipe2(word, O_CLOEXEC) < 0) {
		close(data[0]);
		close(data[1]);
		return fail_here(w->p, "make a pipe for", e);
	}
	fflush(NULL);
	w->pid = fork();
	if (w->pid == 0) {
		close(data[!packs]); /* or it would wait for itself */
		if (packs)
			archive_pack(directory, data[1], word[1]);
		archive_unpack(directory, data[0], word[1]);
	}
	w->data = data[!packs];
	w->word = word[0];
	close(data[packs]);
	close(word[1]);
	return w->pid < 0 ? fail_here(w->p, "start a process for", e) : 0;
}

static int reap(struct worker *w)
{
	while (w->pid > 0 && waitpid(w->pid, &w->status, 0) < 0 && errno == EINTR)
		;
	w->pid = 0;
	return w->status;
}

/* Whose word counts: of a transfer that ended with `r`, the child's where it was the one that
 * failed. A child that was cut off ends by the end of its pipe. */
static int end(struct worker *w, int r, struct err *e)
{
	char text[ARCHIVE_WORD_SIZE];
	ssize_t n = 0;

	close_p(&w->data);
	if (reap(w))
		n = read_full(w->word, text, sizeof(text) - 1);
	close_p(&w->word);
	if (w->failed == -EINTR)
		return copy_failed(w->p, -EINTR, "", e);
	if (!w->status || (r < 0 && !w->failed))
		return r;
	text[n > 0 ? n : 0] = '\0';
	e->code = 0;
	return err_set(e, EIO, "%s", n > 0 ? text : "the process at the tar was ended");
}

/* -- up ------------------------------------------------------------------------------------------- */

/* The end of the pipe is the end of the tar only where all went well. */
static ssize_t read_tar(void *arg, void *data, size_t len)
{
	struct worker *w = arg;
	ssize_t n = copy_read(w->p, w->data, data, len);

	if (n == 0 && reap(w))
		n = -EIO;
	if (n < 0)
		return w->failed = (int)n;
	progress_add(&w->progress, n);
	return n;
}

static int send_tree(const struct copy *p, struct worker *w, struct answer *answer, struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	struct request q = { .method = "POST",
			     .type = "application/x-tar",
			     .source = read_tar,
			     .source_len = -1,
			     .arg = w };
	int r = remote_url(p->c, &p->remote, "content/upload", &url, e);

	if (r < 0)
		return r;
	api_query(&url, "userName", p->user);
	q.path = buf_str(&url);
	progress_init(&w->progress, p->remote.path, -1, p->quiet);
	r = api_send(p->c, &q, answer, e);
	progress_end(&w->progress);
	return r;
}

int copy_tree_up(struct copy *p, struct err *e)
{
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct worker w = { .p = p, .data = -1, .word = -1, .status = -1 };
	int r = begin(&w, true, p->local, e);

	if (!r)
		r = send_tree(p, &w, &answer, e);
	r = end(&w, r, e);
	return r < 0 ? r : copy_show(p, &answer, e);
}

/* -- down ----------------------------------------------------------------------------------------- */

static int write_tar(void *arg, const void *data, size_t len)
{
	struct worker *w = arg;

	w->failed = copy_write(w->p, w->data, data, len);
	progress_add(&w->progress, (int64_t)len);
	return w->failed;
}

static int receive_tree(const struct copy *p, struct worker *w, struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct request q = { .method = "GET", .sink = write_tar, .arg = w };
	int r = remote_url(p->c, &p->remote, "download", &url, e);

	if (r < 0)
		return r;
	api_query(&url, "archive", "tar");
	q.path = buf_str(&url);
	progress_init(&w->progress, p->remote.path, -1, p->quiet);
	r = api_send(p->c, &q, &answer, e);
	progress_end(&w->progress);
	return r;
}

static int to_stdout(const struct copy *p, struct err *e)
{
	struct worker w = { .p = p, .data = STDOUT_FILENO };
	int r = receive_tree(p, &w, e);

	return r < 0 && w.failed ? copy_failed(p, w.failed, "write", e) : r;
}

static int fill(const struct copy *p, const char *fresh, struct err *e)
{
	struct worker w = { .p = p, .data = -1, .word = -1, .status = -1 };
	int r = begin(&w, false, fresh, e);

	if (!r)
		r = receive_tree(p, &w, e);
	return end(&w, r, e);
}

static int settle(const struct copy *p, const char *fresh, struct err *e)
{
	struct stat st;

	if (lstat(p->local, &st) == 0 && S_ISDIR(st.st_mode))
		return merge_tree(fresh, p->local, e);
	if (chmod(fresh, copy_mode(p, "0755")) < 0)
		return fail_here(p, "make", e);
	/* an empty directory would be replaced, a link and a file are not */
	return rename(fresh, p->local) < 0 ? fail_here(p, "make", e) : 0;
}

int copy_tree_down(struct copy *p, struct err *e)
{
	char fresh[PATHS];
	struct stat st;
	int r;

	if (str_eq(p->local, "-"))
		return to_stdout(p, e);
	if (lstat(p->local, &st) == 0 && !S_ISDIR(st.st_mode))
		return copy_failed(p, -ENOTDIR, "make", e);
	if ((size_t)snprintf(fresh, sizeof(fresh), "%s.skerry-XXXXXX", p->local) >= sizeof(fresh))
		return copy_failed(p, -ENAMETOOLONG, "make", e);
	if (!mkdtemp(fresh))
		return fail_here(p, "make a directory beside", e);
	r = fill(p, fresh, e);
	if (!r)
		r = settle(p, fresh, e);
	remove_tree(fresh);
	return r < 0 ? r : p->c->json ? out_json(p->item, e) : 0;
}
