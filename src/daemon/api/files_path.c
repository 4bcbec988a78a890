#include "api/files_path.h"

#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "wire/files.h"

static int bad_part(const char *part, size_t len, struct err *e)
{
	if ((len == 1 && part[0] == '.') || (len == 2 && !memcmp(part, "..", 2)))
		return err_reason(e, EINVAL, "bad_path", "the path has a part that is '.' or '..'");
	if (len > FILE_NAME_MAX) {
		err_reason(e, EINVAL, "bad_path", "a part of the path has more than %d bytes",
			   FILE_NAME_MAX);
		e->cause = "ENAMETOOLONG";
		return -e->code;
	}
	return 0;
}

int file_path_tidy(char *path, struct err *e)
{
	char *out = path;
	const char *p = path;

	if (*p != '/')
		return err_reason(e, EINVAL, "bad_path", "the path does not start with '/'");
	while (*p) {
		size_t len;

		p += strspn(p, "/");
		len = strcspn(p, "/");
		if (!len)
			break;
		if (bad_part(p, len, e) < 0)
			return -e->code;
		*out++ = '/';
		memmove(out, p, len);
		out += len;
		p += len;
	}
	if (out == path)
		*out++ = '/';
	*out = '\0';
	if (out - path > FILE_PATH_MAX) {
		err_reason(e, EINVAL, "bad_path", "the path has more than %d bytes", FILE_PATH_MAX);
		e->cause = "ENAMETOOLONG";
		return -e->code;
	}
	return 0;
}

static int bad_text(const struct file_text *t, const char *what, struct err *e)
{
	err_reason(e, EINVAL, "invalid_field", "'%s%s' %s", t->name, t->base64 ? "_base64" : "",
		   what);
	return err_field(e, "%s%s", t->name, t->base64 ? "_base64" : "");
}

int file_text_get(const struct file_text *t, char **ret, struct err *e)
{
	struct buf b = BUF_INIT(FILE_PATH_MAX + 1);

	if (t->text && t->base64)
		return bad_text(t, "is given beside its text", e);
	if (!t->text && !t->base64) {
		*ret = NULL;
		return 0;
	}
	if (t->text)
		buf_adds(&b, t->text);
	else if (base64_decode(&b, t->base64, strlen(t->base64)) == -EINVAL ||
		 (b.len && memchr(b.data, '\0', b.len)))
		b.failed = -EINVAL;
	if (b.failed) {
		int r = b.failed;

		buf_release(&b);
		return r == -ENOMEM   ? err_set(e, ENOMEM, "out of memory")
		       : r == -EINVAL ? bad_text(t, "is not base64, or of bytes with a NUL", e)
				      : bad_text(t, "is too long", e);
	}
	if (!b.len)
		buf_adds(&b, "");
	*ret = b.len ? buf_detach(&b) : strdup("");
	buf_release(&b);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

int file_text_path(const struct file_text *t, char **ret, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	int r = file_text_get(t, &path, e);

	if (r < 0)
		return r;
	if (!path)
		return bad_text(t, "is required", e);
	if (file_path_tidy(path, e) < 0)
		return err_field(e, "%s%s", t->name, t->base64 ? "_base64" : "");
	*ret = take_ptr(path);
	return 0;
}

const char *file_path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static bool plain(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

void file_path_encode(struct buf *out, const char *s, const char *safe)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (plain(c) || strchr(safe, c))
			buf_addc(out, *s);
		else
			buf_addf(out, "%%%02X", c);
	}
}

/* For clients that know no better: the letters of ASCII that no parser stumbles over. */
static void add_fallback(struct buf *out, const char *name)
{
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if ((c & 0xc0) == 0x80)
			continue; /* of a character that has its sign already, or of none */
		buf_addc(out, c < ' ' || c >= 0x7f || strchr("\"\\%;/", c) ? '_' : *name);
	}
}

void file_disposition(struct buf *out, const char *name, const char *suffix)
{
	static const char attr_char[] = "!#$&+-.^_`|~";
	json_t *text = json_any_string(name, strlen(name));

	buf_adds(out, "attachment; filename=\"");
	add_fallback(out, name);
	buf_addf(out, "%s\"; filename*=UTF-8''", suffix);
	if (text)
		file_path_encode(out, json_string_value(text), attr_char);
	else
		out->failed = -ENOMEM;
	buf_adds(out, suffix);
	json_decref(text);
}
