/* What the server says. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

#include "signals.h"
#include "stream_priv.h"
#include "tty.h"

static void on_output(struct stream *s, int stream, const void *data, size_t len)
{
	int r;

	s->at[stream - 1] += len;
	s->lost_ns = 0; /* what follows is another loss */
	r = outlet_add(&s->out, stream, data, len);
	if (r < 0) /* the socket is in use now: the next flush sees the same and ends it */
		s->out.data.failed = r;
	if (outlet_pending(&s->out) > STREAM_OUT_AHEAD) /* the next message may lie ready */
		socket_pause(s->socket, true);
}

static void on_bytes(void *arg, const void *data, size_t len)
{
	struct stream *s = arg;
	const unsigned char *bytes = data;

	if (s->phase != PHASE_RUNNING || s->out.data.failed)
		return;
	if (s->plain)
		on_output(s, STDOUT_FILENO, data, len);
	else if (len && (bytes[0] == STDOUT_FILENO || bytes[0] == STDERR_FILENO))
		on_output(s, bytes[0], bytes + 1, len - 1);
}

static void tell_warnings(struct stream *s, const json_t *o)
{
	const json_t *w;
	size_t i;

	json_array_foreach(json_object_get(o, "warnings"), i, w)
	{
		if (json_is_string(w))
			outlet_note(&s->out, "%s", json_string_value(w));
	}
}

static void on_started(struct stream *s, const json_t *o)
{
	bool again = *s->id != '\0';

	s->phase = PHASE_RUNNING;
	s->attached_ns = clock_mono_ns();
	if (s->told_lost)
		outlet_note(&s->out, "connected again");
	s->told_lost = false;
	if (again) {
		stream_send_size(s);
		stream_input_again(s);
		return;
	}
	snprintf(s->id, sizeof(s->id), "%s", json_text_or(o, "id", ""));
	s->timeout = json_number_value(json_object_get(o, "timeout"));
	tell_warnings(s, o);
	if (s->spec->input && s->spec->tty && isatty(STDIN_FILENO) && tty_raw(s->e) < 0) {
		stream_fail(s, -s->e->code);
		return;
	}
	stream_input_begin(s);
	stream_signal_early(s);
	if (s->size_due)
		stream_send_size(s);
}

static void on_dropped(struct stream *s, const json_t *o)
{
	const char *name = json_text_or(o, "stream", "stdout");
	int64_t bytes = json_int_or(o, "bytes", 0);

	if (bytes <= 0)
		return;
	s->at[str_eq(name, "stderr")] += (uint64_t)bytes;
	outlet_note(&s->out,
		    "%lld bytes of %s are missing here: they came faster than they were read",
		    (long long)bytes, name);
}

static void on_exit_record(struct stream *s, json_t *o)
{
	s->exit = json_incref(o);
	s->phase = PHASE_ENDED;
}

/* Before the start it is why there is none; later a close tells whether it was the end. */
static void on_error(struct stream *s, const json_t *o)
{
	struct err e = ERR_INIT;
	int status = (int)json_int_or(o, "status", 500);

	stream_tell_fault(s);
	api_fault(s->c, status, s->spec->path, o, &e);
	if (*s->id && str_eq(e.reason, "stdin_closed")) {
		s->in.open = false;
		return;
	}
	snprintf(s->fault_reason, sizeof(s->fault_reason), "%s", s->c->reason);
	s->fault = e;
	s->fault_ns = clock_mono_ns();
}

void stream_tell_fault(struct stream *s)
{
	if (s->fault.code)
		outlet_note(&s->out, "%s", s->fault.text);
	s->fault.code = 0;
}

static void on_frame(struct stream *s, json_t *o)
{
	const char *type = json_text_or(o, "type", "");

	if (str_eq(type, "error")) {
		on_error(s, o);
		return;
	}
	if (!stream_input_failed(s) || str_eq(type, "exit"))
		stream_tell_fault(s);
	if (str_eq(type, "started") && s->phase == PHASE_ASKED)
		on_started(s, o);
	else if (str_eq(type, "dropped") && s->phase == PHASE_RUNNING)
		on_dropped(s, o);
	else if (str_eq(type, "exit") && s->phase == PHASE_RUNNING)
		on_exit_record(s, o);
}

static void on_text(void *arg, const char *data, size_t len)
{
	struct stream *s = arg;
	_cleanup_json_ json_t *o = json_loadb(data, len, JSON_ALLOW_NUL, NULL);

	if (s->phase != PHASE_ASKED && s->phase != PHASE_RUNNING)
		return;
	if (json_is_object(o))
		on_frame(s, o);
	else
		stream_fail(s, err_reason(s->e, EPROTO, REASON_ANSWER,
					  "a message of the API is not JSON"));
}

const struct socket_handler stream_frames = { on_text, on_bytes };
