/* Changes below a path, as they happen: one JSON object a line, until the path is gone or the
 * client has left. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "api/files_view.h"
#include "api/view.h"

enum {
	LINES_ENOUGH = 16 * 1024,
	LINES_MAX = LINES_ENOUGH + 128 * 1024, /* and the longest line: two paths, in base64 too */
};

struct watch {
	struct file_request q;
	struct buf out;
	bool ended;
};

static void watch_free(void *arg)
{
	struct watch *w = arg;

	buf_release(&w->out);
	file_request_release(&w->q);
	free(w);
}

static int add_line(struct watch *w, json_t *o)
{
	_cleanup_free_ char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	if (!text)
		return -ENOMEM;
	buf_adds(&w->out, text);
	return buf_addc(&w->out, '\n');
}

static json_t *line(const char *type)
{
	return json_pack("{ss}", "type", type);
}

static json_t *view_event(const struct agent_event *v)
{
	static const char *const types[] = {
		[CHANGE_CREATED] = "CREATED",       [CHANGE_MODIFIED] = "MODIFIED",
		[CHANGE_ATTRIBUTES] = "ATTRIBUTES", [CHANGE_DELETED] = "DELETED",
		[CHANGE_MOVED] = "MOVED",           [CHANGE_OVERFLOW] = "OVERFLOW",
	};
	json_t *o = line(types[v->change]);

	if (v->change == CHANGE_OVERFLOW)
		return o;
	put_bytes(&o, "path", v->path, strlen(v->path));
	if (v->change == CHANGE_MOVED)
		put_bytes(&o, "from", v->from, strlen(v->from));
	put(&o, "dir", json_boolean(v->dir));
	return o;
}

static int next_line(struct watch *w)
{
	struct err ignored = ERR_INIT;
	struct agent_event v = { 0 };
	int r = files_event(&w->q.call, &v, &ignored);

	if (r < 0)
		return r;
	w->ended = !r;
	return add_line(w, r ? view_event(&v) : line("END"));
}

static ssize_t watch_read(void *arg, char *data, size_t len)
{
	struct watch *w = arg;

	/* waits for one, and takes along what else has come */
	while (!w->ended && (!w->out.len || (w->out.len < LINES_ENOUGH &&
					     frame_reader_ready(&w->q.call.conn.in)))) {
		int r = next_line(w);

		if (r < 0 && !w->out.len)
			return r;
		if (r < 0)
			break; /* it comes again, behind what is there */
	}
	if (len > w->out.len)
		len = w->out.len;
	memcpy(data, w->out.data, len);
	buf_consume(&w->out, len);
	return (ssize_t)len;
}

int handle_file_watch(struct request *r, struct err *e)
{
	struct agent_file f = { .op = FILE_WATCH, .path = r->rest };
	struct stream *s = calloc(1, sizeof(*s));
	struct watch *w = calloc(1, sizeof(*w));
	int code;

	if (!s || !w) {
		free(s);
		free(w);
		return err_set(e, ENOMEM, "out of memory");
	}
	*s = (struct stream){ .read = watch_read, .free = watch_free, .arg = w };
	r->stream = s; /* released with the request from here on */
	r->stream_type = "application/jsonl";
	buf_init(&w->out, LINES_MAX);
	file_request_init(&w->q);
	code = file_request_open(r, &w->q, NULL, &f, e);
	if (!code)
		code = files_ready(&w->q.call, e);
	if (code < 0)
		return code;
	w->q.call.silence_ms = 0; /* nothing may happen for a long time */
	return add_line(w, line("READY")) < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
}
