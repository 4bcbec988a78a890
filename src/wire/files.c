#include "wire/files.h"

#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "wire/bytes.h"

enum {
	USER_LIMIT = 255,
	OWNER_LIMIT = 2 * USER_LIMIT + 1,
	ALL_FLAGS = FILE_RECURSIVE | FILE_PARENTS | FILE_OVERWRITE | FILE_HAS_MODE,
	MODE_MAX = 07777,
	BODY_LIMIT = 4 * FRAME_MAX,
};

static bool path_plausible(const char *path)
{
	return path[0] == '/';
}

static bool limit_plausible(const struct agent_file *f)
{
	bool counts = f->op == FILE_LIST || f->op == FILE_SEARCH;

	return counts ? f->limit >= 1 && f->limit <= FILE_LIMIT_MAX : !f->limit;
}

static bool request_plausible(const struct agent_file *f)
{
	return f->op >= FILE_LIST && f->op < FILE_OPS_END && !(f->flags & ~(uint32_t)ALL_FLAGS) &&
	       f->mode <= MODE_MAX && path_plausible(f->path) && limit_plausible(f) &&
	       (f->op != FILE_MOVE || path_plausible(f->to));
}

void file_put_request(struct buf *out, const struct agent_file *f)
{
	struct buf body = BUF_INIT(BODY_LIMIT);

	enc_u8(&body, f->op);
	enc_u32(&body, f->flags);
	enc_u32(&body, f->mode);
	enc_u32(&body, f->limit);
	enc_str(&body, f->path);
	enc_str(&body, f->to);
	enc_str(&body, f->user);
	enc_str(&body, f->default_user);
	enc_str(&body, f->owner);
	enc_str(&body, f->name);
	enc_str(&body, f->text);
	frame_put_body(out, AGENT_FILE, &body);
}

int file_get_request(const struct message *m, struct agent_file *ret)
{
	struct agent_file f;
	struct dec d;

	dec_init(&d, m->data, m->len);
	f.op = dec_u8(&d);
	f.flags = dec_u32(&d);
	f.mode = dec_u32(&d);
	f.limit = dec_u32(&d);
	f.path = dec_str(&d, FILE_PATH_MAX);
	f.to = dec_str(&d, FILE_PATH_MAX);
	f.user = dec_str(&d, USER_LIMIT);
	f.default_user = dec_str(&d, USER_LIMIT);
	f.owner = dec_str(&d, OWNER_LIMIT);
	f.name = dec_str(&d, FILE_NAME_MAX);
	f.text = dec_str(&d, FILE_TEXT_MAX);
	if (!dec_done(&d) || !request_plausible(&f))
		return -EPROTO;
	*ret = f;
	return 0;
}

void file_put_go(struct buf *out, const struct agent_go *g)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u64(&body, g->offset);
	enc_u64(&body, g->length);
	frame_put_body(out, AGENT_GO, &body);
}

int file_get_go(const struct message *m, struct agent_go *ret)
{
	struct agent_go g;
	struct dec d;

	dec_init(&d, m->data, m->len);
	g.offset = dec_u64(&d);
	g.length = dec_u64(&d);
	if (!dec_done(&d) || g.offset > INT64_MAX || g.length > INT64_MAX)
		return -EPROTO;
	*ret = g;
	return 0;
}

void file_put_data(struct buf *out, const void *data, size_t len)
{
	if (len > FILE_DATA_MAX)
		out->failed = out->failed ? out->failed : -EMSGSIZE;
	else
		frame_put(out, AGENT_DATA, data, len);
}

void file_put_entry(struct buf *out, const struct agent_entry *n)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u8(&body, n->kind);
	enc_u8(&body, n->leads_to);
	enc_u32(&body, n->mode);
	enc_u32(&body, n->uid);
	enc_u32(&body, n->gid);
	enc_u64(&body, n->size);
	enc_u64(&body, (uint64_t)n->mtime_ns);
	enc_str(&body, n->path);
	enc_str(&body, n->owner);
	enc_str(&body, n->group);
	enc_str(&body, n->target);
	frame_put_body(out, AGENT_ENTRY, &body);
}

static bool kind_plausible(uint8_t kind)
{
	return kind >= ENTRY_FILE && kind <= ENTRY_BLOCK;
}

int file_get_entry(const struct message *m, struct agent_entry *ret)
{
	struct agent_entry n;
	struct dec d;

	dec_init(&d, m->data, m->len);
	n.kind = dec_u8(&d);
	n.leads_to = dec_u8(&d);
	n.mode = dec_u32(&d);
	n.uid = dec_u32(&d);
	n.gid = dec_u32(&d);
	n.size = dec_u64(&d);
	n.mtime_ns = (int64_t)dec_u64(&d);
	n.path = dec_str(&d, FILE_PATH_MAX);
	n.owner = dec_str(&d, USER_LIMIT);
	n.group = dec_str(&d, USER_LIMIT);
	n.target = dec_str(&d, FILE_PATH_MAX);
	if (!dec_done(&d) || !kind_plausible(n.kind) || !kind_plausible(n.leads_to) ||
	    n.leads_to == ENTRY_LINK || (n.kind != ENTRY_LINK && n.leads_to != n.kind) ||
	    n.mode > MODE_MAX || n.size > INT64_MAX || !n.path[0])
		return -EPROTO;
	*ret = n;
	return 0;
}

void file_put_match(struct buf *out, const struct agent_match *m)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_str(&body, m->path);
	enc_u64(&body, m->line);
	buf_add(&body, m->text, m->text_len);
	frame_put_body(out, AGENT_MATCH, &body);
}

int file_get_match(const struct message *m, struct agent_match *ret)
{
	struct agent_match got;
	struct dec d;

	dec_init(&d, m->data, m->len);
	got.path = dec_str(&d, FILE_PATH_MAX);
	got.line = dec_u64(&d);
	got.text = dec_rest(&d, &got.text_len);
	if (d.bad || !path_plausible(got.path) || got.line > INT64_MAX ||
	    got.text_len > FILE_TEXT_MAX || (!got.line && got.text_len))
		return -EPROTO;
	*ret = got;
	return 0;
}

void file_put_event(struct buf *out, const struct agent_event *v)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u8(&body, v->change);
	enc_u8(&body, v->dir);
	enc_str(&body, v->path);
	enc_str(&body, v->from);
	frame_put_body(out, AGENT_EVENT, &body);
}

static bool event_plausible(const struct agent_event *v)
{
	if (v->change == CHANGE_OVERFLOW)
		return !v->path[0] && !v->from[0] && !v->dir;
	if (!path_plausible(v->path) || v->dir > 1)
		return false;
	return v->change == CHANGE_MOVED ? path_plausible(v->from) : !v->from[0];
}

int file_get_event(const struct message *m, struct agent_event *ret)
{
	struct agent_event v;
	struct dec d;

	dec_init(&d, m->data, m->len);
	v.change = dec_u8(&d);
	v.dir = dec_u8(&d);
	v.path = dec_str(&d, FILE_PATH_MAX);
	v.from = dec_str(&d, FILE_PATH_MAX);
	if (!dec_done(&d) || v.change < CHANGE_CREATED || v.change > CHANGE_OVERFLOW ||
	    !event_plausible(&v))
		return -EPROTO;
	*ret = v;
	return 0;
}

void file_put_end(struct buf *out, uint32_t flags)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u32(&body, flags);
	frame_put_body(out, AGENT_END, &body);
}

int file_get_end(const struct message *m, uint32_t *ret_flags)
{
	struct dec d;
	uint32_t flags;

	dec_init(&d, m->data, m->len);
	flags = dec_u32(&d);
	if (!dec_done(&d) || flags & ~(uint32_t)FILE_MORE)
		return -EPROTO;
	*ret_flags = flags;
	return 0;
}
