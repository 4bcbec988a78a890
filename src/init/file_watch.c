/*
 * Changes below a directory, or of a file, until that is gone. The parts: file_watch_priv.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include "init/file_path.h"
#include "init/file_watch_priv.h"

enum {
	CHUNK = 64 * 1024,
	CHUNKS_AT_ONCE = 256,
	LINKS_MOST = 40,
	GONE_MS = 1000,
	OUT_SPARE = 64 * 1024, /* beyond WATCH_OUT_MOST: OVERFLOW, END */
	OUT_MOVE = 1024 * 1024,
};

/* -- bytes in and out ---------------------------------------------------------------------------- */

/* A client that watches says nothing more. */
static int peer_left(const struct watch *w)
{
	char byte;
	ssize_t n = recv(w->j->sock, &byte, 1, MSG_DONTWAIT);

	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
}

int watch_drain(struct watch *w)
{
	static char waste[CHUNK];

	for (int i = 0; i < CHUNKS_AT_ONCE; i++) {
		char *to = w->lost ? NULL : buf_reserve(&w->raw, CHUNK);
		ssize_t n;

		if (!to)
			w->lost = true;
		n = read(w->inotify, to ? to : waste, CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (to)
			buf_commit(&w->raw, (size_t)n);
	}
	return peer_left(w);
}

static void move_up(struct watch *w)
{
	buf_consume(&w->j->out, w->sent);
	w->sent = 0;
}

void watch_tell(struct watch *w, enum file_change change, bool dir, const char *path,
		const char *from)
{
	struct buf *out = &w->j->out;

	if (!w->lost && out->len >= WATCH_OUT_MOST)
		move_up(w);
	if (out->len >= WATCH_OUT_MOST)
		w->lost = true;
	if (w->lost)
		return;
	file_put_event(out, &(struct agent_event){ change, dir, path, from });
}

static int send_some(struct watch *w)
{
	struct buf *out = &w->j->out;

	if (out->failed)
		return -EPIPE;
	while (w->sent < out->len) {
		ssize_t n = send(w->j->sock, out->data + w->sent, out->len - w->sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return -EPIPE;
		w->sent += (size_t)n;
	}
	if (w->sent == out->len && out->cap > OUT_MOVE) {
		buf_release(out);
		w->sent = 0;
	}
	if (w->sent == out->len || w->sent >= OUT_MOVE)
		move_up(w);
	return 0;
}

/* -- the loop ------------------------------------------------------------------------------------ */

static bool has_room(const struct watch *w)
{
	return w->j->out.len - w->sent <= WATCH_OUT_MOST / 2;
}

/* Looks at all anew, once what is told of that can be sent. */
static int look_again(struct watch *w)
{
	int r;

	w->blind |= w->tree.missed && clock_mono_ns() >= w->missed_ns + WATCH_MISSED_MS * NS_PER_MS;
	if (w->blind && clock_mono_ns() >= w->look_ns)
		w->lost = true;
	if (!w->lost || !has_room(w))
		return 0;
	w->lost = false;
	buf_clear(&w->raw);
	watch_forget_moves(w);
	r = watch_look(w);
	w->look_ns = clock_mono_ns() + WATCH_BLIND_MS * NS_PER_MS;
	file_put_event(&w->j->out, &(struct agent_event){ CHANGE_OVERFLOW, 0, "", "" });
	return r;
}

/* Reached by no name of its own, the root is held, and held ones do not tell that they were removed. */
static bool nobody_tells(const struct watch *w)
{
	return w->above_wd < 0 && w->base[0];
}

static int wait_ms(const struct watch *w)
{
	uint64_t until = w->moves ? w->move[0].until_ns : UINT64_MAX;

	if (w->raw.len || (w->lost && has_room(w)))
		return 0;
	if (w->blind && w->look_ns < until)
		until = w->look_ns;
	if (w->tree.missed && !w->blind && w->missed_ns + WATCH_MISSED_MS * NS_PER_MS < until)
		until = w->missed_ns + WATCH_MISSED_MS * NS_PER_MS;
	if (nobody_tells(w) && clock_mono_ns() + GONE_MS * NS_PER_MS < until)
		until = clock_mono_ns() + GONE_MS * NS_PER_MS;
	return clock_left_ms(until);
}

static int turn(struct watch *w)
{
	struct pollfd p[2] = {
		{ .fd = w->j->sock, .events = POLLIN },
		{ .fd = w->inotify, .events = POLLIN },
	};
	uint64_t since_ns = clock_mono_ns();
	struct stat st;
	int r;

	if (w->sent < w->j->out.len)
		p[0].events |= POLLOUT;
	if (poll(p, 2, wait_ms(w)) < 0 && errno != EINTR)
		return -errno;
	if (clock_mono_ns() - since_ns > WATCH_PAIR_MS * NS_PER_MS)
		w->pairs = 0;
	if (p[1].revents) {
		p[0].events = POLLIN;
		(void)!poll(p, 1, WATCH_SETTLE_MS);
	}
	r = watch_drain(w);
	if (!r)
		r = watch_events(w);
	if (!r)
		r = watch_expire(w, clock_mono_ns());
	w->ended |= nobody_tells(w) && fstat(w->above, &st) == 0 && !st.st_nlink;
	if (!r && !w->ended)
		r = look_again(w);
	return r < 0 ? r : send_some(w);
}

static int run(struct watch *w, struct err *e)
{
	int r = watch_look(w);

	agent_put_empty(&w->j->out, AGENT_READY);
	while (!r && !w->ended)
		r = turn(w);
	move_up(w);
	if (r < 0 && r != -EPIPE)
		return err_set(e, r, "wait for changes: %s", strerror(-r));
	return r;
}

/* -- the start ----------------------------------------------------------------------------------- */

/* The directory that has the object a path leads to, and its name there: `w->above` and `w->leaf`.
 * -EINVAL where its name is none ("/", ".."). */
static int find_above(struct watch *w, const char *path)
{
	char text[FILE_PATH_MAX + 1], parent[FILE_PATH_MAX + 1];
	_cleanup_close_ int at = file_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0, 0);

	str_copy(text, sizeof(text), path);
	for (int i = 0; at >= 0 && i < LINKS_MOST; i++) {
		int r = file_split(text, parent, w->leaf), next;
		ssize_t n;

		if (r < 0)
			return r;
		next = file_openat(at, parent, O_PATH | O_DIRECTORY, 0, 0);
		close(at);
		at = next;
		n = at < 0 ? 0 : readlinkat(at, w->leaf, text, sizeof(text) - 1);
		if (n < 0) {
			w->above = take_fd(&at);
			return 0;
		}
		text[n] = '\0';
	}
	return at < 0 ? at : -ELOOP;
}

/* `fd`: what is watched. */
static int find_root(struct watch *w, int fd, const struct stat *st)
{
	struct stat seen;
	int r = find_above(w, w->j->req.path);

	if (!r && (fstatat(w->above, w->leaf, &seen, AT_SYMLINK_NOFOLLOW) < 0 ||
		   seen.st_ino != st->st_ino || seen.st_dev != st->st_dev))
		return -EBUSY; /* another thing within a moment */
	if (r == -EINVAL && S_ISDIR(st->st_mode)) {
		str_copy(w->leaf, sizeof(w->leaf), ".");
		w->above = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		return w->above < 0 ? -errno : 0;
	}
	if (!r)
		r = w->above_wd = watch_add(w, w->above, w->file);
	return r < 0 ? r : 0;
}

static int start(struct watch *w, struct err *e)
{
	const char *path = w->j->req.path;
	struct stat st;
	_cleanup_close_ int fd = file_open(AT_FDCWD, path, O_RDONLY, &st, e);
	size_t len = strlen(path);
	int r;

	if (fd < 0)
		return fd;
	w->file = !S_ISDIR(st.st_mode);
	str_copy(w->base, sizeof(w->base), path);
	while (len && w->base[len - 1] == '/')
		w->base[--len] = '\0';
	w->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->inotify < 0)
		return file_err(e, errno, "watch", path);
	w->tree.inotify = w->inotify;
	r = find_root(w, fd, &st);
	return r < 0 ? file_err(e, r, "watch", path) : 0;
}

int file_watch(struct file_job *j, struct err *e)
{
	static struct watch w;
	int r;

	w.j = j;
	w.above = w.above_wd = -1;
	buf_init(&w.raw, WATCH_RAW_MOST);
	buf_release(&j->out);
	buf_init(&j->out, WATCH_OUT_MOST + OUT_SPARE);
	r = start(&w, e);
	return r < 0 ? r : run(&w, e);
}
