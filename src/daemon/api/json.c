/*
 * Untrusted JSON to a value. The parser of jansson recurses, so nesting is bounded before it sees
 * the text; its messages know a position, so the member at fault is found from that.
 */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/buf.h"
#include "base/str.h"

#include "api/field.h"

enum { JSON_DEPTH_MAX = 32 };

/* The end of the string that starts at `i` (its opening quote), or `len`. */
static size_t string_end(const char *text, size_t len, size_t i)
{
	for (i++; i < len && text[i] != '"'; i++) {
		if (text[i] == '\\')
			i++;
	}
	return i < len ? i : len;
}

struct scan {
	unsigned deepest;
	size_t key, key_end; /* the last member name of the outermost object before the stop */
};

static bool is_key(const char *text, size_t len, size_t after)
{
	while (after < len && strchr(" \t\r\n", text[after]))
		after++;
	return after < len && text[after] == ':';
}

static void scan_json(const char *text, size_t len, size_t stop, struct scan *s)
{
	unsigned depth = 0;

	*s = (struct scan){ 0 };
	for (size_t i = 0; i < len && i < stop; i++) {
		if (text[i] == '"') {
			size_t end = string_end(text, len, i);

			if (depth == 1 && is_key(text, len, end + 1)) {
				s->key = i + 1;
				s->key_end = end;
			}
			i = end;
		} else if (text[i] == '{' || text[i] == '[') {
			if (++depth > s->deepest)
				s->deepest = depth;
		} else if ((text[i] == '}' || text[i] == ']') && depth && --depth == 0) {
			s->key = s->key_end = 0;
		}
	}
}

static int parse_failure(const char *text, size_t len, const json_error_t *je, struct err *e)
{
	size_t stop = je->position > 0 ? (size_t)je->position : 0;
	struct scan s;
	size_t n;

	err_reason(e, EINVAL, "invalid_json", "the body is not valid JSON: %s (line %d)", je->text,
		   je->line);
	scan_json(text, len, stop, &s);
	n = s.key_end - s.key;
	if (n && n < sizeof(e->field) && utf8_valid(text + s.key, n))
		return err_field(e, "%.*s", (int)n, text + s.key);
	return err_field(e, "body");
}

int json_parse_object(const char *text, size_t len, json_t **ret, struct err *e)
{
	json_error_t je;
	struct scan s;
	json_t *v;

	scan_json(text, len, len, &s);
	if (s.deepest > JSON_DEPTH_MAX) {
		err_reason(e, EINVAL, "invalid_json", "the body nests deeper than %d levels",
			   JSON_DEPTH_MAX);
		return err_field(e, "body");
	}
	v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!v)
		return parse_failure(text, len, &je, e);
	if (!json_is_object(v)) {
		json_decref(v);
		err_reason(e, EINVAL, "invalid_json", "the body must be a JSON object");
		return err_field(e, "body");
	}
	*ret = v;
	return 0;
}

/* Bytes of the well-formed character at `s`, or 0. */
static size_t good_character(const char *s, size_t len)
{
	for (size_t n = 1; n <= 4 && n <= len; n++) {
		if (utf8_valid(s, n))
			return n;
	}
	return 0;
}

json_t *json_any_string(const char *s, size_t len)
{
	struct buf out = BUF_INIT(3 * len + 1);
	json_t *v;

	if (utf8_valid(s, len))
		return json_stringn(s, len);
	for (size_t i = 0; i < len;) {
		size_t n = good_character(s + i, len - i);

		buf_add(&out, n ? s + i : "\xef\xbf\xbd", n ? n : 3);
		i += n ? n : 1;
	}
	v = out.failed ? NULL : json_stringn(buf_str(&out), out.len);
	buf_release(&out);
	return v;
}
