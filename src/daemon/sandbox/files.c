#include "sandbox/files.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "sandbox/lifecycle.h"
#include "sandbox/sandbox.h"

enum { FILES_VERSION = 3 }; /* of the agents that know files */

static uint32_t silence_limit; /* of tests; 0: none */

void files_set_silence(uint32_t ms)
{
	silence_limit = ms;
}

void files_init(struct files_call *c)
{
	*c = (struct files_call){ .client_fd = -1 };
	agent_conn_init(&c->conn);
}

void files_release(struct files_call *c)
{
	agent_conn_release(&c->conn);
}

/* -- faults -------------------------------------------------------------------------------- */

/* The machine is not what it was? That is the better story. */
static int not_running(const struct files_call *c, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row now = { 0 };
	struct err ignored = ERR_INIT;

	if (sandbox_get(c->sandbox->id, &now, &ignored) == -ENOENT)
		return err_reason(e, ENOENT, "sandbox_not_found", "there is no sandbox '%s'",
				  c->sandbox->identifier);
	if (now.id[0] && (now.status != RUNNING || now.deleting))
		return status_conflict(now.identifier, now.deleting ? STOPPING : now.status, e);
	return 0;
}

static int too_old(const struct files_call *c, struct err *e)
{
	err_reason(e, EBUSY, "agent_version", "the agent of sandbox '%s' does not know files yet",
		   c->sandbox->identifier);
	return err_hint(e, "restart the sandbox with POST …/restart");
}

static int silent(const struct files_call *c, struct err *e)
{
	int r = not_running(c, e);

	if (r < 0)
		return r;
	err_reason(e, EHOSTDOWN, "file_system_silent",
		   "a file system of sandbox '%s' does not answer", c->sandbox->identifier);
	e->cause = "ETIMEDOUT";
	return err_hint(e, "try again, or restart the sandbox");
}

/* `r` is what agent_conn_* returned. */
static int fault(const struct files_call *c, int r, struct err *e)
{
	int gone;

	if (r == -ECONNABORTED)
		return err_set(e, ECONNABORTED, "the client left");
	if (r == -ETIMEDOUT)
		return silent(c, e);
	if (r == -EPROTONOSUPPORT || (c->conn.greeted && c->conn.version < FILES_VERSION))
		return too_old(c, e);
	if (r == -ENOMEM)
		return err_set(e, ENOMEM, "out of memory");
	gone = not_running(c, e);
	if (gone < 0)
		return gone;
	agent_conn_err(r, e);
	e->code = EHOSTDOWN;
	err_wrap(e, "sandbox '%s'", c->sandbox->identifier);
	return err_hint(e, "try again, or restart the sandbox");
}

/* -- waiting ------------------------------------------------------------------------------- */

static uint64_t deadline_of(const struct files_call *c)
{
	uint32_t ms = silence_limit && c->silence_ms ? silence_limit : c->silence_ms;

	return ms ? clock_mono_ns() + ms * NS_PER_MS : UINT64_MAX;
}

/* Until the agent's socket is ready for `events`. What of them it is, or a negative errno. */
static int wait_for(struct files_call *c, short events, uint64_t deadline)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = c->conn.fd, .events = events },
				       { .fd = c->client_fd } };
		int r = poll(p, 2, clock_left_ms(deadline));

		if (r < 0 && errno != EINTR)
			return -errno;
		if (r == 0 && clock_mono_ns() >= deadline)
			return -ETIMEDOUT;
		if (r <= 0)
			continue;
		if (p[1].revents & (POLLHUP | POLLERR | POLLNVAL))
			return -ECONNABORTED;
		if (p[0].revents)
			return p[0].revents;
	}
}

/* Sends what is pending and waits for the next message. */
static int next_message(struct files_call *c, struct message *ret)
{
	uint64_t deadline = deadline_of(c);

	for (;;) {
		int r = agent_conn_next(&c->conn, ret);

		if (c->conn.greeted && c->conn.version < FILES_VERSION)
			return -EPROTONOSUPPORT;
		if (r != 0)
			return r < 0 ? r : 0;
		r = agent_conn_flush(&c->conn);
		if (r < 0)
			return r;
		r = wait_for(c, agent_conn_pending(&c->conn) ? POLLIN | POLLOUT : POLLIN, deadline);
		if (r > 0 && (r & ~POLLOUT))
			r = agent_conn_fill(&c->conn);
		if (r < 0)
			return r;
	}
}

/* The next message: one of `type`, 1; END where `*ret_flags` is wanted, 0. */
static int expect(struct files_call *c, uint8_t type, struct message *ret, uint32_t *ret_flags,
		  struct err *e)
{
	struct agent_fail fail;
	int r = next_message(c, ret);

	if (r < 0)
		return fault(c, r, e);
	if (ret->type == AGENT_FAIL)
		return agent_get_fail(ret, &fail) < 0 ? fault(c, -EPROTO, e)
						      : files_refused(ret, e);
	if (type && ret->type == type)
		return 1;
	if (!ret_flags || ret->type != AGENT_END || file_get_end(ret, ret_flags) < 0)
		return fault(c, -EPROTO, e);
	return 0;
}

/* -- messages ------------------------------------------------------------------------------ */

static uint32_t patience(uint8_t op)
{
	return op == FILE_REMOVE ? FILES_LONG_MS : FILES_SILENCE_MS;
}

int files_open(struct files_call *c, const struct sandbox_row *sandbox, const struct agent_file *f,
	       int client_fd, struct err *e)
{
	int r;

	c->sandbox = sandbox;
	c->client_fd = client_fd;
	c->silence_ms = patience(f->op);
	if (sandbox->deleting || sandbox->status != RUNNING)
		return status_conflict(sandbox->identifier,
				       sandbox->deleting ? STOPPING : sandbox->status, e);
	r = agent_conn_open(&c->conn, sandbox->id, clock_mono_ns() + AGENT_ANSWER_MS * NS_PER_MS,
			    e);
	if (r < 0)
		return fault(c, r, e);
	file_put_request(&c->conn.out, f);
	return 0;
}

int files_ready(struct files_call *c, struct err *e)
{
	struct message m = { 0 };
	int r = expect(c, AGENT_READY, &m, NULL, e);

	return r < 0 ? r : m.len ? fault(c, -EPROTO, e) : 0;
}

int files_entry(struct files_call *c, struct agent_entry *ret, struct err *e)
{
	struct message m = { 0 };
	int r = expect(c, AGENT_ENTRY, &m, NULL, e);

	if (r < 0)
		return r;
	return file_get_entry(&m, ret) < 0 || ret->path[0] != '/' ? fault(c, -EPROTO, e) : 0;
}

int files_end(struct files_call *c, uint32_t *ret_flags, struct err *e)
{
	struct message m = { 0 };

	return expect(c, 0, &m, ret_flags, e);
}

int files_list(struct files_call *c, struct agent_entry *ret, uint32_t *ret_flags, struct err *e)
{
	struct message m = { 0 };
	int r = expect(c, AGENT_ENTRY, &m, ret_flags, e);

	if (r > 0 && (file_get_entry(&m, ret) < 0 || ret->path[0] == '/'))
		return fault(c, -EPROTO, e);
	return r;
}

int files_match(struct files_call *c, struct agent_match *ret, uint32_t *ret_flags, struct err *e)
{
	struct message m = { 0 };
	int r = expect(c, AGENT_MATCH, &m, ret_flags, e);

	return r > 0 && file_get_match(&m, ret) < 0 ? fault(c, -EPROTO, e) : r;
}

int files_event(struct files_call *c, struct agent_event *ret, struct err *e)
{
	struct message m = { 0 };
	uint32_t flags;
	int r = expect(c, AGENT_EVENT, &m, &flags, e);

	return r > 0 && file_get_event(&m, ret) < 0 ? fault(c, -EPROTO, e) : r;
}

/* -- bytes to us --------------------------------------------------------------------------- */

int files_go(struct files_call *c, uint64_t offset, uint64_t length, struct err *e)
{
	file_put_go(&c->conn.out, &(struct agent_go){ offset, length });
	return c->conn.out.failed ? fault(c, c->conn.out.failed, e) : 0;
}

/* One read: into `data` what is left of a frame, behind it the next one's head. */
static ssize_t read_parts(struct files_call *c, char *data, size_t want)
{
	struct iovec parts[2] = { { data, want },
				  { c->head + c->head_len, FRAME_HEAD - c->head_len } };
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = want == c->left ? 2 : 1 };
	ssize_t n;

	do
		n = recvmsg(c->conn.fd, &m, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n == 0 ? -ECONNRESET : n;
}

/* Bytes of the frame under way to `data`, at most `want`; the count, or 0 for nothing now. */
static ssize_t take_bytes(struct files_call *c, char *data, size_t want)
{
	ssize_t n = (ssize_t)frame_reader_take(&c->conn.in, data, want);

	if (n)
		return n;
	n = read_parts(c, data, want);
	if (n > 0 && (size_t)n > want) {
		c->head_len += (size_t)n - want;
		n = (ssize_t)want;
	}
	return n == -EAGAIN ? 0 : n;
}

/* 1 once a head is there. */
static int take_head(struct files_call *c)
{
	ssize_t n;

	c->head_len +=
		frame_reader_take(&c->conn.in, c->head + c->head_len, FRAME_HEAD - c->head_len);
	if (c->head_len == FRAME_HEAD)
		return 1;
	n = read_parts(c, NULL, 0);
	if (n > 0)
		c->head_len += (size_t)n;
	return n == -EAGAIN ? 0 : n < 0 ? (int)n : c->head_len == FRAME_HEAD;
}

static bool head_is_data(const struct files_call *c, size_t *ret)
{
	const unsigned char *h = c->head;

	*ret = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24;
	return h[4] == AGENT_DATA && *ret <= FILE_DATA_MAX;
}

/* What is not data is the end: it goes the way of all other messages. */
static int receive_end(struct files_call *c, struct err *e)
{
	uint32_t flags;

	if (frame_reader_give_back(&c->conn.in, c->head, FRAME_HEAD) < 0)
		return fault(c, -ENOMEM, e);
	c->head_len = 0;
	return files_end(c, &flags, e);
}

ssize_t files_receive(struct files_call *c, void *data, size_t max, struct err *e)
{
	uint64_t deadline = deadline_of(c);
	size_t have = 0;
	ssize_t r = agent_conn_flush(&c->conn);

	while (r >= 0 && have < max) {
		if (c->left) {
			r = take_bytes(c, (char *)data + have,
				       c->left < max - have ? c->left : max - have);
			if (r > 0) {
				c->left -= (size_t)r;
				have += (size_t)r;
			}
		} else {
			r = take_head(c);
			if (r > 0 && !head_is_data(c, &c->left)) {
				c->left = 0;
				return have ? (ssize_t)have : receive_end(c, e);
			}
			if (r > 0)
				c->head_len = 0;
		}
		if (r)
			continue;
		if (have)
			break;
		r = wait_for(c, POLLIN, deadline);
	}
	return r < 0 && !have ? fault(c, (int)r, e) : (ssize_t)have;
}

/* -- bytes from us ------------------------------------------------------------------------- */

/* The agent has something to say while we send: that can only be a refusal. */
static int heard(struct files_call *c, struct err *e)
{
	struct message m = { 0 };
	int r = expect(c, 0, &m, NULL, e);

	return r < 0 ? r : fault(c, -EPROTO, e);
}

static int send_parts(struct files_call *c, struct iovec *parts, unsigned n, struct err *e)
{
	uint64_t deadline = deadline_of(c);

	while (n) {
		struct msghdr m = { .msg_iov = parts, .msg_iovlen = n };
		int r = wait_for(c, POLLIN | POLLOUT, deadline);
		ssize_t sent;

		if (r < 0)
			return fault(c, r, e);
		if (r & ~POLLOUT)
			return heard(c, e);
		sent = sendmsg(c->conn.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (sent < 0)
			return heard(c, e);
		deadline = deadline_of(c);
		for (; n && (size_t)sent >= parts->iov_len; n--)
			sent -= (ssize_t)(parts++)->iov_len;
		if (n) {
			parts->iov_base = (char *)parts->iov_base + sent;
			parts->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

int files_send(struct files_call *c, const void *data, size_t len, struct err *e)
{
	unsigned char head[FRAME_HEAD];
	struct iovec parts[2] = { { head, sizeof(head) }, { (void *)data, len } };

	if (!len)
		return 0;
	frame_head(AGENT_DATA, len, head);
	return send_parts(c, parts, 2, e);
}

int files_send_end(struct files_call *c, struct err *e)
{
	unsigned char head[FRAME_HEAD];
	struct iovec part = { head, sizeof(head) };

	frame_head(AGENT_DATA_END, 0, head);
	c->silence_ms = FILES_LONG_MS; /* all of it is being written out */
	return send_parts(c, &part, 1, e);
}
