#include "api/field.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/str.h"

enum { PATH_SIZE = 64 };

static const char *type_name(enum field_kind kind)
{
	static const char *const names[] = {
		[FIELD_KIND_STR] = "a string",           [FIELD_KIND_ENUM] = "a string",
		[FIELD_KIND_U32] = "an integer",         [FIELD_KIND_U64] = "an integer",
		[FIELD_KIND_BOOL] = "true or false",     [FIELD_KIND_SECONDS] = "a number",
		[FIELD_KIND_LIST] = "a list of strings", [FIELD_KIND_MAP] = "an object of strings",
		[FIELD_KIND_OBJECT] = "an object",
	};

	return names[kind];
}

static int bad(struct err *e, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int bad(struct err *e, const char *path, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_reason(e, EINVAL, "invalid_field", "'%s' %s", path, text);
	return err_field(e, "%s", path);
}

static uint64_t characters(const char *s)
{
	uint64_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static int check_text(const json_t *value, const char *path, uint64_t min, uint64_t max,
		      const char **ret, struct err *e)
{
	const char *s = json_string_value(value);
	uint64_t n;

	if (!s)
		return bad(e, path, "must be a string");
	if (strlen(s) != json_string_length(value))
		return bad(e, path, "must not contain the character U+0000");
	n = characters(s);
	if (n < min && min == 1)
		return bad(e, path, "must not be empty");
	if (n < min)
		return bad(e, path, "must have at least %llu characters", (unsigned long long)min);
	if (max && n > max)
		return bad(e, path, "must have at most %llu characters", (unsigned long long)max);
	*ret = s;
	return 0;
}

static int decode_string(const struct field *f, const json_t *value, const char *path, void *at,
			 struct err *e)
{
	const char *s;
	int r = check_text(value, path, f->min, f->max, &s, e);

	if (r < 0)
		return r;
	if (f->check && f->check(s, e) < 0)
		return err_field(e, "%s", path);
	*(const char **)at = s;
	return 0;
}

static int decode_enum(const struct field *f, const json_t *value, const char *path, void *at,
		       struct err *e)
{
	const char *s = json_string_value(value);
	char all[160] = "";
	size_t used = 0;

	for (const char *const *v = f->values; *v; v++) {
		if (s && str_eq(s, *v)) {
			*(const char **)at = *v;
			return 0;
		}
		if (used < sizeof(all))
			used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s",
						 used ? ", " : "", *v);
	}
	return bad(e, path, "must be one of %s", all);
}

static int decode_integer(const struct field *f, const json_t *value, const char *path, void *at,
			  struct err *e)
{
	uint64_t max = f->max ? f->max : f->kind == FIELD_KIND_U32 ? UINT32_MAX : INT64_MAX;
	json_int_t n;

	if (!json_is_integer(value))
		return bad(e, path, "must be an integer");
	n = json_integer_value(value);
	if (n < 0 || (uint64_t)n < f->min || (uint64_t)n > max)
		return bad(e, path, "must be from %llu to %llu", (unsigned long long)f->min,
			   (unsigned long long)max);
	if (f->kind == FIELD_KIND_U32)
		*(uint32_t *)at = (uint32_t)n;
	else
		*(uint64_t *)at = (uint64_t)n;
	return 0;
}

static int decode_bool(const struct field *f, const json_t *value, const char *path, void *at,
		       struct err *e)
{
	(void)f;
	if (!json_is_boolean(value))
		return bad(e, path, "must be true or false");
	*(bool *)at = json_is_true(value);
	return 0;
}

static int decode_seconds(const struct field *f, const json_t *value, const char *path, void *at,
			  struct err *e)
{
	double seconds = json_number_value(value);
	uint64_t ms;

	if (!json_is_number(value))
		return bad(e, path, "must be a number");
	if (!isfinite(seconds) || seconds <= 0 || seconds > (double)f->max)
		return bad(e, path, "must be above 0 and at most %llu seconds",
			   (unsigned long long)f->max);
	ms = (uint64_t)ceil(seconds * 1000);
	*(uint64_t *)at = ms;
	return 0;
}

static int decode_list(const struct field *f, const json_t *value, const char *path, void *at,
		       struct err *e)
{
	size_t n = json_array_size(value);

	if (!json_is_array(value))
		return bad(e, path, "must be a list of strings");
	if (n < f->min || n > f->max)
		return bad(e, path, "must have from %llu to %llu items", (unsigned long long)f->min,
			   (unsigned long long)f->max);
	for (size_t i = 0; i < n; i++) {
		char item[PATH_SIZE];
		const char *s;
		int r;

		snprintf(item, sizeof(item), "%s[%zu]", path, i);
		r = check_text(json_array_get(value, i), item, f->item_min, f->item_max, &s, e);
		if (r < 0)
			return r;
		if (f->check && f->check(s, e) < 0)
			return err_field(e, "%s", item);
	}
	*(json_t **)at = (json_t *)value;
	return 0;
}

static int decode_map(const struct field *f, const json_t *value, const char *path, void *at,
		      struct err *e)
{
	const char *key;
	json_t *v;

	if (!json_is_object(value))
		return bad(e, path, "must be an object of strings");
	if (json_object_size(value) > f->max)
		return bad(e, path, "must have at most %llu members", (unsigned long long)f->max);
	json_object_foreach((json_t *)value, key, v)
	{
		char item[PATH_SIZE];
		const char *s;
		int r;

		snprintf(item, sizeof(item), "%s.%s", path, key);
		if (f->check && f->check(key, e) < 0)
			return err_field(e, "%s", item);
		r = check_text(v, item, f->item_min, f->item_max, &s, e);
		if (r < 0)
			return r;
	}
	*(json_t **)at = (json_t *)value;
	return 0;
}

static int decode_fields(const struct field *fields, const json_t *object, void *out,
			 const char *prefix, struct err *e);

static int decode_one(const struct field *f, const json_t *value, const char *path, void *out,
		      struct err *e)
{
	static int (*const decoders[])(const struct field *, const json_t *, const char *, void *,
				       struct err *) = {
		[FIELD_KIND_STR] = decode_string,  [FIELD_KIND_ENUM] = decode_enum,
		[FIELD_KIND_U32] = decode_integer, [FIELD_KIND_U64] = decode_integer,
		[FIELD_KIND_BOOL] = decode_bool,   [FIELD_KIND_SECONDS] = decode_seconds,
		[FIELD_KIND_LIST] = decode_list,   [FIELD_KIND_MAP] = decode_map,
	};

	if (json_is_null(value))
		return bad(e, path, "must be %s, not null", type_name(f->kind));
	if (f->kind == FIELD_KIND_OBJECT) {
		if (!json_is_object(value))
			return bad(e, path, "must be an object");
		return decode_fields(f->sub, value, out, path, e);
	}
	return decoders[f->kind](f, value, path, (char *)out + f->offset, e);
}

static void set_absent(const struct field *f, void *out)
{
	void *at = (char *)out + f->offset;

	if (f->kind == FIELD_KIND_U32)
		*(uint32_t *)at = (uint32_t)f->absent;
	else if (f->kind == FIELD_KIND_BOOL)
		*(bool *)at = f->absent;
	else if (f->kind == FIELD_KIND_SECONDS || f->kind == FIELD_KIND_U64)
		*(uint64_t *)at = f->absent;
	else if (f->kind == FIELD_KIND_OBJECT)
		for (const struct field *s = f->sub; s->name; s++)
			set_absent(s, out);
}

static void join(char path[PATH_SIZE], const char *prefix, const char *name)
{
	snprintf(path, PATH_SIZE, "%s%s%s", prefix, *prefix ? "." : "", name);
}

static int decode_fields(const struct field *fields, const json_t *object, void *out,
			 const char *prefix, struct err *e)
{
	char path[PATH_SIZE];
	const char *key;
	json_t *value;

	for (const struct field *f = fields; f->name; f++) {
		if (!f->reserved)
			set_absent(f, out);
	}
	json_object_foreach((json_t *)object, key, value)
	{
		const struct field *f = field_find(fields, key);
		int r;

		join(path, prefix, key);
		if (!f) {
			err_reason(e, EINVAL, "unknown_field", "'%s' is not a known field", path);
			/* a field can be named "" too: then it is named by what it stands in */
			return err_field(e, "%s", *path ? path : "body");
		}
		if (f->reserved) {
			err_reason(e, ENOTSUP, "not_available", "'%s' is not available yet", path);
			return err_field(e, "%s", path);
		}
		r = decode_one(f, value, path, out, e);
		if (r < 0)
			return r;
	}
	for (const struct field *f = fields; f->name; f++) {
		if (f->required && !json_object_get(object, f->name)) {
			join(path, prefix, f->name);
			return bad(e, path, "is required");
		}
	}
	return 0;
}

int fields_decode(const struct field *fields, const json_t *object, void *out, struct err *e)
{
	return decode_fields(fields, object, out, "", e);
}

const struct field *field_find(const struct field *fields, const char *name)
{
	for (const struct field *f = fields; f && f->name; f++) {
		if (str_eq(f->name, name))
			return f;
	}
	return NULL;
}

json_t *field_from_text(const struct field *f, const char *text)
{
	uint64_t n;

	if ((f->kind == FIELD_KIND_U32 || f->kind == FIELD_KIND_U64) &&
	    str_u64(text, 0, INT64_MAX, &n) == 0)
		return json_integer((json_int_t)n);
	if (f->kind == FIELD_KIND_BOOL && (str_eq(text, "true") || str_eq(text, "false")))
		return json_boolean(str_eq(text, "true"));
	return json_any_string(text, strlen(text));
}
