#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "init/file_job.h"
#include "init/file_path.h"
#include "init/file_walk.h"

static int wait_go(struct file_job *j, struct agent_go *ret)
{
	struct message m;
	int r = file_job_next(j, &m);

	if (r < 0)
		return r;
	return m.type == AGENT_GO ? file_get_go(&m, ret) : -EPROTO;
}

/* The bytes asked for, as far as they were there when the client was told the size; `unsized`: to
 * the end, wherever that is. */
static int send_bytes(struct file_job *j, int fd, const struct agent_go *go, uint64_t size,
		      bool unsized, struct err *e)
{
	static char data[FILE_DATA_MAX];
	uint64_t at = go->offset, most = unsized ? UINT64_MAX : size;
	uint64_t end = at >= most || go->length >= most - at ? most : at + go->length;

	while (at < end) {
		size_t want = end - at < sizeof(data) ? (size_t)(end - at) : sizeof(data);
		ssize_t n = pread(fd, data, want, (off_t)at);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return file_err(e, errno, "read", j->req.path);
		if (n == 0 && unsized)
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

/* Files that are made while they are read: what the kernel's say of their size is nothing, or false;
 * those of a FUSE server may say none. */
static bool is_unsized(int fd, const struct stat *st)
{
	struct statfs fs;

	if (!S_ISREG(st->st_mode))
		return false;
	return file_of_kernel(fd) ||
	       (!st->st_size && fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC);
}

int file_read(struct file_job *j, struct err *e)
{
	struct agent_entry entry;
	struct agent_go go;
	struct stat st;
	_cleanup_close_ int fd = file_open(AT_FDCWD, j->req.path, O_RDONLY, &st, e);
	bool unsized = fd >= 0 && is_unsized(fd, &st);
	int r = fd < 0 ? fd : file_entry(fd, "", j->req.path, &entry);

	if (fd < 0)
		return fd;
	if (r < 0)
		return file_err(e, r, "look at", j->req.path);
	/* what is told is what is sent, should it grow */
	entry.size = unsized ? 0 : (uint64_t)st.st_size;
	file_put_entry(&j->out, &entry);
	r = wait_go(j, &go);
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		return file_pack(j, fd, e);
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return send_bytes(j, fd, &go, entry.size, unsized, e);
}
