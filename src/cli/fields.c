#include "fields.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

#include "api.h"

enum { UPPER_MAX = 32, LINES_MAX = 1024 * 1024 };

static const double NUMBER_MAX = 9007199254740992.0; /* whole numbers are exact up to 2^53 */

const struct field shape_fields[] = {
	{ "resources", "resources", FIELD_TEXT },
	{ "cpus", "cpus", FIELD_NUMBER },
	{ "memory", "memory_mb", FIELD_MIB },
	{ "disk", "disk_gb", FIELD_GIB },
	{ "pids", "pids", FIELD_NUMBER },
	{ "isolation", "isolation", FIELD_TEXT },
	{ 0 },
};

static json_t *number(double value)
{
	return value == floor(value) && fabs(value) <= NUMBER_MAX ? json_integer((json_int_t)value)
								  : json_real(value);
}

static int fill_number(const struct args *a, const struct field *f, json_t *body, struct err *e)
{
	double value;
	int r = args_number(a, f->option, 0, NUMBER_MAX, &value, e);

	if (r)
		return r;
	return json_object_set_new(body, f->name, number(value)) < 0 ? -ENOMEM : 0;
}

/* A size with an optional binary unit; `unit` is the one it is sent in. */
static int fill_size(const struct args *a, const struct field *f, char unit, json_t *body,
		     struct err *e)
{
	static const char units[] = "KMGT";
	const char *text = args_get(a, f->option);
	size_t digits = strspn(text, "0123456789.");
	double value = strtod(text, NULL);
	const char *end = text + digits, *at;

	at = *end ? strchr(units, toupper((unsigned char)*end)) : strchr(units, unit);
	if (*end)
		end++;
	if (*end == 'i')
		end++;
	if (*end == 'B')
		end++;
	if (!digits || !at || *end)
		return usage(e, "--%s: '%s' is not a size such as 512M or 4G", f->option, text);
	value *= pow(1024, (double)((at - units) - (strchr(units, unit) - units)));
	if (value != floor(value) || value < 1 || value > NUMBER_MAX)
		return usage(e, "--%s: '%s' is not a whole number of %ciB", f->option, text, unit);
	return json_object_set_new(body, f->name, number(value)) < 0 ? -ENOMEM : 0;
}

static int fill_many(const struct args *a, const struct field *f, json_t *body, struct err *e)
{
	json_t *list = json_array();
	const char *value;

	if (json_object_set_new(body, f->name, list) < 0)
		return -ENOMEM;
	for (size_t at = 0; (value = args_next(a, f->option, &at));) {
		if (json_array_append_new(list, json_string(value)) < 0)
			return usage(e, "--%s: the value is not UTF-8", f->option);
	}
	return 0;
}

static int fill_lines(const struct args *a, const struct field *f, json_t *body, struct err *e)
{
	_cleanup_buf_ struct buf lines = BUF_INIT(LINES_MAX);
	const char *value;

	for (size_t at = 0; (value = args_next(a, f->option, &at));) {
		if (lines.len)
			buf_addc(&lines, '\n');
		buf_adds(&lines, value);
	}
	if (lines.failed)
		return usage(e, "--%s: more than a request can hold", f->option);
	return api_put(body, f->name, buf_str(&lines), e);
}

static int fill_upper(const struct field *f, const char *value, json_t *body, struct err *e)
{
	char upper[UPPER_MAX];
	size_t i;

	for (i = 0; value[i] && i + 1 < sizeof(upper); i++)
		upper[i] = (char)toupper((unsigned char)value[i]);
	upper[i] = '\0';
	return api_put(body, f->name, upper, e);
}

static int fill(const struct args *a, const struct field *f, json_t *body, struct err *e)
{
	switch (f->kind) {
	case FIELD_TEXT:
		return api_put(body, f->name, args_get(a, f->option), e);
	case FIELD_UPPER:
		return fill_upper(f, args_get(a, f->option), body, e);
	case FIELD_NUMBER:
		return fill_number(a, f, body, e);
	case FIELD_MIB:
		return fill_size(a, f, 'M', body, e);
	case FIELD_GIB:
		return fill_size(a, f, 'G', body, e);
	case FIELD_TRUE:
	case FIELD_FALSE:
		return json_object_set_new(body, f->name, json_boolean(f->kind == FIELD_TRUE)) < 0
			       ? -ENOMEM
			       : 0;
	case FIELD_LIST:
		return fill_many(a, f, body, e);
	case FIELD_LINES:
		return fill_lines(a, f, body, e);
	}
	return -EINVAL;
}

int fields_fill(const struct args *a, const struct field *fields, json_t *body, struct err *e)
{
	if (!body)
		return err_set(e, ENOMEM, "out of memory");
	for (; fields->option; fields++) {
		int r = args_has(a, fields->option) ? fill(a, fields, body, e) : 0;

		if (r == -ENOMEM)
			return err_set(e, ENOMEM, "out of memory");
		if (r < 0)
			return r;
	}
	return 0;
}
