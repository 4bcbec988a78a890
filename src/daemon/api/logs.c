/*
 * Kept output as it is read back: lines as JSON objects, or the bytes of one stream. With `follow`
 * the answer goes on until the command ends or the client leaves.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/banned.h"

#include "api/resources.h"
#include "api/view.h"

enum {
	LINE_MAX_BYTES = 64 * 1024,
	OUT_ENOUGH = 256 * 1024,
	OUT_MAX = 2 * 1024 * 1024, /* and the longest line as JSON, escaped and in base64 */
	FOLLOW_MS = 50,
	FOLLOW_LIVE_MS = 1000,
};

static const char *const stream_names[] = { "stdout", "stderr", NULL };

const struct field logs_fields[] = {
	FIELD_BOOL(struct logs_query, follow, .about = "until the command ends"),
	FIELD_BOOL(struct logs_query, events, .about = "DROPPED and EXIT objects too"),
	FIELD_ENUM(struct logs_query, stream, stream_names, .about = "only this one"),
	FIELD_STR(struct logs_query, offset, .max = 20, .about = "from this byte of `stream`"),
	{ 0 },
};

struct logs {
	struct sandbox_row sandbox;
	char id[ID_SIZE];
	int client_fd;
	bool follow, events, raw, finished;
	bool wanted[2];
	uint64_t at[2];
	struct live_viewer viewer;
	struct output_reader file[2];
	struct buf out;
	char line[LINE_MAX_BYTES];
};

static void logs_free(void *arg)
{
	struct logs *l = arg;

	live_view_end(&l->viewer);
	for (int s = 0; s < 2; s++)
		output_reader_release(&l->file[s]);
	sandbox_row_release(&l->sandbox);
	buf_release(&l->out);
	free(l);
}

static int add_object(struct logs *l, json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	if (!text)
		return -ENOMEM;
	buf_adds(&l->out, text);
	buf_addc(&l->out, '\n');
	free(text);
	return l->out.failed;
}

static int add_line(struct logs *l, int s, const char *data, size_t len, bool partial)
{
	json_t *o = json_object();

	put(&o, "type", json_string(s ? "STDERR" : "STDOUT"));
	put(&o, "data", json_any_string(data, len));
	put(&o, "offset", json_integer((json_int_t)l->at[s]));
	if (partial)
		put(&o, "partial", json_true());
	if (!utf8_valid(data, len))
		put(&o, "data_base64", json_base64(data, len));
	return add_object(l, o);
}

static int add_dropped(struct logs *l, int s, uint64_t bytes)
{
	if (!l->events)
		return 0;
	return add_object(l, json_pack("{ss ss sI}", "type", "DROPPED", "stream", stream_names[s],
				       "bytes", (json_int_t)bytes));
}

/* Where a cut line may end without cutting a character. */
static size_t whole_characters(const char *s, size_t len)
{
	for (size_t back = 0; back < 4 && back < len; back++) {
		if (utf8_valid(s, len - back))
			return len - back;
	}
	return len;
}

/* One line, or a piece of one, from the start of `data`. The bytes taken, 0: no whole line yet. */
static ssize_t take_line(struct logs *l, int s, const struct output_view *v, const char *data,
			 size_t n, bool ended)
{
	const char *end = memchr(data, '\n', n);
	bool at_gap = l->at[s] + n == v->head && v->tail_at > v->head;
	size_t len = end ? (size_t)(end - data) : n;
	int r;

	if (!end && n < sizeof(l->line) && !at_gap && !(ended && l->at[s] + n >= v->total))
		return 0;
	if (!end && n == sizeof(l->line))
		len = whole_characters(data, n);
	r = add_line(l, s, data, len, !end);
	return r < 0 ? r : (ssize_t)(len + (end != NULL));
}

/* All of a block that can go out. 1: something was added, 0: nothing there yet. */
static int take_block(struct logs *l, int s, const struct output_view *v, size_t n, bool ended)
{
	size_t used = 0;

	if (l->raw) {
		l->at[s] += n;
		return buf_add(&l->out, l->line, n) < 0 ? -ENOMEM : 1;
	}
	while (used < n && l->out.len < OUT_ENOUGH) {
		ssize_t took = take_line(l, s, v, l->line + used, n - used, ended);

		if (took < 0)
			return (int)took;
		if (!took)
			break;
		l->at[s] += (uint64_t)took;
		used += (size_t)took;
	}
	return used > 0;
}

static int fill_stream(struct logs *l, int s, bool ended)
{
	struct output_view v = { 0 };
	struct err e = ERR_INIT;
	ssize_t n;
	int r = output_reader_stat(&l->file[s], &v, &e);

	if (r < 0)
		return r;
	if (l->at[s] >= v.head && l->at[s] < v.tail_at) {
		r = add_dropped(l, s, v.tail_at - l->at[s]);
		l->at[s] = v.tail_at;
		if (r < 0)
			return r;
	}
	if (l->at[s] >= v.total)
		return 0;
	n = output_reader_read(&l->file[s], l->at[s], l->line, sizeof(l->line), &e);
	if (n < 0)
		return (int)n;
	return n ? take_block(l, s, &v, (size_t)n, ended) : 0;
}

/* 1: more is in `out`, 0: nothing now. */
static int fill(struct logs *l)
{
	_cleanup_command_row_ struct command_row row = { 0 };
	struct err e = ERR_INIT;
	int some = 0, r = exec_get(l->sandbox.id, l->id, &row, &e);
	bool ended;

	if (r < 0)
		return r;
	ended = !str_eq(row.status, "INPROGRESS") || !l->follow;
	for (int s = 0; s < 2; s++) {
		if (!l->wanted[s])
			continue;
		r = fill_stream(l, s, ended);
		if (r < 0)
			return r;
		some |= r;
	}
	if (some || !ended)
		return some;
	l->finished = true;
	if (l->events && !l->raw && !str_eq(row.status, "INPROGRESS")) {
		json_t *o = view_command(&l->sandbox, &row);

		put(&o, "type", json_string("EXIT"));
		return add_object(l, o);
	}
	return 0;
}

/* Waits until there may be more: who pumps the command tells, and where nobody does, the clock. */
static bool client_left(struct logs *l, bool live)
{
	struct pollfd p[] = { { .fd = l->client_fd },
			      { .fd = live ? l->viewer.event : -1, .events = POLLIN } };

	return poll(p, ARRAY_SIZE(p), live ? FOLLOW_LIVE_MS : FOLLOW_MS) > 0 &&
	       (p[0].revents & (POLLHUP | POLLERR | POLLNVAL));
}

static ssize_t logs_read(void *arg, char *data, size_t len)
{
	struct logs *l = arg;

	while (!l->out.len) {
		/* asked before the files are read, so that nothing that comes later goes unnoticed */
		bool live = live_more(&l->viewer);
		int r = l->finished ? 0 : fill(l);

		if (r < 0)
			return r;
		if (l->out.len || r)
			continue;
		if (l->finished)
			return 0;
		if (client_left(l, live))
			return -ECONNABORTED;
	}
	if (len > l->out.len)
		len = l->out.len;
	memcpy(data, l->out.data, len);
	buf_consume(&l->out, len);
	return (ssize_t)len;
}

static int set_range(struct logs *l, const struct logs_query *q, struct err *e)
{
	uint64_t offset = 0;

	for (int s = 0; s < 2; s++)
		l->wanted[s] = !q->stream || str_eq(q->stream, stream_names[s]);
	if (l->raw && !q->stream) {
		err_reason(e, EINVAL, "invalid_field", "bytes are those of one 'stream'");
		return err_field(e, "stream");
	}
	if (!q->offset)
		return 0;
	if (!q->stream || str_u64(q->offset, 0, INT64_MAX, &offset) < 0) {
		err_reason(e, EINVAL, "invalid_field",
			   "'offset' is a number of bytes of the 'stream' that is named");
		return err_field(e, "offset");
	}
	l->at[l->wanted[0] ? 0 : 1] = offset;
	return 0;
}

int handle_command_logs(struct request *r, struct err *e)
{
	const struct logs_query *q = r->in_query;
	_cleanup_command_row_ struct command_row row = { 0 };
	struct stream *s = calloc(1, sizeof(*s));
	struct logs *l = calloc(1, sizeof(*l));
	int code;

	if (!s || !l) {
		free(s);
		free(l);
		return err_set(e, ENOMEM, "out of memory");
	}
	*s = (struct stream){ .read = logs_read, .free = logs_free, .arg = l };
	r->stream = s; /* released with the request from here on */
	buf_init(&l->out, OUT_MAX);
	l->viewer.event = l->file[0].fd = l->file[1].fd = -1;
	l->follow = q->follow;
	l->events = q->events;
	l->client_fd = r->client_fd;
	l->raw = r->accept && str_starts(r->accept, "application/octet-stream");
	r->stream_type = l->raw ? "application/octet-stream" : "application/jsonl";
	code = set_range(l, q, e);
	if (!code)
		code = request_sandbox(r, &l->sandbox, e);
	if (!code)
		code = exec_get(l->sandbox.id, r->params[2], &row, e);
	if (code < 0)
		return code;
	str_copy(l->id, sizeof(l->id), row.id);
	for (int i = 0; i < 2; i++)
		output_reader_init(&l->file[i], l->sandbox.id, row.id, i + 1);
	return q->follow ? live_view(&l->viewer, row.id, l->at, false, e) : 0;
}
