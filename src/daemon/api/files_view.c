#include "api/files_view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "api/errors.h"
#include "api/files_path.h"
#include "api/view.h"
#include "sandbox/lifecycle.h"

enum {
	URL_MAX = 32 * 1024,
	OBJECT_MAX = 256 * 1024, /* of one object, as JSON */
	MODE_DIGITS = 4,
};

/* -- calls --------------------------------------------------------------------------------- */

void file_request_init(struct file_request *q)
{
	*q = (struct file_request){ 0 };
	files_init(&q->call);
}

void file_request_release(struct file_request *q)
{
	files_release(&q->call);
	sandbox_row_release(&q->sandbox);
}

static int audit(struct request *r, const char *action, const char *sandbox,
		 const struct agent_file *f, struct err *e)
{
	_cleanup_buf_ struct buf object = BUF_INIT(URL_MAX);
	_cleanup_tx_ struct tx t = TX_INIT;
	int code;

	buf_addf(&object, "%s:", sandbox);
	file_path_encode(&object, f->path, "/-._~");
	if (f->op == FILE_MOVE) {
		buf_addc(&object, ' ');
		file_path_encode(&object, f->to, "/-._~");
	}
	if (object.failed)
		return err_set(e, ENOMEM, "out of memory");
	code = tx_begin(&t, STORE_RECORD, e);
	if (!code)
		code = audit_add(&t, &r->actor, action, buf_str(&object), e);
	return code < 0 ? code : tx_commit(&t, e);
}

int file_request_open(struct request *r, struct file_request *q, const char *action,
		      struct agent_file *f, struct err *e)
{
	int code = request_sandbox(r, &q->sandbox, e);

	if (code < 0)
		return code;
	f->to = f->to ? f->to : "";
	f->user = f->user ? f->user : "";
	f->owner = f->owner ? f->owner : "";
	f->name = f->name ? f->name : "";
	f->text = f->text ? f->text : "";
	f->default_user = q->sandbox.default_user;
	if (action && q->sandbox.status == RUNNING && !q->sandbox.deleting)
		code = audit(r, action, q->sandbox.id, f, e);
	return code < 0 ? code : files_open(&q->call, &q->sandbox, f, r->client_fd, e);
}

int file_request_item(struct request *r, struct file_request *q, struct err *e)
{
	struct agent_entry n = { 0 };
	uint32_t flags;
	int code = files_entry(&q->call, &n, e);

	if (!code) {
		r->answer = view_file(&q->sandbox, n.path, &n);
		code = files_end(&q->call, &flags, e);
	}
	if (!code && !r->answer)
		return err_set(e, ENOMEM, "out of memory");
	return code;
}

int mode_check(const char *text, struct err *e)
{
	size_t n = strspn(text, "01234567");

	if (n && !text[n] && n <= MODE_DIGITS + 1 && mode_of(text) <= 07777)
		return 0;
	return err_reason(e, EINVAL, "invalid_field", "a mode is octal, from 0 to 7777");
}

uint32_t mode_of(const char *text)
{
	uint32_t mode = 0;

	for (; *text; text++)
		mode = mode << 3 | (uint32_t)(*text - '0');
	return mode;
}

/* -- objects ------------------------------------------------------------------------------- */

void put_bytes(json_t **o, const char *name, const char *bytes, size_t len)
{
	char member[32];

	put(o, name, json_any_string(bytes, len));
	if (utf8_valid(bytes, len))
		return;
	snprintf(member, sizeof(member), "%s_base64", name);
	put(o, member, json_base64(bytes, len));
}

static void put_url(json_t **o, const char *member, const char *ui,
		    const struct sandbox_row *sandbox, const char *path)
{
	_cleanup_buf_ struct buf url = BUF_INIT(URL_MAX);

	buf_addf(&url, "%s%s/workspaces/%s/sandboxes/%s/content", dispatch_config()->url, ui,
		 dispatch_config()->workspace, sandbox->id);
	file_path_encode(&url, path, "/-._~");
	put(o, member, json_string(buf_str(&url)));
}

void put_file_urls(json_t **o, const struct sandbox_row *sandbox, const char *path)
{
	put_url(o, "url", "", sandbox, path);
	put_url(o, "html_url", "/ui", sandbox, path);
}

static void put_owner(json_t **o, const char *member, const char *name, uint32_t id)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", id);
	if (*name)
		put_text(o, member, name);
	else
		put_text(o, member, text);
}

json_t *view_file(const struct sandbox_row *sandbox, const char *path, const struct agent_entry *n)
{
	static const char *const kinds[] = { [ENTRY_LINK] = "LINK",
					     [ENTRY_FIFO] = "FIFO",
					     [ENTRY_SOCKET] = "SOCKET",
					     [ENTRY_CHAR] = "DEVICE",
					     [ENTRY_BLOCK] = "DEVICE" };
	const char *name = file_path_name(path);
	json_t *o = json_object();
	char mode[8];

	put_file_urls(&o, sandbox, path);
	put(&o, "type", json_string(n->leads_to == ENTRY_DIR ? "DIR" : "FILE"));
	if (n->kind < ARRAY_SIZE(kinds) && kinds[n->kind])
		put(&o, "kind", json_string(kinds[n->kind]));
	put_bytes(&o, "name", name, strlen(name));
	put_bytes(&o, "path", path, strlen(path));
	put(&o, "size", json_integer((json_int_t)n->size));
	snprintf(mode, sizeof(mode), "%04o", n->mode & 07777);
	put(&o, "mode", json_string(mode));
	put_date(&o, "mtime", n->mtime_ns / (int64_t)NS_PER_MS);
	put_owner(&o, "owner", n->owner, n->uid);
	put_owner(&o, "group", n->group, n->gid);
	if (*n->target)
		put_bytes(&o, "target", n->target, strlen(n->target));
	return o;
}

/* -- many objects -------------------------------------------------------------------------- */

void page_init(struct page *p)
{
	*p = (struct page){ .out = BUF_INIT(PAGE_BYTES + 2 * OBJECT_MAX) };
}

void page_release(struct page *p)
{
	buf_release(&p->out);
}

int page_add(struct page *p, json_t *o, struct err *e)
{
	_cleanup_free_ char *text = o ? json_dumps(o, JSON_ANSWER) : NULL;
	size_t len = text ? strlen(text) : 0;

	json_decref(o);
	if (!text)
		return err_set(e, ENOMEM, "out of memory");
	if (p->count && p->out.len + len > PAGE_BYTES)
		return 1;
	if (p->count++)
		buf_addc(&p->out, ',');
	buf_add(&p->out, text, len);
	return p->out.failed ? err_set(e, p->out.failed, "an object is too large") : 0;
}

int page_answer(struct page *p, struct request *r, const char *name, json_t *around, struct err *e)
{
	_cleanup_buf_ struct buf out = BUF_INIT(PAGE_BYTES + 3 * OBJECT_MAX);
	_cleanup_free_ char *text = around ? json_dumps(around, JSON_ANSWER) : NULL;
	size_t len = text ? strlen(text) : 0;

	json_decref(around);
	if (!text)
		return err_set(e, ENOMEM, "out of memory");
	buf_add(&out, text, len - 1);
	buf_addf(&out, "%s\"%s\":[", len > 2 ? "," : "", name);
	buf_add(&out, p->out.data, p->out.len);
	buf_adds(&out, "]}");
	buf_release(&p->out);
	r->written_len = out.len;
	r->written = buf_detach(&out);
	return r->written ? 0 : err_set(e, ENOMEM, "out of memory");
}
