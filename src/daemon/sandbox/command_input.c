#include "daemon/sandbox/command_input.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/banned.h"
#include "base/clock.h"

#include "daemon/sandbox/command.h"

void command_input_init(struct command_input *in)
{
	*in = (struct command_input){ 0 };
	agent_conn_init(&in->conn);
}

void command_input_release(struct command_input *in)
{
	agent_conn_release(&in->conn);
}

bool command_input_is_open(const struct command_input *in)
{
	return in->conn.fd >= 0;
}

int command_input_open(struct command_input *in, const char *sandbox, const char *id, struct err *e)
{
	int r = agent_conn_open(&in->conn, sandbox, clock_mono_ns() + AGENT_ANSWER_MS * NS_PER_MS,
				e);

	if (r < 0)
		return r;
	agent_put_id(&in->conn.out, AGENT_INPUT, id);
	return in->conn.out.failed ? agent_conn_err(in->conn.out.failed, e) : 0;
}

int command_input_add(struct command_input *in, const void *data, size_t len, struct err *e)
{
	const char *p = data;

	while (len) {
		size_t piece = len < FRAME_MAX ? len : FRAME_MAX;

		frame_put(&in->conn.out, AGENT_STDIN, p, piece);
		p += piece;
		len -= piece;
	}
	return in->conn.out.failed ? agent_conn_err(in->conn.out.failed, e) : 0;
}

void command_input_eof(struct command_input *in)
{
	agent_put_empty(&in->conn.out, AGENT_STDIN_EOF);
}

void command_input_end(struct command_input *in, bool eof)
{
	if (in->ending)
		return;
	if (eof)
		command_input_eof(in);
	in->ending = true;
}

size_t command_input_pending(const struct command_input *in)
{
	return in->conn.out.len - in->conn.sent;
}

short command_input_events(const struct command_input *in)
{
	return agent_conn_pending(&in->conn) ? POLLIN | POLLOUT : POLLIN;
}

/* What the agent has said: 1 for DONE. */
static int take_word(struct command_input *in, struct err *e)
{
	struct message m;
	int r = agent_conn_next(&in->conn, &m);

	if (r <= 0)
		return r < 0 ? agent_conn_err(r, e) : 0;
	if (m.type == AGENT_FAIL)
		return agent_fail_err(&m, e);
	return m.type == AGENT_DONE && !m.len && in->ending ? 1 : agent_conn_err(-EPROTO, e);
}

int command_input_turn(struct command_input *in, short revents, struct err *e)
{
	int r = agent_conn_flush(&in->conn);

	if (r < 0)
		return agent_conn_err(r, e);
	if (in->ending && !in->shut && !agent_conn_pending(&in->conn)) {
		shutdown(in->conn.fd, SHUT_WR);
		in->shut = true;
	}
	if (!(revents & (POLLIN | POLLHUP | POLLERR)))
		return 0;
	r = agent_conn_fill(&in->conn);
	return r < 0 ? agent_conn_err(r, e) : take_word(in, e);
}

int command_input_wait(struct command_input *in, size_t pending, int client_fd,
		       uint64_t deadline_ns, struct err *e)
{
	short revents = 0;

	for (;;) {
		struct pollfd p[2] = { { .fd = in->conn.fd }, { .fd = client_fd } };
		int r = command_input_turn(in, revents, e);

		if (r != 0)
			return r < 0 ? r : 0;
		if (!in->ending && command_input_pending(in) <= pending)
			return 0;
		p[0].events = command_input_events(in);
		r = poll(p, 2, clock_left_ms(deadline_ns));
		if (r < 0 && errno != EINTR)
			return err_set(e, errno, "wait for the sandbox's agent: %m");
		if (r == 0 && clock_mono_ns() >= deadline_ns)
			return agent_conn_err(-ETIMEDOUT, e);
		if (r <= 0)
			p[0].revents = p[1].revents = 0;
		revents = p[0].revents;
		if (p[1].revents & (POLLHUP | POLLERR | POLLNVAL))
			return err_set(e, ECONNABORTED, "the client left");
	}
}
