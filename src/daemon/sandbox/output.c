#include "daemon/sandbox/output.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#include "daemon/sandbox/output_priv.h"

static int root = -1;

int output_dir(void)
{
	return root;
}

void output_name(char out[OUTPUT_NAME_SIZE], const char *sandbox, const char *id, int stream)
{
	snprintf(out, OUTPUT_NAME_SIZE, "%s/%s.%d", sandbox, id, stream);
}

uint64_t output_head_check(const struct output_view *v)
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
	output_settle(o);
	close_p(&o->fd);
}

void output_flush(struct output_file *o)
{
	struct output_head h;

	if (!o->dirty || o->fd < 0)
		return;
	h = (struct output_head){
		.magic = htole64(OUTPUT_MAGIC),
		.version = htole64(OUTPUT_VERSION),
		.total = htole64(o->view.total),
		.head = htole64(o->view.head),
		.tail_at = htole64(o->view.tail_at),
		.check = htole64(output_head_check(&o->view)),
	};
	/* where that fails the readers see less than there is, and the next flush tries again */
	if (pwrite_full(o->fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h))
		o->dirty = o->announce = false;
}

void output_settle(struct output_file *o)
{
	struct output_view *v = &o->view;

	if (v->total - v->tail_at > COMMAND_KEEP) {
		v->tail_at = v->total - COMMAND_KEEP;
		o->dirty = true;
	}
	output_flush(o);
}

int output_resume(struct output_file *o, struct err *e)
{
	_cleanup_close_ int fd = -1;
	char name[OUTPUT_NAME_SIZE];
	int r;

	output_name(name, o->sandbox, o->id, o->stream);
	fd = openat(root, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_set(e, errno, "open kept output '%s': %m", name);
	r = output_read_head(fd, &o->view);
	if (r < 0)
		return err_set(e, r, "read kept output '%s': %s", name, strerror(-r));
	o->fd = take_fd(&fd);
	return 0;
}

/* Makes the file, and the sandbox's directory with its first file. */
static void make_file(struct output_file *o)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	char name[OUTPUT_NAME_SIZE];

	output_name(name, o->sandbox, o->id, o->stream);
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
	ssize_t n = pwrite_full(o->fd, data, piece, OUTPUT_HEAD_SIZE + (off_t)v->head);

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
	uint64_t at = v->total % OUTPUT_RING;
	size_t piece = len < OUTPUT_RING - at ? len : (size_t)(OUTPUT_RING - at);
	uint64_t total = v->total + piece;

	if (total - v->tail_at > OUTPUT_RING) {
		v->tail_at = total - COMMAND_KEEP;
		o->dirty = o->announce = true;
	}
	if (o->announce)
		output_flush(o);
	if (!o->announce &&
	    pwrite_full(o->fd, data, piece, OUTPUT_RING_AT + (off_t)at) == (ssize_t)piece)
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
	output_settle(o);
	return 0;
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
	char name[OUTPUT_NAME_SIZE];

	if (!id_valid(sandbox, NULL) || (id && !id_valid(id, NULL)))
		return err_set(e, EINVAL, "not the output of a command");
	if (!id)
		return remove_all(sandbox, e);
	for (int stream = 1; stream <= 2; stream++) {
		output_name(name, sandbox, id, stream);
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
