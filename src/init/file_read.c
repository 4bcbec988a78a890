#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "init/file_job.h"
#include "init/file_path.h"

static int wait_go(struct file_job *j, struct agent_go *ret)
{
	struct message m;
	int r = file_job_next(j, &m);

	if (r < 0)
		return r;
	return m.type == AGENT_GO ? file_get_go(&m, ret) : -EPROTO;
}

/* The bytes asked for, as far as they were there when the client was told the size. Files of the
 * kernel's that tell no size are read to their end. */
static int send_bytes(struct file_job *j, int fd, const struct agent_go *go, uint64_t size,
		      struct err *e)
{
	static char data[FILE_DATA_MAX];
	uint64_t at = go->offset, end = size;

	if (go->length < end - (at < end ? at : end))
		end = at + go->length;
	while (at < end || !size) {
		size_t most = size && end - at < sizeof(data) ? (size_t)(end - at) : sizeof(data);
		ssize_t n = pread(fd, data, most, (off_t)at);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return file_err(e, errno, "read", j->req.path);
		if (n == 0 && !size)
			return 0;
		if (n == 0)
			return err_set(e, EIO, "the file was cut while it was read");
		r = file_job_data(j, data, (size_t)n);
		if (r < 0)
			return r;
		at += (uint64_t)n;
	}
	return 0;
}

int file_read(struct file_job *j, struct err *e)
{
	struct agent_entry entry;
	struct agent_go go;
	struct stat st;
	_cleanup_close_ int fd = file_open(AT_FDCWD, j->req.path, O_RDONLY, &st, e);
	int r = fd < 0 ? fd : file_entry(fd, "", j->req.path, &entry);

	if (fd < 0)
		return fd;
	if (r < 0)
		return file_err(e, r, "look at", j->req.path);
	file_put_entry(&j->out, &entry);
	r = wait_go(j, &go);
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		return file_pack(j, fd, e);
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return send_bytes(j, fd, &go, (uint64_t)st.st_size, e);
}
