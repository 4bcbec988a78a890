#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/fd.h"

#include "init/file_job.h"
#include "init/file_path.h"
#include "init/file_target.h"

enum {
	FILE_MODE = 0644,
	START_AT = 8 * 1024 * 1024, /* bytes from which they are written to the disk meanwhile */
};

/* All the client sends; the count, or a negative errno. */
static int64_t take_all(struct file_job *j, int fd, struct err *e)
{
	int64_t size = 0, started = 0;
	const void *data;
	ssize_t n;

	while ((n = file_job_take(j, &data)) > 0) {
		int r = write_all(fd, data, (size_t)n);

		if (r < 0)
			return file_err(e, r, "write", j->req.path);
		size += n;
		if (size - started >= START_AT) {
			(void)sync_file_range(fd, started, size - started, SYNC_FILE_RANGE_WRITE);
			started = size;
		}
	}
	return n < 0 ? n : size;
}

static int write_target(struct file_job *j, struct target *t, struct err *e)
{
	const struct agent_file *f = &j->req;
	mode_t mode = f->flags & FILE_HAS_MODE ? f->mode : FILE_MODE;
	int64_t size;
	int r = target_find(t, f->path, f->flags & FILE_PARENTS, j->uid, j->gid, e);

	if (!r)
		r = target_open(t, f->path, e);
	if (r < 0)
		return r;
	agent_put_empty(&j->out, AGENT_READY);
	size = take_all(j, t->file.fd, e);
	if (size < 0)
		return (int)size;
	r = target_finish(t, f->path, j->uid, j->gid, mode, (uint64_t)size, e);
	return r < 0 ? r : file_put_object(j, t->dir, t->leaf, f->path, e);
}

int file_write(struct file_job *j, struct err *e)
{
	struct target t;
	int r = file_job_owner(j, e);

	if (r < 0)
		return r;
	target_init(&t);
	r = write_target(j, &t, e);
	target_release(&t);
	return r;
}
