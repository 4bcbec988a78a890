#include <errno.h>
#include <poll.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "init/conn_priv.h"
#include "init/shutdown.h"

static void answered(struct conn *c)
{
	c->closing = true;
}

static void put_fail(struct conn *c, const struct agent_fail *f)
{
	agent_put_fail(&c->out, f);
	answered(c);
}

static void put_err(struct conn *c, const struct err *e)
{
	put_fail(c, &(struct agent_fail){
			    .code = (uint32_t)e->code,
			    .reason = e->reason ? e->reason : "agent_error",
			    .field = e->field,
			    .text = e->text,
		    });
}

static void put_done(struct conn *c)
{
	agent_put_empty(&c->out, AGENT_DONE);
	answered(c);
}

static int put_result(struct conn *c, int r, const struct err *e)
{
	if (r < 0)
		put_err(c, e);
	else
		put_done(c);
	return 0;
}

/* Handlers: 0, or a negative errno for a frame no honest peer sends. */

static int on_hello(struct conn *c, const struct message *m)
{
	struct agent_hello h;

	if (agent_get_hello(m, &h) < 0)
		return -EPROTO;
	c->phase = PHASE_IDLE;
	if (agent_hello_check(&h) < 0)
		put_fail(c, &(struct agent_fail){ EPROTONOSUPPORT, "agent_version", "",
						  "the agent does not speak this version" });
	return 0;
}

static bool client_left(const struct conn *c)
{
	struct pollfd p = { .fd = c->s.fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static int may_stay(struct err *e)
{
	return conn_room_to_stay() ? 0
				   : err_reason(e, EAGAIN, "too_many_commands",
						"too many commands run, or are written to");
}

static int on_run(struct conn *c, const struct message *m)
{
	struct agent_run run;
	struct err e = ERR_INIT;

	/* it has given up meanwhile: to run it now would be to run it behind its back */
	if (client_left(c))
		return -EPIPE;
	if (agent_get_run(m, &run) < 0)
		return -EPROTO;
	if (may_stay(&e) < 0 || command_run(&c->client, &run, &e) < 0)
		put_err(c, &e);
	c->phase = PHASE_COMMAND;
	agent_run_release(&run);
	return 0;
}

static int on_attach(struct conn *c, const struct message *m)
{
	struct agent_attach a;
	struct err e = ERR_INIT;

	if (agent_get_attach(m, &a) < 0)
		return -EPROTO;
	if (may_stay(&e) < 0 || command_attach(&c->client, &a, &e) < 0)
		put_err(c, &e);
	c->phase = PHASE_COMMAND;
	return 0;
}

static int on_stdin(struct conn *c, const struct message *m)
{
	struct err e = ERR_INIT;

	if (c->phase == PHASE_INPUT) {
		if (m->len > AGENT_STDIN_WINDOW)
			return -EPROTO;
		if (command_input_add(&c->writer, m->data, m->len, &e) < 0)
			put_err(c, &e);
		return 0;
	}
	return c->client.command ? command_stdin(c->client.command, m->data, m->len) : 0;
}

static int on_stdin_eof(struct conn *c, const struct message *m)
{
	if (m->len)
		return -EPROTO;
	if (c->phase == PHASE_INPUT)
		command_input_eof(&c->writer);
	else if (c->client.command)
		command_stdin_eof(c->client.command);
	return 0;
}

static int on_ack(struct conn *c, const struct message *m)
{
	struct agent_ack a;

	if (agent_get_ack(m, &a) < 0)
		return -EPROTO;
	return c->client.command ? command_ack(c->client.command, &a) : 0;
}

static int on_signal(struct conn *c, const struct message *m)
{
	struct agent_signal s;
	struct err e = ERR_INIT;

	if (agent_get_signal(m, &s) < 0)
		return -EPROTO;
	return put_result(c, command_signal(&s, &e), &e);
}

static int on_terminate(struct conn *c, const struct message *m)
{
	struct agent_signal s;
	struct err e = ERR_INIT;

	if (agent_get_signal(m, &s) < 0)
		return -EPROTO;
	c->phase = PHASE_WAITING;
	if (command_terminate(&c->waiter, &s, &e) < 0)
		put_err(c, &e);
	return 0;
}

static void put_line(void *arg, const struct agent_command *line)
{
	struct conn *c = arg;

	agent_put_command(&c->out, line);
}

static int on_list(struct conn *c, const struct message *m)
{
	if (m->len)
		return -EPROTO;
	command_list(put_line, c);
	put_done(c);
	return 0;
}

static int on_forget(struct conn *c, const struct message *m)
{
	const char *id;
	struct err e = ERR_INIT;

	if (agent_get_id(m, &id) < 0)
		return -EPROTO;
	return put_result(c, command_forget(id, &e), &e);
}

static int on_resize(struct conn *c, const struct message *m)
{
	struct agent_resize size;
	struct err e = ERR_INIT;

	if (agent_get_resize(m, &size) < 0)
		return -EPROTO;
	return put_result(c, command_resize(&size, &e), &e);
}

static int on_input(struct conn *c, const struct message *m)
{
	const char *id;
	struct err e = ERR_INIT;
	int r;

	if (agent_get_id(m, &id) < 0)
		return -EPROTO;
	r = may_stay(&e);
	if (!r)
		r = command_input(&c->writer, id, &e);
	c->phase = PHASE_INPUT;
	if (r < 0)
		put_err(c, &e);
	return 0;
}

static void files_gone(void *arg)
{
	struct conn *c = arg;

	c->files = NULL;
	conn_advance(c, -EPIPE);
}

static int on_file(struct conn *c, const struct message *m)
{
	struct agent_file f;
	struct err e = ERR_INIT;

	if (file_get_request(m, &f) < 0)
		return -EPROTO;
	c->files = file_call_start(m, c->s.fd, &c->in, files_gone, c, &e);
	if (!c->files) {
		put_err(c, &e);
		return 0;
	}
	c->phase = PHASE_FILES;
	frame_reader_release(&c->in);
	return 0;
}

static int on_stop(struct conn *c, const struct message *m)
{
	uint32_t grace_ms;

	if (agent_get_stop(m, &grace_ms) < 0)
		return -EPROTO;
	put_done(c);
	shutdown_start(grace_ms);
	return 0;
}

static const struct handler {
	uint8_t type;
	unsigned phases; /* those it may come in */
	int (*handle)(struct conn *c, const struct message *m);
} handlers[] = {
	{ AGENT_HELLO, 1u << PHASE_HELLO, on_hello },
	{ AGENT_RUN, 1u << PHASE_IDLE, on_run },
	{ AGENT_ATTACH, 1u << PHASE_IDLE, on_attach },
	{ AGENT_SIGNAL, 1u << PHASE_IDLE, on_signal },
	{ AGENT_TERMINATE, 1u << PHASE_IDLE, on_terminate },
	{ AGENT_LIST, 1u << PHASE_IDLE, on_list },
	{ AGENT_FORGET, 1u << PHASE_IDLE, on_forget },
	{ AGENT_STOP, 1u << PHASE_IDLE, on_stop },
	{ AGENT_RESIZE, 1u << PHASE_IDLE, on_resize },
	{ AGENT_INPUT, 1u << PHASE_IDLE, on_input },
	{ AGENT_FILE, 1u << PHASE_IDLE, on_file },
	{ AGENT_STDIN, 1u << PHASE_COMMAND | 1u << PHASE_INPUT, on_stdin },
	{ AGENT_STDIN_EOF, 1u << PHASE_COMMAND | 1u << PHASE_INPUT, on_stdin_eof },
	{ AGENT_ACK, 1u << PHASE_COMMAND, on_ack },
};

int conn_handle(struct conn *c, const struct message *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(handlers); i++) {
		if (handlers[i].type == m->type && handlers[i].phases & 1u << c->phase)
			return handlers[i].handle(c, m);
	}
	return -EPROTO;
}

int conn_end(struct conn *c)
{
	if (c->phase != PHASE_INPUT)
		return -EPIPE;
	command_input_cancel(&c->writer);
	put_done(c);
	return 0;
}

bool conn_holds(struct conn *c)
{
	return c->phase == PHASE_FILES ||
	       (c->phase == PHASE_INPUT && !command_input_room(&c->writer));
}

static void client_changed(struct command_client *client)
{
	conn_advance(container_of(client, struct conn, client), 0);
}

static void client_detached(struct command_client *client, const struct agent_fail *fail)
{
	struct conn *c = container_of(client, struct conn, client);

	if (fail)
		put_fail(c, fail);
	/* else what it has is no longer ours to add to */
	conn_advance(c, fail ? 0 : -EPIPE);
}

static void writer_room(struct command_writer *w)
{
	conn_advance(container_of(w, struct conn, writer), 0);
}

static void waiter_gone(struct command_waiter *w)
{
	struct conn *c = container_of(w, struct conn, waiter);

	put_done(c);
	conn_advance(c, 0);
}

void conn_ops_init(struct conn *c)
{
	c->client.changed = client_changed;
	c->client.detached = client_detached;
	c->waiter.gone = waiter_gone;
	c->writer.room = writer_room;
}

void conn_ops_release(struct conn *c)
{
	if (c->files)
		file_call_forget(c->files);
	command_detach(&c->client);
	command_wait_cancel(&c->waiter);
	command_input_cancel(&c->writer);
}
