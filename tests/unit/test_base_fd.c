/*
 * Descriptors: nothing is opened out of the held directory, files are replaced whole or not at all,
 * no descriptor is lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#include "unit.h"

static char top[64];
static int dir = -1;

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int make_top(void **state)
{
	(void)state;
	snprintf(top, sizeof(top), "/tmp/test-fd-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int drop_top(void **state)
{
	static const char *const names[] = { "file",     "link",   "up",      "sub/in",
					     "sub/sock", "socket", ".f.new",  "f",
					     "out",      "fifo",   ".out.new" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlinkat(dir, names[i], 0);
	unlinkat(dir, "sub", AT_REMOVEDIR);
	close(dir);
	return rmdir(top);
}

static void test_beneath(void **state)
{
	static const struct {
		const char *path;
		int flags, code;
	} rows[] = {
		{ "file", O_RDONLY, 0 },
		{ "sub/in", O_RDONLY, 0 },
		{ "./sub/../file", O_RDONLY, 0 }, /* it stays beneath */
		{ "sub", O_RDONLY | O_DIRECTORY, 0 },
		{ "sub", O_PATH | O_DIRECTORY, 0 },
		{ "..", O_RDONLY, -EXDEV },
		{ "../x", O_RDONLY, -EXDEV },
		{ "sub/../../x", O_RDONLY, -EXDEV },
		{ "/etc/passwd", O_RDONLY, -EXDEV },
		{ "link", O_RDONLY, -ELOOP },
		{ "link", O_WRONLY | O_CREAT, -ELOOP },
		{ "link", O_PATH, -ELOOP },
		{ "up", O_RDONLY, -ELOOP },
		{ "up/x", O_RDONLY, -ELOOP },
		{ "missing", O_RDONLY, -ENOENT },
		{ "", O_RDONLY, -ENOENT },
		{ "file/x", O_RDONLY, -ENOTDIR },
		{ "file", O_WRONLY | O_CREAT | O_EXCL, -EEXIST },
		{ "out", O_WRONLY | O_CREAT | O_EXCL, 0 },
		{ ".", O_RDWR | O_TMPFILE, 0 },
	};
	unsigned before;

	(void)state;
	assert_int_equal(mkdirat(dir, "sub", 0755), 0);
	assert_int_equal(replace_file_at(dir, "file", "x", 1, 0644), 0);
	assert_int_equal(linkat(dir, "file", dir, "sub/in", 0), 0);
	assert_int_equal(symlinkat("file", dir, "link"), 0);
	assert_int_equal(symlinkat("..", dir, "up"), 0);
	before = open_fds();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		/* a mode is of use to some of the flags only, and harmless to the others */
		int fd = open_beneath(dir, rows[i].path, rows[i].flags, 0600);

		if ((fd < 0 ? fd : 0) != rows[i].code)
			fail_msg("'%s' with %o: %d", rows[i].path, (unsigned)rows[i].flags, fd);
		if (fd >= 0)
			assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
		close_p(&fd);
	}
	assert_int_equal(open_fds(), before);
}

static void test_read_text(void **state)
{
	char text[8];

	(void)state;
	assert_int_equal(replace_file_at(dir, "f", "1234567", 7, 0644), 0);
	assert_int_equal(read_text_at(dir, "f", text, sizeof(text)), 7);
	assert_string_equal(text, "1234567");
	assert_int_equal(read_text_at(dir, "f", text, 7), -EFBIG);
	assert_int_equal(read_text_at(dir, "missing", text, sizeof(text)), -ENOENT);
	assert_int_equal(write_text_at(dir, "f", "ab"), 0); /* as kernel files: not truncated */
	assert_int_equal(read_text_at(dir, "f", text, sizeof(text)), 7);
	assert_string_equal(text, "ab34567");
	assert_int_equal(write_text_at(dir, "missing", "x"), -ENOENT);
	assert_int_equal(write_text_at(AT_FDCWD, "/dev/full", "x"), -ENOSPC);
}

static void test_replace(void **state)
{
	char text[8], name[NAME_MAX + 1];
	struct stat before, after;
	int fd;

	(void)state;
	assert_int_equal(replace_file_at(dir, "f", "one", 3, 0644), 0);
	fd = openat(dir, "f", O_RDONLY | O_CLOEXEC);
	fstat(fd, &before);
	assert_int_equal(replace_file_at(dir, "f", "three", 5, 0600), 0);
	/* who had it open keeps the whole old one */
	assert_int_equal(read_full(fd, text, sizeof(text)), 3);
	assert_memory_equal(text, "one", 3);
	close(fd);
	assert_int_equal(fstatat(dir, "f", &after, 0), 0);
	assert_int_equal(after.st_size, 5);
	assert_int_equal(after.st_mode & 07777, 0600);
	assert_int_not_equal(before.st_ino, after.st_ino);
	assert_int_equal(fstatat(dir, ".f.new", &after, 0), -1);
	/* what a crash left, or somebody laid, under the temporary name is no obstacle */
	assert_int_equal(mkfifoat(dir, ".f.new", 0644), 0);
	alarm(10); /* opening a FIFO to write waits for a reader */
	assert_int_equal(replace_file_at(dir, "f", "four", 4, 0600), 0);
	alarm(0);
	assert_int_equal(symlinkat("out", dir, ".f.new"), 0);
	assert_int_equal(replace_file_at(dir, "f", "five", 4, 0600), 0);
	assert_int_equal(fstatat(dir, "out", &after, AT_SYMLINK_NOFOLLOW), -1);
	fd = openat(dir, ".f.new", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	assert_int_equal(fchmod(fd, 0666), 0);
	close(fd);
	assert_int_equal(replace_file_at(dir, "f", "six", 3, 0600), 0);
	assert_int_equal(fstatat(dir, "f", &after, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(after.st_mode, S_IFREG | 0600);
	/* a failure leaves the old one and no temporary name */
	assert_int_equal(mkdirat(dir, "sub", 0755), 0);
	assert_int_equal(replace_file_at(dir, "sub", "x", 1, 0600), -EISDIR);
	assert_int_equal(fstatat(dir, ".sub.new", &after, 0), -1);
	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	assert_int_equal(replace_file_at(dir, name, "x", 1, 0600), -ENAMETOOLONG);
}

static void test_flags(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(fd_cloexec(ends[0], 1), 0);
	assert_int_equal(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(fd_cloexec(ends[0], 0), 0);
	assert_int_equal(fcntl(ends[0], F_GETFD), 0);
	assert_int_equal(fd_nonblock(ends[0], 1), 0);
	assert_int_equal(read(ends[0], top, 1), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fd_nonblock(ends[0], 0), 0);
	assert_int_equal(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(fd_nonblock(ends[0], 1), -EBADF);
	assert_int_equal(fd_cloexec(ends[0], 1), -EBADF);
	assert_int_equal(write_all(ends[0], "x", 1), -EBADF);
}

/* More descriptors than send_fds would send. */
static void send_many(int sock, unsigned n)
{
	union {
		char bytes[CMSG_SPACE(16 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (char[]){ 'x' }, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (unsigned i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &dir, sizeof(int));
	assert_int_equal(sendmsg(sock, &m, 0), 1);
}

static void test_pass_fds(void **state)
{
	int pair[2], fds[FDS_MAX], many[FDS_MAX + 1] = { dir, dir, dir, dir, dir };
	unsigned n = 99, before;
	char data[4];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	before = open_fds();
	assert_int_equal(send_fds(pair[0], "abc", 3, many, FDS_MAX + 1), -EINVAL);
	for (unsigned count = 0; count <= FDS_MAX; count++) {
		assert_int_equal(send_fds(pair[0], "abc", 3, many, count), 3);
		assert_int_equal(recv_fds(pair[1], data, sizeof(data), fds, &n, 0), 3);
		assert_int_equal(n, count);
		for (unsigned i = 0; i < FDS_MAX; i++) {
			assert_int_equal(fds[i] >= 0, i < count);
			if (fds[i] >= 0)
				assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
			close_p(&fds[i]);
		}
		assert_int_equal(open_fds(), before);
	}
	/* a message that was cut, and a list that was: an error, and nothing stays open */
	assert_int_equal(send_fds(pair[0], "abcde", 5, many, 2), 5);
	assert_int_equal(recv_fds(pair[1], data, sizeof(data), fds, &n, 0), -EMSGSIZE);
	assert_int_equal(open_fds(), before);
	for (unsigned count = FDS_MAX + 1; count <= 16; count++) {
		send_many(pair[0], count);
		assert_int_equal(recv_fds(pair[1], data, sizeof(data), fds, &n, 0), -EMSGSIZE);
		assert_int_equal(open_fds(), before);
		for (unsigned i = 0; i < FDS_MAX; i++)
			assert_int_equal(fds[i], -1);
	}
	assert_int_equal(recv_fds(pair[1], data, sizeof(data), fds, &n, MSG_DONTWAIT), -EAGAIN);
	close(pair[0]);
	assert_int_equal(recv_fds(pair[1], data, sizeof(data), fds, &n, 0), 0);
	assert_int_equal(n, 0);
	assert_int_equal(send_fds(pair[1], "x", 1, NULL, 0), -EPIPE); /* and no signal */
	close(pair[1]);
}

static void test_sockets(void **state)
{
	char path[PATH_MAX], longer[PATH_MAX];
	unsigned before = open_fds();
	struct stat st;

	(void)state;
	assert_int_equal(mkdirat(dir, "sub", 0755), 0);
	snprintf(path, sizeof(path), "%s/socket", top);
	/* the same directory by a path that is longer than sun_path */
	snprintf(longer, sizeof(longer), "%s", top);
	for (int i = 0; i < 30; i++)
		snprintf(longer + strlen(longer), sizeof(longer) - strlen(longer), "/sub/..");
	snprintf(longer + strlen(longer), sizeof(longer) - strlen(longer), "/sub/sock");
	for (int i = 0; i < 4; i++) {
		const char *at = i & 1 ? longer : path;
		/* the second time over the file of the first */
		int listening = unix_listen(at, SOCK_STREAM, 0620, 5);
		int client, server;

		assert_true(listening >= 0);
		assert_int_equal(stat(at, &st), 0);
		assert_int_equal(st.st_mode, S_IFSOCK | 0620);
		client = unix_connect(at, SOCK_STREAM);
		assert_true(client >= 0);
		server = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		assert_true(server >= 0);
		assert_int_equal(unix_connect(at, SOCK_SEQPACKET), -EPROTOTYPE);
		close(server);
		close(client);
		close(listening);
		assert_int_equal(unix_connect(at, SOCK_STREAM), -ECONNREFUSED);
	}
	assert_int_equal(unix_connect("/nowhere/at/all", SOCK_STREAM), -ENOENT);
	memset(longer, 'x', sizeof(longer) - 1);
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(unix_connect(longer, SOCK_STREAM), -ENAMETOOLONG);
	assert_int_equal(open_fds(), before);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, make_top, drop_top)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ROW(test_beneath), ROW(test_read_text), ROW(test_replace),
		ROW(test_flags),   ROW(test_pass_fds),  ROW(test_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
