/* The body of a request becomes standard input of a command, as fast as the command takes it. */
#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"

#include "api/resources.h"
#include "sandbox/command_input.h"

enum { AHEAD_MAX = 256 * 1024 }; /* bytes held for a command that does not read */

const struct field stdin_fields[] = {
	FIELD_BOOL(struct stdin_query, eof, .absent = false,
		   .about = "the command's standard input ends with the body"),
	{ 0 },
};

struct stdin_state {
	struct sandbox_row sandbox;
	struct command_input input;
};

static void stdin_free(struct stdin_state *s)
{
	command_input_release(&s->input);
	sandbox_row_release(&s->sandbox);
	free(s);
}

static int stdin_begin(struct request *r, struct err *e)
{
	struct stdin_state *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return err_set(e, ENOMEM, "out of memory");
	command_input_init(&s->input);
	code = request_sandbox(r, &s->sandbox, e);
	if (!code)
		code = exec_input(&s->sandbox, r->params[2], &s->input, e);
	if (code < 0)
		stdin_free(s);
	else
		r->upload = s;
	return code;
}

static int stdin_write(struct request *r, const char *data, size_t len, struct err *e)
{
	struct stdin_state *s = r->upload;
	int code = command_input_add(&s->input, data, len, e);

	if (!code)
		code = command_input_wait(&s->input, AHEAD_MAX, r->client_fd, UINT64_MAX, e);
	return code < 0 ? exec_input_err(&s->sandbox, r->params[2], e) : 0;
}

static int stdin_end(struct request *r, bool cut, struct err *e)
{
	const struct stdin_query *q = r->in_query;
	struct stdin_state *s = r->upload;
	int code = 0;

	/* what came of a body that was cut is handed over, and its end is not told */
	if (command_input_is_open(&s->input) && !e->code) {
		command_input_end(&s->input, q->eof && !cut);
		code = cut ? command_input_turn(&s->input, 0, e)
			   : command_input_wait(&s->input, 0, r->client_fd, UINT64_MAX, e);
		if (code < 0)
			code = exec_input_err(&s->sandbox, r->params[2], e);
	}
	stdin_free(s);
	r->upload = NULL;
	return code < 0 ? code : e->code ? -e->code : 0;
}

const struct upload stdin_upload = {
	.type = "application/octet-stream",
	.begin = stdin_begin,
	.write = stdin_write,
	.end = stdin_end,
};
