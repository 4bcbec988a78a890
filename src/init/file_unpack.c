#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "init/file_job.h"
#include "init/file_path.h"
#include "init/untar.h"

/* The client's bytes as the unpacker asks for them. */
struct source_bytes {
	struct file_job *j;
	const char *data;
	size_t left;
	bool over;
};

static ssize_t take_some(void *ctx, void *to, size_t len)
{
	struct source_bytes *s = ctx;
	const void *data;
	ssize_t n;

	if (!s->left && !s->over) {
		n = file_job_take(s->j, &data);
		if (n < 0)
			return n;
		s->data = data;
		s->left = (size_t)n;
		s->over = !n;
	}
	if (len > s->left)
		len = s->left;
	memcpy(to, s->data, len);
	s->data += len;
	s->left -= len;
	return (ssize_t)len;
}

/* The directory that is unpacked into, made where it is missing and that is asked for. */
static int open_target(const struct file_job *j, struct err *e)
{
	const struct agent_file *f = &j->req;
	struct stat st;
	int fd = f->flags & FILE_PARENTS ? file_make_way(f->path, j->uid, j->gid) : 0;

	if (fd < 0)
		return file_err(e, fd, "make the directory", f->path);
	if (f->flags & FILE_PARENTS)
		close(fd);
	fd = file_open(AT_FDCWD, f->path, O_RDONLY, &st, e);
	if (fd >= 0 && !S_ISDIR(st.st_mode)) {
		close(fd);
		return file_err(e, ENOTDIR, "unpack into", f->path);
	}
	return fd;
}

int file_unpack(struct file_job *j, struct err *e)
{
	_cleanup_close_ int target = -1;
	struct source_bytes bytes = { .j = j };
	struct untar_files files = { .read = take_some, .ctx = &bytes };
	int r = file_job_owner(j, e);

	if (r < 0)
		return r;
	target = open_target(j, e);
	if (target < 0)
		return target;
	files.uid = j->uid;
	files.gid = j->gid;
	files.trusted = j->uid == 0;
	agent_put_empty(&j->out, AGENT_READY);
	r = file_job_flush(j);
	if (!r)
		r = untar_files(target, &files, e);
	if (r == -EBADMSG || r == -EMSGSIZE)
		e->reason = "bad_archive";
	return r < 0 ? r : file_put_object(j, target, "", j->req.path, e);
}
