#include "init/file_job.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"

enum {
	SOCK_FD = 3,
	OUT_ENOUGH = 48 * 1024,
	OUT_MAX = 1024 * 1024,
};

static file_op_fn *const ops[FILE_OPS_END] = {
	[FILE_LIST] = file_list,     [FILE_STAT] = file_stat,     [FILE_MAKE] = file_make,
	[FILE_SET] = file_set,       [FILE_REMOVE] = file_remove, [FILE_MOVE] = file_move,
	[FILE_READ] = file_read,     [FILE_WRITE] = file_write,   [FILE_UNPACK] = file_unpack,
	[FILE_SEARCH] = file_search, [FILE_WATCH] = file_watch,
};

static int send_parts(int sock, struct iovec *parts, int n)
{
	while (n) {
		struct msghdr m = { .msg_iov = parts, .msg_iovlen = (size_t)n };
		ssize_t sent = sendmsg(sock, &m, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -EPIPE;
		while (n && (size_t)sent >= parts->iov_len) {
			sent -= (ssize_t)parts->iov_len;
			parts++;
			n--;
		}
		if (n) {
			parts->iov_base = (char *)parts->iov_base + sent;
			parts->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

int file_job_flush(struct file_job *j)
{
	struct iovec part = { j->out.data, j->out.len };
	int r = j->out.failed ? -EPIPE : !j->out.len ? 0 : send_parts(j->sock, &part, 1);

	buf_clear(&j->out);
	return r;
}

int file_job_push(struct file_job *j)
{
	return j->out.failed || j->out.len >= OUT_ENOUGH ? file_job_flush(j) : 0;
}

int file_job_data(struct file_job *j, const void *data, size_t len)
{
	unsigned char head[FRAME_HEAD];
	struct iovec parts[2] = { { head, sizeof(head) }, { (void *)data, len } };
	int r = file_job_flush(j);

	if (r < 0)
		return r;
	frame_head(AGENT_DATA, len, head);
	return send_parts(j->sock, parts, 2);
}

int file_job_next(struct file_job *j, struct message *ret)
{
	int r = file_job_flush(j);

	while (!r) {
		ssize_t n;

		r = frame_reader_next(&j->in, ret);
		if (r)
			break;
		n = frame_reader_fill(&j->in, j->sock);
		r = n > 0 ? 0 : -EPIPE;
	}
	return r > 0 ? 0 : r == -EPIPE ? r : -EPROTO;
}

ssize_t file_job_take(struct file_job *j, const void **ret)
{
	struct message m = { 0 };
	int r;

	do
		r = file_job_next(j, &m);
	while (!r && m.type == AGENT_DATA && !m.len);
	if (r < 0)
		return r;
	if (m.type == AGENT_DATA_END && !m.len)
		return 0;
	if (m.type != AGENT_DATA || m.len > FILE_DATA_MAX)
		return -EPROTO;
	*ret = m.data;
	return (ssize_t)m.len;
}

int file_job_owner(struct file_job *j, struct err *e)
{
	static struct user u;
	const char *asked = j->req.user, *who = asked[0] ? asked : j->req.default_user;
	int r = who[0] ? user_lookup("/etc", who, &u) : -ENOENT;

	if (r < 0 && asked[0] && !str_eq(asked, "root") && !str_eq(asked, "0")) {
		err_reason(e, EINVAL, "user_not_found", "user '%s' does not exist", asked);
		return err_field(e, "userName");
	}
	j->uid = r < 0 ? 0 : u.uid;
	j->gid = r < 0 ? 0 : u.gid;
	return 0;
}

/* Leaves the process with nothing of PID 1's but the connection and what it was asked. */
static int shed(struct file_job *j, int sock)
{
	sigset_t none;

	if (sock != SOCK_FD && dup3(sock, SOCK_FD, O_CLOEXEC) < 0)
		return -errno;
	if (dup2(0, 1) < 0 || dup2(0, 2) < 0)
		return -errno;
	if (syscall(SYS_close_range, SOCK_FD + 1, ~0U, 0) < 0 || setgroups(0, NULL) < 0)
		return -errno;
	j->sock = SOCK_FD;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "skerry-files");
	umask(0);
	if (chdir("/") < 0)
		return -errno;
	return fd_nonblock(j->sock, 0);
}

static void finish(struct file_job *j, int r, const struct err *e)
{
	static char waste[16 * 1024];
	ssize_t n;

	if (r == -EPIPE)
		return;
	if (r >= 0)
		file_put_end(&j->out, (uint32_t)r);
	else
		agent_put_fail(&j->out, &(struct agent_fail){
						.code = (uint32_t)-r,
						.reason = e->reason ? e->reason : "file_failed",
						.field = e->field,
						.text = e->text,
					});
	if (file_job_flush(j) < 0)
		return;
	/* what the peer may still be sending is no reason to reset what it is to read */
	shutdown(j->sock, SHUT_WR);
	do
		n = read(j->sock, waste, sizeof(waste));
	while (n > 0 || (n < 0 && errno == EINTR));
}

void file_job_run(const struct message *m, int sock, struct frame_reader *in)
{
	static struct file_job j;
	static char data[FRAME_MAX];
	struct message copy = *m;
	struct err e = ERR_INIT;

	if (m->len > sizeof(data))
		_exit(1);

	/* the request outlives the reader's message */
	copy.data = memcpy(data, m->data, m->len);
	j.in = *in;
	buf_init(&j.out, OUT_MAX);
	if (shed(&j, sock) < 0 || file_get_request(&copy, &j.req) < 0)
		_exit(1);
	finish(&j, ops[j.req.op](&j, &e), &e);
	_exit(0);
}
