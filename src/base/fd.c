#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

int open_beneath(int dir, const char *path, int flags, mode_t mode)
{
	bool makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.mode = makes ? mode : 0, /* openat2 refuses one it has no use for */
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

ssize_t read_full(int fd, void *data, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (char *)data + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

ssize_t read_text_at(int dir, const char *path, char *out, size_t size)
{
	_cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read_full(fd, out, size);
	if (n < 0)
		return n;
	if ((size_t)n == size)
		return -EFBIG;
	out[n] = '\0';
	return n;
}

int write_text_at(int dir, const char *path, const char *text)
{
	_cleanup_close_ int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do
		n = write(fd, text, strlen(text));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == strlen(text) ? 0 : -EIO;
}

int replace_file_at(int dir, const char *name, const void *data, size_t len, mode_t mode)
{
	_cleanup_close_ int fd = -1;
	char temp[NAME_MAX + 1];
	int r;

	if (snprintf(temp, sizeof(temp), ".%s.new", name) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	/* what a crash left, or a link, is not written into */
	if (unlinkat(dir, temp, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, len);
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (!r && renameat(dir, temp, dir, name) < 0)
		r = -errno;
	if (r)
		unlinkat(dir, temp, 0);
	return r;
}

static int change_flag(int fd, int get, int set, int flag, int on)
{
	int flags = fcntl(fd, get);

	if (flags < 0)
		return -errno;
	return fcntl(fd, set, on ? flags | flag : flags & ~flag) < 0 ? -errno : 0;
}

int fd_nonblock(int fd, int on)
{
	return change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_cloexec(int fd, int on)
{
	return change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

/* Fills `a` for `path`. A long path goes through `*ret_dir`, which the caller keeps open until the
 * address was used. */
static int unix_address(const char *path, struct sockaddr_un *a, int *ret_dir)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) < sizeof(a->sun_path)) {
		memcpy(a->sun_path, path, strlen(path) + 1);
		return 0;
	}
	if (!slash || (size_t)(slash - path) + 1 >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, (size_t)(slash - path) + 1); /* with its slash: it may be the root */
	parent[slash - path + 1] = '\0';
	*ret_dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return -errno;
	n = snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%s", *ret_dir, slash + 1);
	return n < 0 || (size_t)n >= sizeof(a->sun_path) ? -ENAMETOOLONG : 0;
}

int unix_listen(const char *path, int type, mode_t mode, int backlog)
{
	_cleanup_close_ int dir = -1, sock = -1;
	struct sockaddr_un a;
	int r = unix_address(path, &a, &dir);

	if (r < 0)
		return r;
	sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	if (fchmod(sock, mode) < 0) /* bind makes the file with the mode of the socket's inode */
		return -errno;
	if (bind(sock, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	if (chmod(path, mode) < 0 || listen(sock, backlog) < 0)
		return -errno;
	return take_fd(&sock);
}

int unix_connect(const char *path, int type)
{
	_cleanup_close_ int dir = -1, sock = -1;
	struct sockaddr_un a;
	int r = unix_address(path, &a, &dir);

	if (r < 0)
		return r;
	sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	while (connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return take_fd(&sock);
}

ssize_t send_fds(int sock, const void *data, size_t len, const int *fds, unsigned n)
{
	union {
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	if (n > FDS_MAX)
		return -EINVAL;
	if (n) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	do
		sent = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

ssize_t recv_fds(int sock, void *data, size_t len, int fds[FDS_MAX], unsigned *ret_n, int flags)
{
	union {
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	unsigned n = 0;
	ssize_t got;

	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = -1;
	do
		got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | flags);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) && n < FDS_MAX;
		     i++)
			memcpy(&fds[n++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	*ret_n = n;
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (unsigned i = 0; i < n; i++)
			close_p(&fds[i]);
		*ret_n = 0;
		return -EMSGSIZE;
	}
	return got;
}
