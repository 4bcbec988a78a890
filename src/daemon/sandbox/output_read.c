#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "daemon/sandbox/output_priv.h"

enum { READ_TRIES = 1000 };

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
	if (n != (ssize_t)sizeof(h) || le64toh(h.magic) != OUTPUT_MAGIC ||
	    le64toh(h.version) != OUTPUT_VERSION)
		return -EUCLEAN;
	v = (struct output_view){ le64toh(h.total), le64toh(h.head), le64toh(h.tail_at) };
	if (le64toh(h.check) != output_head_check(&v))
		return -EAGAIN;
	if (v.head > COMMAND_KEEP || v.head > v.tail_at || v.tail_at > v.total ||
	    v.total - v.tail_at > OUTPUT_RING || v.total > OUTPUT_TOTAL_MAX)
		return -EUCLEAN;
	*ret = v;
	return 0;
}

int output_read_head(int fd, struct output_view *ret)
{
	int r = -EAGAIN;

	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++) {
		if (i)
			sched_yield();
		r = read_head_once(fd, ret);
	}
	return r == -EAGAIN ? -EUCLEAN : r;
}

void output_reader_init(struct output_reader *r, const char *sandbox, const char *id, int stream)
{
	*r = (struct output_reader){ .stream = stream, .fd = -1 };
	str_copy(r->sandbox, sizeof(r->sandbox), sandbox);
	str_copy(r->id, sizeof(r->id), id);
}

void output_reader_release(struct output_reader *r)
{
	close_p(&r->fd);
}

/* 1, or 0 where nothing is kept (yet). */
static int open_kept(struct output_reader *r, struct err *e)
{
	char name[OUTPUT_NAME_SIZE];

	if (r->fd >= 0)
		return 1;
	if (!id_valid(r->sandbox, NULL) || !id_valid(r->id, NULL) || r->stream < 1 || r->stream > 2)
		return err_set(e, EINVAL, "not the output of a command");
	output_name(name, r->sandbox, r->id, r->stream);
	r->fd = openat(output_dir(), name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (r->fd < 0 && errno != ENOENT)
		return err_set(e, errno, "open kept output '%s': %m", name);
	return r->fd >= 0;
}

static int err_damaged(struct err *e, int r, const char *id)
{
	return err_set(e, r, "read kept output of '%s': %s", id, strerror(-r));
}

int output_reader_stat(struct output_reader *r, struct output_view *ret, struct err *e)
{
	int code = open_kept(r, e);

	if (code == 0)
		*ret = (struct output_view){ 0 };
	if (code <= 0)
		return code;
	code = output_read_head(r->fd, ret);
	return code < 0 ? err_damaged(e, code, r->id) : 0;
}

int output_stat(const char *sandbox, const char *id, int stream, struct output_view *ret,
		struct err *e)
{
	struct output_reader reader;
	int r;

	output_reader_init(&reader, sandbox, id, stream);
	r = output_reader_stat(&reader, ret, e);
	output_reader_release(&reader);
	return r;
}

/* Where the byte at `offset` lies and how many follow it there; 0 in a gap and at the end. */
static size_t locate(const struct output_view *v, uint64_t offset, off_t *ret_at)
{
	uint64_t ring;

	if (offset < v->head) {
		*ret_at = OUTPUT_HEAD_SIZE + (off_t)offset;
		return (size_t)(v->head - offset);
	}
	if (offset < v->tail_at || offset >= v->total)
		return 0;
	ring = offset % OUTPUT_RING;
	*ret_at = OUTPUT_RING_AT + (off_t)ring;
	return v->total - offset < OUTPUT_RING - ring ? (size_t)(v->total - offset)
						      : (size_t)(OUTPUT_RING - ring);
}

static ssize_t read_kept(int fd, uint64_t offset, char *data, size_t len)
{
	struct output_view v, after;
	size_t got = 0;
	int r = output_read_head(fd, &v);

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
	r = output_read_head(fd, &after);
	if (r < 0)
		return r;
	if (offset + got > v.head && after.tail_at > v.tail_at) {
		uint64_t from = offset > v.head ? offset : v.head;

		if (from < after.tail_at)
			got = offset < v.head ? (size_t)(v.head - offset) : 0;
	}
	return (ssize_t)got;
}

ssize_t output_reader_read(struct output_reader *r, uint64_t offset, void *data, size_t len,
			   struct err *e)
{
	int code = open_kept(r, e);
	ssize_t n;

	if (code <= 0)
		return code;
	if (offset > OUTPUT_TOTAL_MAX)
		return 0;
	n = read_kept(r->fd, offset, data, len);
	return n < 0 ? err_damaged(e, (int)n, r->id) : n;
}

ssize_t output_read(const char *sandbox, const char *id, int stream, uint64_t offset, void *data,
		    size_t len, struct err *e)
{
	struct output_reader reader;
	ssize_t n;

	output_reader_init(&reader, sandbox, id, stream);
	n = output_reader_read(&reader, offset, data, len, e);
	output_reader_release(&reader);
	return n;
}
