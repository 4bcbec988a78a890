/*
 * Bytes into a sandbox: a file, or an archive that is unpacked there. Nothing is kept but a block:
 * who writes waits until the sandbox has taken it. What the agent refuses before the body is
 * refused before the body was read.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "api/files_view.h"
#include "api/form.h"
#include "sandbox/sandbox.h"

enum {
	DIRECT_MIN = 16 * 1024, /* bytes that are worth a frame of their own */
	GZIP_BITS = 15 + 16,
	USER_MAX = 255,
};

const struct field file_upload_fields[] = {
	{ "userName", FIELD_KIND_STR, FIELD_AT(struct file_upload_query, user, const char *),
	  .min = 1, .max = USER_MAX,
	  .about = "whose it is: a user of the sandbox's passwd, by name or number" },
	FIELD_STR(struct file_upload_query, mode, .check = mode_check,
		  .about = "octal, of a file; default 0644 where it is new"),
	{ 0 },
};

enum body { BODY_BYTES, BODY_FORM, BODY_TAR, BODY_GZIP };

static const struct {
	const char *type;
	enum body body;
} types[] = {
	{ "application/octet-stream", BODY_BYTES }, { "multipart/form-data", BODY_FORM },
	{ "application/x-tar", BODY_TAR },          { "application/gzip", BODY_GZIP },
	{ "application/x-gzip", BODY_GZIP },        { "application/x-gtar+gz", BODY_GZIP },
};

struct file_upload {
	struct file_request q;
	enum body body;
	struct form *form;
	bool seen, filled; /* the form had its file; and bytes of it */
	unsigned char magic[2];
	size_t magic_len; /* of a tar: looked at before the first byte goes on */
	z_stream z;
	bool inflating, ended; /* `ended`: no member of the archive is open */
	size_t fill;
	char block[FILE_DATA_MAX];
};

static int type_of(const char *type, enum body *ret, struct err *e)
{
	size_t len = type ? strcspn(type, "; \t") : 0;

	*ret = BODY_BYTES;
	if (!type)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (len == strlen(types[i].type) && !strncasecmp(type, types[i].type, len)) {
			*ret = types[i].body;
			return 0;
		}
	}
	err_reason(e, EMEDIUMTYPE, "unsupported_media_type",
		   "the body must be bytes, a form with a file, or a tar");
	err_hint(e, "Content-Type: application/octet-stream, multipart/form-data, "
		    "application/x-tar or application/gzip");
	return err_field(e, "Content-Type");
}

/* -- what goes to the sandbox -------------------------------------------------------------- */

static int flush(struct file_upload *u, struct err *e)
{
	size_t len = u->fill;

	u->fill = 0;
	return files_send(&u->q.call, u->block, len, e);
}

static int put_data(struct file_upload *u, const char *data, size_t len, struct err *e)
{
	while (len) {
		size_t n = sizeof(u->block) - u->fill < len ? sizeof(u->block) - u->fill : len;
		int r = 0;

		if (!u->fill && len >= DIRECT_MIN) {
			r = files_send(&u->q.call, data, n, e);
		} else {
			memcpy(u->block + u->fill, data, n);
			u->fill += n;
			if (u->fill == sizeof(u->block))
				r = flush(u, e);
		}
		if (r < 0)
			return r;
		data += n;
		len -= n;
	}
	return 0;
}

/* -- what comes ---------------------------------------------------------------------------- */

static int on_part(void *arg, const char *name, const char *data, size_t len, bool first,
		   struct err *e)
{
	struct file_upload *u = arg;

	if (!str_eq(name, "file")) {
		err_reason(e, EINVAL, "unknown_field", "'%s' is not a known part of the form",
			   name);
		return err_field(e, "%s", *name ? name : "body");
	}
	if (first && u->filled && len) {
		err_reason(e, EINVAL, "duplicate_field", "'file' is given twice");
		return err_field(e, "file");
	}
	u->seen = true;
	u->filled = u->filled || len;
	return put_data(u, data, len, e);
}

static int bad_archive(struct err *e)
{
	err_reason(e, EINVAL, "bad_archive", "the body is not a whole gzip archive");
	return err_field(e, "body");
}

/* Members follow each other, and zeros may follow the last. */
static int next_member(struct file_upload *u, struct err *e)
{
	while (u->z.avail_in && !*u->z.next_in) {
		u->z.next_in++;
		u->z.avail_in--;
	}
	if (!u->z.avail_in)
		return 0;
	u->ended = false;
	return inflateReset(&u->z) == Z_OK ? 0 : bad_archive(e);
}

static int inflate_data(struct file_upload *u, const char *data, size_t len, struct err *e)
{
	u->z.next_in = (unsigned char *)data;
	u->z.avail_in = (unsigned)len;
	while (u->z.avail_in) {
		int r = u->ended ? next_member(u, e) : 0;

		if (r < 0 || !u->z.avail_in)
			return r;
		do {
			u->z.next_out = (unsigned char *)u->block + u->fill;
			u->z.avail_out = (unsigned)(sizeof(u->block) - u->fill);
			r = inflate(&u->z, Z_NO_FLUSH);
			if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
				return r == Z_MEM_ERROR ? err_set(e, ENOMEM, "out of memory")
							: bad_archive(e);
			u->fill = sizeof(u->block) - u->z.avail_out;
			u->ended = r == Z_STREAM_END;
			if (!u->z.avail_out && flush(u, e) < 0)
				return -e->code;
		} while (!u->ended && !u->z.avail_out);
	}
	return 0;
}

static int start_inflate(struct file_upload *u, struct err *e)
{
	if (inflateInit2(&u->z, GZIP_BITS) != Z_OK)
		return err_set(e, ENOMEM, "out of memory");
	u->inflating = true;
	u->body = BODY_GZIP;
	return 0;
}

static int pass_on(struct file_upload *u, const char *data, size_t len, struct err *e)
{
	return u->body == BODY_GZIP ? inflate_data(u, data, len, e) : put_data(u, data, len, e);
}

/* A tar may have been compressed without a word: its first two bytes tell. */
static int archive_data(struct file_upload *u, const char *data, size_t len, struct err *e)
{
	bool looking = u->magic_len < sizeof(u->magic);
	int r = 0;

	for (; len && u->magic_len < sizeof(u->magic); len--)
		u->magic[u->magic_len++] = (unsigned char)*data++;
	if (u->magic_len < sizeof(u->magic))
		return 0;
	if (looking) {
		if (u->body == BODY_TAR && u->magic[0] == 0x1f && u->magic[1] == 0x8b)
			r = start_inflate(u, e);
		if (!r)
			r = pass_on(u, (const char *)u->magic, sizeof(u->magic), e);
	}
	return r < 0 ? r : pass_on(u, data, len, e);
}

/* -- the request --------------------------------------------------------------------------- */

static void upload_free(struct request *r)
{
	struct file_upload *u = r->upload;

	r->upload = NULL;
	if (!u)
		return;
	form_free(&u->form);
	if (u->inflating)
		inflateEnd(&u->z);
	file_request_release(&u->q);
	free(u);
}

static int open_upload(struct request *r, struct file_upload *u, struct err *e)
{
	const struct file_upload_query *in = r->in_query;
	bool archive = u->body == BODY_TAR || u->body == BODY_GZIP;
	struct agent_file f = {
		.op = archive ? FILE_UNPACK : FILE_WRITE,
		.flags = FILE_PARENTS | (in->mode ? FILE_HAS_MODE : 0u),
		.mode = in->mode ? mode_of(in->mode) : 0,
		.path = r->rest,
		.user = in->user,
	};
	int code = 0;

	if (archive && in->mode) {
		err_reason(e, EINVAL, "invalid_field", "an archive tells the modes of its own");
		return err_field(e, "mode");
	}
	if (u->body == BODY_FORM)
		code = form_open(&u->form, r, on_part, u, e);
	else if (u->body == BODY_GZIP)
		code = start_inflate(u, e);
	if (!code)
		code = sandbox_pool_check(e);
	if (!code)
		code = file_request_open(r, &u->q, "file.upload", &f, e);
	return code < 0 ? code : files_ready(&u->q.call, e);
}

static int upload_begin(struct request *r, struct err *e)
{
	struct file_upload *u = calloc(1, sizeof(*u));
	int code;

	if (!u)
		return err_set(e, ENOMEM, "out of memory");
	r->upload = u;
	file_request_init(&u->q);
	code = type_of(r->content_type, &u->body, e);
	if (!code)
		code = open_upload(r, u, e);
	if (code < 0)
		upload_free(r);
	return code;
}

static int upload_write(struct request *r, const char *data, size_t len, struct err *e)
{
	struct file_upload *u = r->upload;
	int code;

	if (u->body == BODY_FORM)
		code = form_write(u->form, data, len, e);
	else if (u->body == BODY_BYTES)
		code = put_data(u, data, len, e);
	else
		code = archive_data(u, data, len, e);
	if (code < 0)
		files_release(&u->q.call); /* it is given up; the rest of the body is dropped */
	return code;
}

/* The body came to its end: so did what it holds? */
static int check_whole(struct file_upload *u, struct err *e)
{
	if (u->body == BODY_GZIP && !u->ended)
		return bad_archive(e);
	if (u->body == BODY_TAR && u->magic_len == 1)
		return put_data(u, (const char *)u->magic, 1, e);
	if (u->body != BODY_FORM)
		return 0;
	if (form_end(&u->form, e) < 0)
		return -e->code;
	if (u->seen)
		return 0;
	err_reason(e, EINVAL, "invalid_field", "the form has no part 'file'");
	return err_field(e, "file");
}

static int upload_end(struct request *r, bool cut, struct err *e)
{
	struct file_upload *u = r->upload;
	int code = e->code ? -e->code : cut ? -ECONNABORTED : check_whole(u, e);

	if (!code)
		code = flush(u, e);
	if (!code)
		code = files_send_end(&u->q.call, e);
	if (!code)
		code = file_request_item(r, &u->q, e);
	upload_free(r);
	return code;
}

static const char *const also[] = { "multipart/form-data", "application/x-tar", "application/gzip",
				    NULL };

const struct upload file_upload = {
	.type = "application/octet-stream",
	.also = also,
	.begin = upload_begin,
	.write = upload_write,
	.end = upload_end,
};
