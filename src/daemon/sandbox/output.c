#include "daemon/sandbox/output.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

enum {
	HEAD_SIZE = 64,
	RING_AT = HEAD_SIZE + COMMAND_KEEP,
	VERSION = 1,
	READ_TRIES = 1000,
};

#define MAGIC 0x74756f2d79726b73ull /* "skry-out" */

/* On disk, little-endian. `check` tells a head that was read while it was written. */
struct output_head {
	uint64_t magic;
	uint64_t version;
	uint64_t total;
	uint64_t head;
	uint64_t tail_at;
	uint64_t check;
	uint64_t unused[2];
};
_Static_assert(sizeof(struct output_head) == (size_t)HEAD_SIZE, "a head of 64 bytes");

enum { NAME_SIZE = 2 * ID_SIZE + 4 };

static int root = -1;

static void file_name(char out[NAME_SIZE], const char *sandbox, const char *id, int stream)
{
	snprintf(out, NAME_SIZE, "%s/%s.%d", sandbox, id, stream);
}

static uint64_t head_check(const struct output_view *v)
{
	const uint64_t odd = 0x9e3779b97f4a7c15ull;

	return ((v->total * odd ^ v->head) * odd ^ v->tail_at) * odd;
}

static ssize_t pwrite_full(int fd, const void *data, size_t len, off_t at)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)data + done, len - done, at + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t pread_full(int fd, void *data, size_t len, off_t at)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)data + done, len - done, at + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int output_init_dir(const char *dir, struct err *e)
{
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make '%s': %m", dir);
	root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_set(e, errno, "open '%s': %m", dir);
	return 0;
}

void output_release_dir(void)
{
	close_p(&root);
}

void output_init(struct output_file *o, const char *sandbox, const char *id, int stream)
{
	*o = (struct output_file){ .sandbox = sandbox, .id = id, .stream = stream, .fd = -1 };
}

void output_release(struct output_file *o)
{
	output_flush(o);
	close_p(&o->fd);
}

void output_flush(struct output_file *o)
{
	struct output_head h;

	if (!o->dirty || o->fd < 0)
		return;
	h = (struct output_head){
		.magic = htole64(MAGIC),
		.version = htole64(VERSION),
		.total = htole64(o->view.total),
		.head = htole64(o->view.head),
		.tail_at = htole64(o->view.tail_at),
		.check = htole64(head_check(&o->view)),
	};
	/* where that fails the readers see less than there is, and the next flush tries again */
	if (pwrite_full(o->fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h))
		o->dirty = o->announce = false;
}

/* 0 and the view; -EAGAIN for a head that is being written, -EUCLEAN for what is no file of ours. */
static int read_head_once(int fd, struct output_view *ret)
{
	struct output_head h;
	struct output_view v;
	ssize_t n = pread_full(fd, &h, sizeof(h), 0);

	if (n < 0)
		return (int)n;
	if (n == 0 || (n == (ssize_t)sizeof(h) && h.magic == 0)) {
		*ret = (struct output_view){ 0 }; /* made, its first head not written yet */
		return 0;
	}
	if (n != (ssize_t)sizeof(h) || le64toh(h.magic) != MAGIC || le64toh(h.version) != VERSION)
		return -EUCLEAN;
	v = (struct output_view){ le64toh(h.total), le64toh(h.head), le64toh(h.tail_at) };
	if (le64toh(h.check) != head_check(&v))
		return -EAGAIN;
	if (v.head > COMMAND_KEEP || v.head > v.tail_at || v.tail_at > v.total ||
	    v.total - v.tail_at > COMMAND_KEEP || v.total > OUTPUT_TOTAL_MAX)
		return -EUCLEAN;
	*ret = v;
	return 0;
}

static int read_head(int fd, struct output_view *ret)
{
	int r = -EAGAIN;

	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++) {
		if (i)
			sched_yield();
		r = read_head_once(fd, ret);
	}
	return r == -EAGAIN ? -EUCLEAN : r;
}

int output_resume(struct output_file *o, struct err *e)
{
	_cleanup_close_ int fd = -1;
	char name[NAME_SIZE];
	int r;

	file_name(name, o->sandbox, o->id, o->stream);
	fd = openat(root, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_set(e, errno, "open kept output '%s': %m", name);
	r = read_head(fd, &o->view);
	if (r < 0)
		return err_set(e, r, "read kept output '%s': %s", name, strerror(-r));
	o->fd = take_fd(&fd);
	return 0;
}

/* Makes the file, and the sandbox's directory with its first file. */
static void make_file(struct output_file *o)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	char name[NAME_SIZE];

	file_name(name, o->sandbox, o->id, o->stream);
	o->fd = openat(root, name, flags, 0600);
	if (o->fd < 0 && errno == ENOENT &&
	    (mkdirat(root, o->sandbox, 0700) == 0 || errno == EEXIST))
		o->fd = openat(root, name, flags, 0600);
	if (o->fd < 0 && !o->tried)
		log_warn("output '%s' is not kept: %s", name, strerror(errno));
	o->tried = true;
}

/* The bytes up to `total` are not kept, nor is what the ring held. */
static void lose_to(struct output_file *o, uint64_t total)
{
	o->view.total = total;
	o->view.tail_at = total;
	o->dirty = o->announce = true;
}

static bool head_open(const struct output_view *v)
{
	return v->head < COMMAND_KEEP && v->total == v->head;
}

static size_t append_head(struct output_file *o, const char *data, size_t len)
{
	struct output_view *v = &o->view;
	size_t piece = len < COMMAND_KEEP - v->head ? len : (size_t)(COMMAND_KEEP - v->head);
	ssize_t n = pwrite_full(o->fd, data, piece, HEAD_SIZE + (off_t)v->head);

	v->head += (size_t)n;
	v->total = v->tail_at = v->head;
	o->dirty = true;
	if ((size_t)n < piece)
		lose_to(o, v->total + (piece - (size_t)n));
	return piece;
}

/* Writes at most what fits before the end of the ring. */
static size_t append_ring(struct output_file *o, const char *data, size_t len)
{
	struct output_view *v = &o->view;
	uint64_t at = v->total % COMMAND_KEEP;
	size_t piece = len < COMMAND_KEEP - at ? len : (size_t)(COMMAND_KEEP - at);
	uint64_t total = v->total + piece;

	if (total - v->tail_at > COMMAND_KEEP) {
		v->tail_at = total - COMMAND_KEEP;
		o->dirty = o->announce = true;
	}
	if (o->announce)
		output_flush(o);
	if (!o->announce && pwrite_full(o->fd, data, piece, RING_AT + (off_t)at) == (ssize_t)piece)
		v->total = total;
	else
		lose_to(o, total);
	o->dirty = true;
	return piece;
}

int output_append(struct output_file *o, uint64_t offset, const void *data, size_t len)
{
	struct output_view *v = &o->view;
	const char *p = data;

	if (offset > OUTPUT_TOTAL_MAX || len > OUTPUT_TOTAL_MAX - offset)
		return -EPROTO;
	if (offset + len <= v->total)
		return 0;
	if (o->fd < 0)
		make_file(o);
	if (offset > v->total) {
		lose_to(o, offset);
	} else {
		p += v->total - offset;
		len -= (size_t)(v->total - offset);
	}
	if (o->fd < 0) {
		lose_to(o, v->total + len);
		return 0;
	}
	while (len) {
		size_t n = head_open(v) ? append_head(o, p, len) : append_ring(o, p, len);

		p += n;
		len -= n;
	}
	return 0;
}

int output_finish(struct output_file *o, uint64_t total)
{
	if (total < o->view.total || total > OUTPUT_TOTAL_MAX)
		return -EPROTO;
	if (total > o->view.total) {
		if (o->fd < 0)
			make_file(o);
		lose_to(o, total);
	}
	output_flush(o);
	return 0;
}

/* A descriptor, -ENOENT where nothing was kept. */
static int open_kept(const char *sandbox, const char *id, int stream, struct err *e)
{
	char name[NAME_SIZE];
	int fd;

	if (!id_valid(sandbox, NULL) || !id_valid(id, NULL) || stream < 1 || stream > 2)
		return err_set(e, EINVAL, "not the output of a command");
	file_name(name, sandbox, id, stream);
	fd = openat(root, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		return err_set(e, errno, "open kept output '%s': %m", name);
	return fd < 0 ? -ENOENT : fd;
}

static int err_damaged(struct err *e, int r, const char *id)
{
	return err_set(e, r, "read kept output of '%s': %s", id, strerror(-r));
}

int output_stat(const char *sandbox, const char *id, int stream, struct output_view *ret,
		struct err *e)
{
	_cleanup_close_ int fd = open_kept(sandbox, id, stream, e);
	int r;

	if (fd == -ENOENT) {
		*ret = (struct output_view){ 0 };
		return 0;
	}
	if (fd < 0)
		return fd;
	r = read_head(fd, ret);
	return r < 0 ? err_damaged(e, r, id) : 0;
}

/* Where the byte at `offset` lies and how many follow it there; 0 in a gap and at the end. */
static size_t locate(const struct output_view *v, uint64_t offset, off_t *ret_at)
{
	uint64_t ring;

	if (offset < v->head) {
		*ret_at = HEAD_SIZE + (off_t)offset;
		return (size_t)(v->head - offset);
	}
	if (offset < v->tail_at || offset >= v->total)
		return 0;
	ring = offset % COMMAND_KEEP;
	*ret_at = RING_AT + (off_t)ring;
	return v->total - offset < COMMAND_KEEP - ring ? (size_t)(v->total - offset)
						       : (size_t)(COMMAND_KEEP - ring);
}

static ssize_t read_kept(int fd, uint64_t offset, char *data, size_t len)
{
	struct output_view v, after;
	size_t got = 0;
	int r = read_head(fd, &v);

	if (r < 0)
		return r;
	while (got < len) {
		off_t at;
		size_t piece = locate(&v, offset + got, &at);
		ssize_t n;

		if (piece == 0)
			break;
		n = pread_full(fd, data + got, piece < len - got ? piece : len - got, at);
		if (n < 0)
			return n;
		if (n == 0)
			return -EUCLEAN;
		got += (size_t)n;
	}
	/* what the ring overwrote meanwhile is not what was asked for */
	r = read_head(fd, &after);
	if (r < 0)
		return r;
	if (offset + got > v.head && after.tail_at > v.tail_at) {
		uint64_t from = offset > v.head ? offset : v.head;

		if (from < after.tail_at)
			got = offset < v.head ? (size_t)(v.head - offset) : 0;
	}
	return (ssize_t)got;
}

ssize_t output_read(const char *sandbox, const char *id, int stream, uint64_t offset, void *data,
		    size_t len, struct err *e)
{
	_cleanup_close_ int fd = open_kept(sandbox, id, stream, e);
	ssize_t n;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	if (offset > OUTPUT_TOTAL_MAX)
		return 0;
	n = read_kept(fd, offset, data, len);
	return n < 0 ? err_damaged(e, (int)n, id) : n;
}

static int remove_all(const char *sandbox, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *entry;
	int fd = openat(root, sandbox, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_set(e, errno, "open kept output of '%s': %m", sandbox);
	d = fdopendir(fd);
	if (!d) {
		int r = err_set(e, errno, "read kept output of '%s': %m", sandbox);

		close(fd);
		return r;
	}
	while ((entry = readdir(d))) {
		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
			continue;
		if (unlinkat(fd, entry->d_name, 0) < 0 && errno != ENOENT)
			return err_set(e, errno, "remove kept output of '%s': %m", sandbox);
	}
	if (unlinkat(root, sandbox, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove kept output of '%s': %m", sandbox);
	return 0;
}

int output_remove(const char *sandbox, const char *id, struct err *e)
{
	char name[NAME_SIZE];

	if (!id_valid(sandbox, NULL) || (id && !id_valid(id, NULL)))
		return err_set(e, EINVAL, "not the output of a command");
	if (!id)
		return remove_all(sandbox, e);
	for (int stream = 1; stream <= 2; stream++) {
		file_name(name, sandbox, id, stream);
		if (unlinkat(root, name, 0) < 0 && errno != ENOENT)
			return err_set(e, errno, "remove kept output '%s': %m", name);
	}
	return 0;
}

int output_each(void (*each)(void *arg, const char *sandbox), void *arg, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *entry;
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, errno, "open the kept output: %m");
	d = fdopendir(fd);
	if (!d) {
		int r = err_set(e, errno, "read the kept output: %m");

		close(fd);
		return r;
	}
	while ((entry = readdir(d))) {
		if (id_valid(entry->d_name, "sb"))
			each(arg, entry->d_name);
	}
	return 0;
}
