#include "daemon/sandbox/command.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include "daemon/sandbox/command_live.h"

enum {
	ACK_AT = 128 * 1024,     /* unacknowledged bytes that make an ACK due at once */
	ACK_PAUSE_MS = 20,       /* output that paused this long is acknowledged */
	STDIN_PIECE = FRAME_MAX, /* at a time; the first goes with RUN, in one write */
	ACKS_PENDING = 128 * 1024,
	RETRY_FIRST_MS = 10,
	RETRY_MAX_MS = 1000,
	STEADY_MS = 5000, /* a connection that held this long makes the delay start anew */
};

static uint64_t after_ms(uint64_t now_ns, uint64_t ms)
{
	return now_ns + ms * NS_PER_MS;
}

static uint64_t have(const struct command *c, int stream)
{
	return c->out[stream].view.total;
}

static void end_command(struct command *c)
{
	for (int i = 0; i < 2; i++)
		output_settle(&c->out[i]);
	agent_conn_release(&c->conn);
	free_p(&c->stdin_data);
	c->state = LIVE_ENDED;
}

/* Nobody will know how it ended. */
static void lose(struct command *c)
{
	c->result = (struct command_result){ .exit = { .reason = REASON_LOST } };
	for (int i = 0; i < 2; i++)
		c->result.exit.total[i] = have(c, i);
	end_command(c);
}

/* The connection is gone; what the agent had not read of stdin is gone with it. */
static void break_off(struct command *c, uint64_t now_ns)
{
	agent_conn_release(&c->conn);
	free_p(&c->stdin_data);
	if (c->retry_ms == 0 || now_ns >= after_ms(c->connected_ns, STEADY_MS))
		c->retry_ms = RETRY_FIRST_MS;
	else
		c->retry_ms = c->retry_ms * 2 < RETRY_MAX_MS ? c->retry_ms * 2 : RETRY_MAX_MS;
	c->retry_ns = after_ms(now_ns, c->retry_ms);
	c->ack_ns = UINT64_MAX;
	c->state = LIVE_BROKEN;
}

static void put_attach(struct command *c, uint64_t now_ns)
{
	const struct agent_attach a = { .id = c->id, .offset = { have(c, 0), have(c, 1) } };

	agent_put_attach(&c->conn.out, &a);
	c->acked[0] = have(c, 0);
	c->acked[1] = have(c, 1);
	c->stdin_sent = c->stdin_acked = 0;
	c->connected_ns = now_ns;
	c->answer_ns = after_ms(now_ns, AGENT_ANSWER_MS);
	c->state = LIVE_ASKED;
}

/* One try, which does not wait. */
static void attach_again(struct command *c, uint64_t now_ns)
{
	int r = agent_conn_open(&c->conn, c->sandbox, 0, NULL);

	if (r == -ENOENT || r == -ECONNREFUSED)
		lose(c); /* nobody listens: the machine is gone and the command with it */
	else if (r < 0)
		break_off(c, now_ns);
	else
		put_attach(c, now_ns);
}

/* The end of what may be acknowledged: all that is in the files, or what a viewer who holds has
 * passed on. */
static uint64_t ackable(const struct command *c, int stream)
{
	uint64_t limit = c->hold.limit[stream];

	if (!c->hold.held || limit >= have(c, stream))
		return have(c, stream);
	return limit > c->acked[stream] ? limit : c->acked[stream];
}

static void put_ack(struct command *c)
{
	const struct agent_ack a = { .offset = { ackable(c, 0), ackable(c, 1) } };

	agent_put_ack(&c->conn.out, &a);
	c->acked[0] = a.offset[0];
	c->acked[1] = a.offset[1];
	c->ack_ns = UINT64_MAX;
}

static uint64_t unacked(const struct command *c)
{
	return ackable(c, 0) - c->acked[0] + (ackable(c, 1) - c->acked[1]);
}

/* Those who read what is in the files. */
static void tell_viewers(struct command *c, uint64_t now_ns)
{
	const uint64_t total[2] = { have(c, 0), have(c, 1) };

	live_output(c->id, total, now_ns, &c->hold);
}

/* Acknowledges what is in the files, once there is enough of it or no more comes. An agent that
 * does not read its ACKs gets no further ones. */
static void acknowledge(struct command *c, uint64_t now_ns)
{
	uint64_t n = unacked(c);

	if (n == 0)
		return;
	if (c->conn.out.len > ACKS_PENDING)
		c->ack_ns = after_ms(now_ns, ACK_PAUSE_MS);
	else if (n >= ACK_AT || now_ns >= c->ack_ns)
		put_ack(c);
	else if (c->ack_ns == UINT64_MAX)
		c->ack_ns = after_ms(now_ns, ACK_PAUSE_MS);
}

static void take_started(struct command *c, const struct message *m)
{
	struct agent_started s;

	if (c->state != LIVE_ASKED || agent_get_started(m, &s) < 0)
		lose(c);
	else
		c->state = LIVE_RUNNING;
}

/* What lies behind `before`, which the sink has. */
static void hand_on(struct command *c, const struct agent_output *o, uint64_t before)
{
	size_t skip = o->offset < before ? (size_t)(before - o->offset) : 0;

	c->sink(c->sink_arg, o->stream, o->offset + skip, (const char *)o->data + skip,
		o->len - skip);
}

static void take_output(struct command *c, const struct message *m)
{
	struct agent_output o;
	uint64_t before;

	if (c->state != LIVE_RUNNING || agent_get_output(m, &o) < 0) {
		lose(c);
		return;
	}
	before = have(c, o.stream - 1);
	if (output_append(&c->out[o.stream - 1], o.offset, o.data, o.len) < 0)
		lose(c);
	else if (c->sink && o.offset + o.len > before)
		hand_on(c, &o, before);
}

static void take_stdin_ack(struct command *c, const struct message *m)
{
	if (c->state != LIVE_RUNNING ||
	    agent_get_stdin_ack(m, c->stdin_acked, c->stdin_sent, &c->stdin_acked) < 0)
		lose(c);
}

static void take_exit(struct command *c, const struct message *m)
{
	struct command_result result = { .exit_known = true };

	if (c->state != LIVE_RUNNING || agent_get_exit(m, &result.exit) < 0 ||
	    result.exit.duration_us > INT64_MAX ||
	    output_finish(&c->out[0], result.exit.total[0]) < 0 ||
	    output_finish(&c->out[1], result.exit.total[1]) < 0) {
		lose(c);
		return;
	}
	c->hold.held = false;
	if (unacked(c)) {
		put_ack(c);
		agent_conn_flush(&c->conn);
	}
	c->result = result;
	end_command(c);
}

/* Refusals of an attach that may be another answer next time. */
static bool passing(int r)
{
	static const int codes[] = { EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (r == -codes[i])
			return true;
	return false;
}

static void take_fail(struct command *c, const struct message *m, uint64_t now_ns)
{
	if (c->state == LIVE_ASKED && passing(agent_fail_err(m, NULL)))
		break_off(c, now_ns);
	else
		lose(c);
}

static void take_message(struct command *c, const struct message *m, uint64_t now_ns)
{
	switch (m->type) {
	case AGENT_STARTED:
		take_started(c, m);
		break;
	case AGENT_OUTPUT:
		take_output(c, m);
		break;
	case AGENT_STDIN_ACK:
		take_stdin_ack(c, m);
		break;
	case AGENT_EXIT:
		take_exit(c, m);
		break;
	case AGENT_FAIL:
		take_fail(c, m, now_ns);
		break;
	default:
		lose(c);
	}
}

static bool connected(const struct command *c)
{
	return c->state == LIVE_ASKED || c->state == LIVE_RUNNING;
}

/* All messages that were read; what they brought is in the files afterwards. */
static void take_messages(struct command *c, uint64_t now_ns)
{
	while (connected(c)) {
		struct message m;
		int r = agent_conn_next(&c->conn, &m);

		if (r == 0)
			break;
		if (r == -ENOMEM)
			break_off(c, now_ns);
		else if (r < 0)
			lose(c);
		else
			take_message(c, &m, now_ns);
	}
	if (c->state == LIVE_RUNNING)
		for (int i = 0; i < 2; i++)
			output_flush(&c->out[i]);
}

/* Bytes of stdin that the agent's window allows now. */
static size_t stdin_room(const struct command *c)
{
	return (size_t)(AGENT_STDIN_WINDOW - (c->stdin_sent - c->stdin_acked));
}

/* Puts the next piece of stdin behind what is pending, and the end of it once all is there. The
 * bytes of the piece. */
static size_t put_stdin(struct command *c, const char *data, size_t len)
{
	size_t most = stdin_room(c) < STDIN_PIECE ? stdin_room(c) : STDIN_PIECE;
	size_t piece = len < most ? len : most;

	if (piece)
		frame_put(&c->conn.out, AGENT_STDIN, data, piece);
	c->stdin_sent += piece;
	if (piece == len)
		agent_put_empty(&c->conn.out, AGENT_STDIN_EOF);
	return piece;
}

static bool stdin_ready(const struct command *c)
{
	return c->stdin_data && stdin_room(c);
}

/* What is pending goes first, so a piece is put together only when the socket takes it. */
static int send_pending(struct command *c)
{
	int r = agent_conn_flush(&c->conn);

	while (!r && stdin_ready(c) && !agent_conn_pending(&c->conn)) {
		c->stdin_at +=
			put_stdin(c, c->stdin_data + c->stdin_at, c->stdin_len - c->stdin_at);
		if (c->stdin_at == c->stdin_len)
			free_p(&c->stdin_data);
		r = agent_conn_flush(&c->conn);
	}
	return r;
}

void command_turn(struct command *c, short revents, uint64_t now_ns)
{
	int r;

	if (c->state == LIVE_BROKEN && now_ns >= c->retry_ns)
		attach_again(c, now_ns);
	take_messages(c, now_ns);
	if (connected(c) && (revents & (POLLIN | POLLHUP | POLLERR))) {
		r = agent_conn_fill(&c->conn);
		if (r < 0)
			break_off(c, now_ns);
		else
			take_messages(c, now_ns);
	}
	if (c->state == LIVE_ASKED && now_ns >= c->answer_ns)
		break_off(c, now_ns);
	tell_viewers(c, now_ns);
	if (!connected(c))
		return;
	acknowledge(c, now_ns);
	if (send_pending(c) < 0)
		break_off(c, now_ns);
}

int command_fd(const struct command *c)
{
	return connected(c) ? c->conn.fd : -1;
}

bool command_ended(const struct command *c, struct command_result *ret)
{
	if (c->state != LIVE_ENDED)
		return false;
	*ret = c->result;
	return true;
}

void command_set_sink(struct command *c, command_sink *sink, void *arg)
{
	c->sink = sink;
	c->sink_arg = arg;
}

short command_events(const struct command *c)
{
	if (!connected(c))
		return 0;
	return agent_conn_pending(&c->conn) || stdin_ready(c) ? POLLIN | POLLOUT : POLLIN;
}

uint64_t command_wake_ns(const struct command *c)
{
	switch (c->state) {
	case LIVE_BROKEN:
		return c->retry_ns;
	case LIVE_ASKED:
		return c->answer_ns;
	default:
		return c->hold.held && c->hold.until_ns < c->ack_ns ? c->hold.until_ns : c->ack_ns;
	}
}

static int command_new(const char *sandbox, const char *id, struct command **ret, struct err *e)
{
	struct command *c;

	if (!id_valid(sandbox, NULL) || !id_valid(id, NULL))
		return err_set(e, EINVAL, "not the id of a sandbox or command");
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ENOMEM, "out of memory");
	str_copy(c->sandbox, sizeof(c->sandbox), sandbox);
	str_copy(c->id, sizeof(c->id), id);
	agent_conn_init(&c->conn);
	for (int i = 0; i < 2; i++)
		output_init(&c->out[i], c->sandbox, c->id, i + 1);
	c->ack_ns = UINT64_MAX;
	c->watched_fd = -1;
	*ret = c;
	return 0;
}

void command_free(struct command *c)
{
	if (!c)
		return;
	agent_conn_release(&c->conn);
	for (int i = 0; i < 2; i++)
		output_release(&c->out[i]);
	free(c->stdin_data);
	free(c);
}

/* RUN and as much of stdin as goes with the first write; a copy of the rest. */
static int put_run(struct command *c, const struct command_spec *spec, struct err *e)
{
	struct agent_run run = spec->run;
	size_t at = 0;

	if (spec->stdin_len || spec->stdin_open)
		run.flags |= RUN_STDIN;
	if (!run.keep)
		run.keep = COMMAND_KEEP;
	agent_put_run(&c->conn.out, &run);
	if ((run.flags & RUN_STDIN) && !spec->stdin_open)
		at = put_stdin(c, spec->stdin_data, spec->stdin_len);
	if (c->conn.out.failed)
		return agent_conn_err(c->conn.out.failed, e);
	if (at == spec->stdin_len)
		return 0;
	c->stdin_len = spec->stdin_len - at;
	c->stdin_data = malloc(c->stdin_len);
	if (!c->stdin_data)
		return err_set(e, ENOMEM, "out of memory");
	memcpy(c->stdin_data, (const char *)spec->stdin_data + at, c->stdin_len);
	return 0;
}

/* STARTED must be the agent's first word, or FAIL. */
static int wait_started(struct command *c, uint64_t deadline_ns, struct agent_started *ret,
			struct err *e)
{
	struct message m;
	int r = agent_conn_wait(&c->conn, deadline_ns, &m, e);

	if (r < 0)
		return r;
	if (m.type == AGENT_FAIL)
		return agent_fail_err(&m, e);
	if (m.type != AGENT_STARTED || agent_get_started(&m, ret) < 0)
		return agent_conn_err(-EPROTO, e);
	c->state = LIVE_RUNNING;
	return 0;
}

int command_start(const struct command_spec *spec, struct command **ret,
		  struct agent_started *ret_started, struct err *e)
{
	uint64_t now = clock_mono_ns(), deadline = after_ms(now, AGENT_ANSWER_MS);
	struct command *c;
	int r = command_new(spec->sandbox, spec->run.id, &c, e);

	if (r < 0)
		return r;
	c->connected_ns = now;
	r = agent_conn_open(&c->conn, c->sandbox, deadline, e);
	if (!r)
		r = put_run(c, spec, e);
	if (!r)
		r = wait_started(c, deadline, ret_started, e);
	if (r < 0) {
		command_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

int command_attach(const char *sandbox, const char *id, struct command **ret, struct err *e)
{
	uint64_t now = clock_mono_ns(), deadline = after_ms(now, AGENT_ANSWER_MS);
	struct agent_started started;
	struct command *c;
	int r = command_new(sandbox, id, &c, e);

	if (r < 0)
		return r;
	for (int i = 0; i < 2 && !r; i++)
		r = output_resume(&c->out[i], e);
	if (!r)
		r = agent_conn_open(&c->conn, c->sandbox, deadline, e);
	if (!r) {
		put_attach(c, now);
		r = wait_started(c, deadline, &started, e);
	}
	if (r < 0) {
		command_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

enum command_step command_pump(struct command *c, uint64_t deadline_ns, int client_fd,
			       struct command_result *ret)
{
	short revents = 0;

	for (;;) {
		uint64_t now = clock_mono_ns(), wake;
		struct pollfd p[2] = { { .fd = -1 }, { .fd = client_fd } };

		command_turn(c, revents, now);
		if (command_ended(c, ret))
			return COMMAND_ENDED;
		wake = command_wake_ns(c);
		if (connected(c))
			p[0] = (struct pollfd){ .fd = c->conn.fd, .events = command_events(c) };
		if (poll(p, 2, clock_left_ms(wake < deadline_ns ? wake : deadline_ns)) <= 0)
			p[0].revents = p[1].revents = 0;
		revents = p[0].revents;
		if (p[1].revents & (POLLHUP | POLLERR | POLLNVAL))
			return COMMAND_CLIENT_GONE;
		if (!revents && clock_mono_ns() >= deadline_ns)
			return COMMAND_RUNNING;
	}
}

int command_init(const struct backend *backend, const char *dir, struct err *e)
{
	int r = output_init_dir(dir, e);

	if (r < 0)
		return r;
	agent_conn_set_backend(backend);
	r = command_watch_start(e);
	if (r < 0)
		output_release_dir();
	return r;
}

void command_shutdown(void)
{
	command_watch_stop();
	output_release_dir();
}
