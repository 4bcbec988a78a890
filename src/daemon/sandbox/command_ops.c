/*
 * Operations that are one question and one answer, each on a connection of its own.
 */
#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "daemon/sandbox/command.h"
#include "daemon/sandbox/command_conn.h"

enum { LIST_MAX = 100000 }; /* lines of one LIST believed */

static uint64_t answer_by(uint32_t grace_ms)
{
	return clock_mono_ns() + (grace_ms + (uint64_t)AGENT_ANSWER_MS) * NS_PER_MS;
}

static int bad_id(struct err *e)
{
	return err_set(e, EINVAL, "not the id of a sandbox or command");
}

static bool ids_valid(const char *sandbox, const char *id)
{
	return id_valid(sandbox, NULL) && id_valid(id, NULL);
}

static int wait_done(struct agent_conn *c, uint64_t deadline_ns, struct err *e)
{
	struct message m;
	int r = agent_conn_wait(c, deadline_ns, &m, e);

	if (r < 0)
		return r;
	if (m.type == AGENT_FAIL)
		return agent_fail_err(&m, e);
	return m.type == AGENT_DONE && !m.len ? 0 : agent_conn_err(-EPROTO, e);
}

/* Sends what `put` made and waits for DONE or FAIL. */
static int ask(const char *sandbox, const struct buf *request, uint64_t deadline_ns, struct err *e)
{
	struct agent_conn c;
	int r;

	agent_conn_init(&c);
	r = request->failed ? agent_conn_err(request->failed, e)
			    : agent_conn_open(&c, sandbox, deadline_ns, e);
	if (!r) {
		buf_add(&c.out, request->data, request->len);
		r = wait_done(&c, deadline_ns, e);
	}
	agent_conn_release(&c);
	return r;
}

static int ask_signal(uint8_t type, const char *sandbox, const char *id, uint32_t signal,
		      uint32_t grace_ms, struct err *e)
{
	const struct agent_signal s = { .id = id, .signal = signal, .grace_ms = grace_ms };
	struct buf request = BUF_INIT(FRAME_MAX);
	int r;

	if (!ids_valid(sandbox, id))
		return bad_id(e);
	agent_put_signal(&request, type, &s);
	r = ask(sandbox, &request, answer_by(grace_ms), e);
	buf_release(&request);
	return r;
}

int command_signal(const char *sandbox, const char *id, uint32_t signal, struct err *e)
{
	return ask_signal(AGENT_SIGNAL, sandbox, id, signal, 0, e);
}

int command_terminate(const char *sandbox, const char *id, uint32_t signal, uint32_t grace_ms,
		      struct err *e)
{
	return ask_signal(AGENT_TERMINATE, sandbox, id, signal, grace_ms, e);
}

int command_resize(const char *sandbox, const char *id, uint16_t cols, uint16_t rows, struct err *e)
{
	const struct agent_resize size = { .id = id, .cols = cols, .rows = rows };
	struct buf request = BUF_INIT(FRAME_MAX);
	int r;

	if (!ids_valid(sandbox, id))
		return bad_id(e);
	agent_put_resize(&request, &size);
	r = ask(sandbox, &request, answer_by(0), e);
	buf_release(&request);
	return r;
}

int command_forget(const char *sandbox, const char *id, struct err *e)
{
	struct buf request = BUF_INIT(FRAME_MAX);
	int r;

	if (!ids_valid(sandbox, id))
		return bad_id(e);
	agent_put_id(&request, AGENT_FORGET, id);
	r = ask(sandbox, &request, answer_by(0), e);
	buf_release(&request);
	return r;
}

int agent_stop(const char *sandbox, uint32_t grace_ms, struct err *e)
{
	struct buf request = BUF_INIT(FRAME_MAX);
	int r;

	if (!id_valid(sandbox, NULL))
		return bad_id(e);
	agent_put_stop(&request, grace_ms);
	r = ask(sandbox, &request, answer_by(0), e);
	buf_release(&request);
	return r;
}

static int read_list(struct agent_conn *c, uint64_t deadline_ns,
		     void (*each)(void *arg, const struct agent_command *c), void *arg,
		     struct err *e)
{
	for (unsigned n = 0; n <= LIST_MAX; n++) {
		struct agent_command line;
		struct message m;
		int r = agent_conn_wait(c, deadline_ns, &m, e);

		if (r < 0)
			return r;
		if (m.type == AGENT_FAIL)
			return agent_fail_err(&m, e);
		if (m.type == AGENT_DONE && !m.len)
			return 0;
		/* messages that are there already are handed out without a look at the clock */
		if (agent_get_command(&m, &line) < 0 || m.type != AGENT_COMMAND)
			break;
		if (clock_mono_ns() > deadline_ns)
			return agent_conn_err(-ETIMEDOUT, e);
		each(arg, &line);
	}
	return agent_conn_err(-EPROTO, e);
}

int command_list(const char *sandbox, void (*each)(void *arg, const struct agent_command *c),
		 void *arg, struct err *e)
{
	uint64_t deadline_ns = answer_by(0);
	struct agent_conn c;
	int r;

	if (!id_valid(sandbox, NULL))
		return bad_id(e);
	agent_conn_init(&c);
	r = agent_conn_open(&c, sandbox, deadline_ns, e);
	if (!r) {
		agent_put_empty(&c.out, AGENT_LIST);
		r = read_list(&c, deadline_ns, each, arg, e);
	}
	agent_conn_release(&c);
	return r;
}
