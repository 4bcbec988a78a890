/*
 * command logs: the lines of the API become the bytes they were.
 *
 * A line that was printed in part (it had not ended yet) comes again, longer; what was printed of
 * each stream is known by offset, so nothing is printed twice, and the same holds when the logs are
 * asked for again because the server does not follow.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/str.h"

#include "api.h"
#include "out.h"

enum {
	LINE_MAX_LEN = 2 * 1024 * 1024, /* 64 KiB, escaped and in base64 */
	POLL_SECONDS = 2,
};

struct logs {
	struct buf line;    /* of the jsonl, so far */
	struct buf pending; /* bytes for `pending_fd`, not written yet */
	int pending_fd;
	uint64_t seen[3]; /* by stream: the offset up to which it was printed */
	bool ended;       /* the EXIT event came */
	bool json;        /* the API's lines are handed on */
	struct err *e;
};

static int flush_pending(struct logs *l)
{
	int r = l->pending.len ? out_bytes(l->pending_fd, l->pending.data, l->pending.len, l->e)
			       : 0;

	buf_clear(&l->pending);
	return r;
}

/* The order between the streams is kept: what is pending for the other one goes first. */
static int print(struct logs *l, int fd, const char *data, size_t len)
{
	int r = 0;

	if (fd != l->pending_fd)
		r = flush_pending(l);
	l->pending_fd = fd;
	buf_add(&l->pending, data, len);
	return r;
}

static int print_json(struct logs *l, const json_t *j)
{
	_cleanup_free_ char *text = json_dumps(j, JSON_COMPACT);
	_cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_LEN * 6);

	if (text)
		out_escape_json(&b, text);
	buf_addc(&b, '\n');
	if (!text || b.failed)
		return err_set(l->e, ENOMEM, "out of memory");
	return out_bytes(STDOUT_FILENO, b.data, b.len, l->e);
}

static int print_data(struct logs *l, int fd, const json_t *j)
{
	const json_t *text = json_object_get(j, "data");
	const char *encoded = json_text(j, "data_base64");
	_cleanup_buf_ struct buf bytes = BUF_INIT(LINE_MAX_LEN);
	uint64_t offset = (uint64_t)json_int_or(j, "offset", (int64_t)l->seen[fd]), skip;

	if (encoded && base64_decode(&bytes, encoded, strlen(encoded)) < 0)
		return err_reason(l->e, EPROTO, REASON_ANSWER, "data_base64 cannot be decoded");
	if (!encoded && json_is_string(text))
		buf_add(&bytes, json_string_value(text), json_string_length(text));
	if (!json_is_true(json_object_get(j, "partial")))
		buf_addc(&bytes, '\n');
	if (bytes.failed)
		return err_set(l->e, bytes.failed, "out of memory");
	skip = l->seen[fd] > offset ? l->seen[fd] - offset : 0;
	if (skip >= bytes.len)
		return 0;
	l->seen[fd] = offset + bytes.len;
	if (l->json)
		return print_json(l, j);
	return print(l, fd, bytes.data + skip, bytes.len - skip);
}

static int on_line(struct logs *l, const char *text, size_t len)
{
	_cleanup_json_ json_t *j = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
	const char *type = json_text(j, "type");
	int r;

	if (!type)
		return err_reason(l->e, EPROTO, REASON_ANSWER, "a line of the logs is not JSON");
	if (str_eq(type, "STDOUT"))
		return print_data(l, STDOUT_FILENO, j);
	if (str_eq(type, "STDERR"))
		return print_data(l, STDERR_FILENO, j);
	r = l->json ? print_json(l, j) : flush_pending(l);
	if (str_eq(type, "EXIT"))
		l->ended = true;
	else if (!l->json && str_eq(type, "DROPPED"))
		out_note("%lld bytes of %s were not kept", (long long)json_int_or(j, "bytes", 0),
			 json_text_or(j, "stream", "a stream"));
	return r; /* events of later versions are not ours to judge */
}

static int on_bytes(void *arg, const void *data, size_t len)
{
	struct logs *l = arg;
	const char *p = data, *end = p + len;
	int r = 0;

	while (!r && p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		buf_add(&l->line, p, (size_t)((nl ? nl : end) - p));
		p = nl ? nl + 1 : end;
		if (l->line.failed)
			return err_reason(l->e, EMSGSIZE, REASON_ANSWER,
					  "a line of the logs is too long");
		if (!nl)
			break;
		if (l->line.len)
			r = on_line(l, l->line.data, l->line.len);
		buf_clear(&l->line);
	}
	return r < 0 ? r : flush_pending(l);
}

/* What the server may not offer yet is asked for first, and left out when it says so. */
struct wish {
	bool follow, events;
};

static int fetch(struct cli *c, const struct args *a, struct wish *w, struct logs *l)
{
	for (;;) {
		_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
		_cleanup_answer_ struct answer answer = ANSWER_INIT;
		struct request r = { .method = "GET", .sink = on_bytes, .arg = l };
		int n = api_path(c, &path, l->e, "sandboxes", a->pos[0], "commands", a->pos[1],
				 "logs", NULL);

		if (n < 0)
			return n;
		api_query(&path, "stream", args_get(a, "stream"));
		api_query(&path, "follow", w->follow ? "true" : NULL);
		api_query(&path, "events", w->events ? "true" : NULL);
		r.path = buf_str(&path);
		buf_clear(&l->line);
		n = api_send(c, &r, &answer, l->e);
		if (n >= 0)
			return l->line.len ? on_line(l, l->line.data, l->line.len) : 0;
		if (!str_eq(l->e->reason, "not_available"))
			return n;
		if (w->events && !str_eq(l->e->field, "follow"))
			w->events = false;
		else if (w->follow)
			w->follow = false;
		else
			return n;
	}
}

/* Waits a little for the end of the command; 1 when it has ended. */
static int poll_end(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *record = NULL;
	char text[16];
	int r = api_path(c, &path, e, "sandboxes", a->pos[0], "commands", a->pos[1], NULL);

	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "%d", POLL_SECONDS);
	api_query(&path, "wait", text);
	r = api_call(c, "GET", &path, NULL, CALL_TIMEOUT_MS, &record, e);
	return r < 0 ? r : !str_eq(json_text(record, "status"), "INPROGRESS");
}

static int follow(struct cli *c, const struct args *a, struct wish *w, struct logs *l)
{
	bool last = false;

	for (;;) {
		bool followed;
		int r = fetch(c, a, w, l);

		followed = w->follow;
		if (r < 0 || l->ended || last)
			return flush_pending(l) < 0 ? -l->e->code : r;
		/* a stream that ends without the event that ends it was cut */
		if (followed && w->events) {
			err_reason(l->e, EPIPE, REASON_CONNECTION,
				   "the stream of logs was cut; how the command ends is not known");
			return err_hint(l->e, "skerry command logs %s %s --follow", a->pos[0],
					a->pos[1]);
		}
		if (followed)
			return flush_pending(l);
		r = poll_end(c, a, l->e);
		if (r < 0)
			return r;
		last = r > 0; /* what it wrote at its end is fetched once more */
	}
}

int cmd_command_logs(struct cli *c, const struct args *a, struct err *e)
{
	struct logs l = {
		.line = BUF_INIT(LINE_MAX_LEN),
		.pending = BUF_INIT(LINE_MAX_LEN * 2),
		.pending_fd = STDOUT_FILENO,
		.json = c->json,
		.e = e,
	};
	struct wish w = { .follow = args_has(a, "follow"), .events = true };
	int r;

	r = w.follow ? follow(c, a, &w, &l) : fetch(c, a, &w, &l);
	if (!r)
		r = flush_pending(&l);
	buf_release(&l.line);
	buf_release(&l.pending);
	return r;
}
