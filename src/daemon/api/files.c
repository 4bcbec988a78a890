/* Files of a sandbox: what answers with JSON. Bytes are in files_upload.c and files_download.c. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "api/files_path.h"
#include "api/files_view.h"
#include "api/view.h"

enum {
	SEARCH_LIMIT = 1000,
	CURSOR_MAX = 4 * (FILE_PATH_MAX + 3) / 3,
	BASE64_MAX = 4 * (FILE_PATH_MAX + 3) / 3 + 4,
	USER_MAX = 255,
};

const struct field file_list_fields[] = {
	FIELD_BOOL(struct file_list_query, recursive, .about = "what lies below, too"),
	FIELD_U32(struct file_list_query, limit, .min = 1, .max = FILE_LIMIT_MAX,
		  .absent = FILE_LIMIT_MAX, .about = "most items of one answer; it may have fewer"),
	FIELD_STR(struct file_list_query, cursor, .min = 1, .max = CURSOR_MAX,
		  .about = "next_cursor of the answer before"),
	{ 0 },
};

const struct field file_make_fields[] = {
	FIELD_BOOL(struct file_make_query, parents,
		   .about = "make missing parents; it may exist already"),
	{ "userName", FIELD_KIND_STR, FIELD_AT(struct file_make_query, user, const char *),
	  .min = 1, .max = USER_MAX, .about = "whose it is: a name or number" },
	FIELD_STR(struct file_make_query, mode, .check = mode_check, .about = "octal"),
	{ 0 },
};

const struct field file_set_fields[] = {
	FIELD_STR(struct file_set_request, mode, .check = mode_check, .about = "octal"),
	FIELD_STR(struct file_set_request, owner, .min = 1, .max = 2 * USER_MAX + 1,
		  .about = "user, user:group or :group, names or numbers"),
	{ 0 },
};

const struct field file_move_fields[] = {
	FIELD_STR(struct file_move_request, from, .max = FILE_PATH_MAX, .about = "absolute"),
	FIELD_STR(struct file_move_request, from_base64, .max = BASE64_MAX),
	FIELD_STR(struct file_move_request, to, .max = FILE_PATH_MAX, .about = "absolute"),
	FIELD_STR(struct file_move_request, to_base64, .max = BASE64_MAX),
	FIELD_BOOL(struct file_move_request, overwrite),
	{ 0 },
};

const struct field file_search_fields[] = {
	FIELD_STR(struct file_search_request, path, .max = FILE_PATH_MAX, .about = "absolute"),
	FIELD_STR(struct file_search_request, path_base64, .max = BASE64_MAX),
	FIELD_STR(struct file_search_request, name, .max = FILE_NAME_MAX, .about = "glob of names"),
	FIELD_STR(struct file_search_request, name_base64, .max = BASE64_MAX),
	FIELD_STR(struct file_search_request, text, .max = FILE_TEXT_MAX,
		  .about = "what a line has"),
	FIELD_STR(struct file_search_request, text_base64, .max = BASE64_MAX),
	FIELD_U32(struct file_search_request, limit, .min = 1, .max = FILE_LIMIT_MAX,
		  .absent = SEARCH_LIMIT),
	{ 0 },
};

/* -- list ---------------------------------------------------------------------------------- */

/* The last path of a page, as text of our own making. */
static char *cursor_make(const char *path)
{
	size_t size =
		sodium_base64_encoded_len(strlen(path), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	char *text = malloc(size);

	if (text)
		sodium_bin2base64(text, size, (const unsigned char *)path, strlen(path),
				  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	return text;
}

static int cursor_read(const char *text, char path[FILE_PATH_MAX + 1], struct err *e)
{
	size_t len = 0;

	path[0] = '\0';
	if (!text)
		return 0;
	if (sodium_base642bin((unsigned char *)path, FILE_PATH_MAX, text, strlen(text), NULL, &len,
			      NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) < 0 ||
	    !len || memchr(path, '\0', len)) {
		err_reason(e, EINVAL, "invalid_field", "'cursor' is none of an answer before");
		return err_field(e, "cursor");
	}
	path[len] = '\0';
	return 0;
}

static int add_entry(struct page *p, const struct request *r, const struct file_request *q,
		     const struct agent_entry *n, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(2 * FILE_PATH_MAX + 2);

	buf_addf(&path, "%s/%s", str_eq(r->rest, "/") ? "" : r->rest, n->path);
	if (path.failed)
		return err_set(e, ENOMEM, "out of memory");
	return page_add(p, view_file(&q->sandbox, buf_str(&path), n), e);
}

/* Fills the page; `last` is the path of its last entry. 1: there are more. */
static int collect(struct request *r, struct file_request *q, struct page *p,
		   char last[FILE_PATH_MAX + 1], struct err *e)
{
	const struct file_list_query *in = r->in_query;
	uint32_t flags = 0;

	for (;;) {
		struct agent_entry n = { 0 };
		int code = files_list(&q->call, &n, &flags, e);

		if (code == 0)
			return (flags & FILE_MORE) && p->count ? 1 : 0;
		if (code > 0 && p->count == in->limit)
			return 1;
		if (code > 0)
			code = add_entry(p, r, q, &n, e);
		if (code != 0)
			return code;
		str_copy(last, FILE_PATH_MAX + 1, n.path);
	}
}

static int answer_page(struct request *r, const struct file_request *q, struct page *p,
		       const char *last, bool more, struct err *e)
{
	json_t *around = json_object();

	put_file_urls(&around, &q->sandbox, r->rest);
	if (more) {
		_cleanup_free_ char *cursor = cursor_make(last);

		put(&around, "next_cursor", cursor ? json_string(cursor) : NULL);
	}
	return page_answer(p, r, "contents", around, e);
}

static int list(struct request *r, struct err *e)
{
	_cleanup_file_request_ struct file_request q;
	const struct file_list_query *in = r->in_query;
	char cursor[FILE_PATH_MAX + 1], last[FILE_PATH_MAX + 1] = "";
	struct agent_file f = {
		.op = FILE_LIST,
		.flags = in->recursive ? FILE_RECURSIVE : 0,
		.limit = in->limit,
		.path = r->rest,
		.to = cursor,
	};
	struct page p;
	int code;

	file_request_init(&q);
	if (cursor_read(in->cursor, cursor, e) < 0)
		return -e->code;
	code = file_request_open(r, &q, NULL, &f, e);
	page_init(&p);
	if (!code)
		code = collect(r, &q, &p, last, e);
	if (code >= 0)
		code = answer_page(r, &q, &p, last, code, e);
	page_release(&p);
	return code;
}

int handle_file_list(struct request *r, struct err *e)
{
	int code = list(r, e);

	/* of what is no directory, the item */
	if (code < 0 && str_eq(e->cause, "ENOTDIR")) {
		*e = (struct err)ERR_INIT;
		return handle_file_stat(r, e);
	}
	return code;
}

/* -- one item ------------------------------------------------------------------------------ */

static int one(struct request *r, const char *action, struct agent_file *f, struct err *e)
{
	_cleanup_file_request_ struct file_request q;
	int code;

	file_request_init(&q);
	code = file_request_open(r, &q, action, f, e);
	return code < 0 ? code : file_request_item(r, &q, e);
}

int handle_file_stat(struct request *r, struct err *e)
{
	struct agent_file f = { .op = FILE_STAT, .path = r->rest };

	return one(r, NULL, &f, e);
}

int handle_file_make(struct request *r, struct err *e)
{
	const struct file_make_query *in = r->in_query;
	struct agent_file f = {
		.op = FILE_MAKE,
		.flags = (in->parents ? FILE_PARENTS : 0u) | (in->mode ? FILE_HAS_MODE : 0u),
		.mode = in->mode ? mode_of(in->mode) : 0,
		.path = r->rest,
		.user = in->user,
	};

	return one(r, "file.make", &f, e);
}

int handle_file_set(struct request *r, struct err *e)
{
	const struct file_set_request *in = r->in;
	struct agent_file f = {
		.op = FILE_SET,
		.flags = in->mode ? FILE_HAS_MODE : 0u,
		.mode = in->mode ? mode_of(in->mode) : 0,
		.path = r->rest,
		.owner = in->owner,
	};

	if (!in->mode && !in->owner) {
		err_reason(e, EINVAL, "invalid_field", "'mode' or 'owner' is required");
		return err_field(e, "mode");
	}
	return one(r, "file.set", &f, e);
}

int handle_file_move(struct request *r, struct err *e)
{
	const struct file_move_request *in = r->in;
	_cleanup_free_ char *from = NULL, *to = NULL;
	struct agent_file f = { .op = FILE_MOVE, .flags = in->overwrite ? FILE_OVERWRITE : 0u };

	if (file_text_path(&(struct file_text){ "from", in->from, in->from_base64 }, &from, e) <
		    0 ||
	    file_text_path(&(struct file_text){ "to", in->to, in->to_base64 }, &to, e) < 0)
		return -e->code;
	f.path = from;
	f.to = to;
	return one(r, "file.move", &f, e);
}

int handle_file_remove(struct request *r, struct err *e)
{
	_cleanup_file_request_ struct file_request q;
	struct agent_file f = { .op = FILE_REMOVE, .path = r->rest };
	uint32_t flags;
	int code;

	file_request_init(&q);
	code = file_request_open(r, &q, "file.remove", &f, e);
	return code < 0 ? code : files_end(&q.call, &flags, e);
}

/* -- search -------------------------------------------------------------------------------- */

static json_t *view_match(const struct agent_match *m)
{
	json_t *o = json_object();

	put_bytes(&o, "path", m->path, strlen(m->path));
	if (m->line) {
		put(&o, "line", json_integer((json_int_t)m->line));
		put_bytes(&o, "text", m->text, m->text_len);
	}
	return o;
}

static int find(struct request *r, struct agent_file *f, struct err *e)
{
	_cleanup_file_request_ struct file_request q;
	uint32_t flags = 0;
	struct page p;
	int code;

	file_request_init(&q);
	page_init(&p);
	code = file_request_open(r, &q, NULL, f, e);
	while (code >= 0) {
		struct agent_match m;

		code = files_match(&q.call, &m, &flags, e);
		if (code <= 0)
			break;
		code = p.count == f->limit ? 1 : page_add(&p, view_match(&m), e);
		if (code > 0) {
			flags = FILE_MORE;
			break;
		}
	}
	if (code >= 0)
		code = page_answer(&p, r, "matches",
				   json_pack("{sb}", "truncated", (flags & FILE_MORE) != 0), e);
	page_release(&p);
	return code;
}

int handle_file_search(struct request *r, struct err *e)
{
	const struct file_search_request *in = r->in;
	_cleanup_free_ char *path = NULL, *name = NULL, *text = NULL;
	struct agent_file f = { .op = FILE_SEARCH, .limit = in->limit };

	if (file_text_path(&(struct file_text){ "path", in->path, in->path_base64 }, &path, e) <
		    0 ||
	    file_text_get(&(struct file_text){ "name", in->name, in->name_base64 }, &name, e) < 0 ||
	    file_text_get(&(struct file_text){ "text", in->text, in->text_base64 }, &text, e) < 0)
		return -e->code;
	if ((name && strlen(name) > FILE_NAME_MAX) || (text && strlen(text) > FILE_TEXT_MAX)) {
		bool of_name = name && strlen(name) > FILE_NAME_MAX;

		err_reason(e, EINVAL, "invalid_field", "it has more than %d bytes",
			   of_name ? FILE_NAME_MAX : FILE_TEXT_MAX);
		return err_field(e, "%s", of_name ? "name" : "text");
	}
	f.path = path;
	f.name = name;
	f.text = text;
	return find(r, &f, e);
}
