#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "out.h"

static int get(struct cli *c, const char *sandbox, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	int r = api_path(c, &path, e, "sandboxes", sandbox, NULL);

	return r < 0 ? r : api_call(c, "GET", &path, NULL, CALL_TIMEOUT_MS, ret, e);
}

static void field_list(const char *name, const json_t *list)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
	{
		if (json_is_string(v))
			buf_addf(&b, "%s%s", b.len ? ", " : "", json_string_value(v));
	}
	out_field(name, b.len ? buf_str(&b) : NULL);
}

static void bytes_text(const json_t *bytes, char *out, size_t size)
{
	static const double mib = 1024.0 * 1024;
	double n = json_number_value(bytes) / mib;

	if (n < 1024)
		snprintf(out, size, "%.0f MiB", n);
	else
		snprintf(out, size, "%.1f GiB", n / 1024);
}

/* "612 MiB of 4.0 GiB"; either part may be missing. */
static void field_bytes(const char *name, const json_t *used, const json_t *limit)
{
	char one[32], two[32], text[96] = "";

	bytes_text(used, one, sizeof(one));
	bytes_text(limit, two, sizeof(two));
	if (json_is_number(used) && json_is_number(limit))
		snprintf(text, sizeof(text), "%s of %s", one, two);
	else if (json_is_number(limit))
		snprintf(text, sizeof(text), "at most %s", two);
	else if (json_is_number(used))
		snprintf(text, sizeof(text), "%s", one);
	out_field(name, *text ? text : NULL);
}

static void field_limits(const json_t *s)
{
	const json_t *limits = json_object_get(s, "limits"), *usage = json_object_get(s, "usage");
	const json_t *cpus = json_object_get(limits, "cpus");
	char text[32];

	if (json_is_number(cpus)) {
		snprintf(text, sizeof(text), "%g", json_number_value(cpus));
		out_field("cpus", text);
	}
	field_bytes("memory", json_object_get(usage, "memory_bytes"),
		    json_object_get(limits, "memory_bytes"));
	field_bytes("disk", json_object_get(usage, "disk_bytes"),
		    json_object_get(limits, "disk_bytes"));
	if (json_is_false(json_object_get(limits, "enforced")))
		out_field("limits", "not enforced (see: skerry doctor)");
}

static void fields_state(const json_t *s)
{
	const json_t *reason = json_object_get(s, "exit_reason"), *app;
	size_t i;

	out_field("status", json_text(s, "status"));
	out_field("setup", json_text(s, "setup_status"));
	out_field("exit reason", json_text(reason, "text") ? json_text(reason, "text")
							   : json_text(reason, "code"));
	json_array_foreach(json_object_get(s, "apps"), i, app)
	{
		char text[512];

		snprintf(text, sizeof(text), "%s %s", json_text_or(app, "app_status", "-"),
			 json_text_or(app, "command", json_text_or(app, "id", "")));
		out_field("app", text);
	}
}

int cmd_get(struct cli *c, const struct args *a, struct err *e)
{
	static const struct {
		const char *title, *key;
	} fields[] = {
		{ "image", "os" },
		{ "resources", "resources" },
		{ "isolation", "isolation" },
		{ "created", "create_date" },
		{ "stops", "stop_at" },
		{ "note", "note" },
		{ "agent note", "agent_note" },
		{ "url", "url" },
	};
	_cleanup_json_ json_t *s = NULL;
	int r = get(c, a->pos[0], &s, e);

	if (r < 0)
		return r;
	if (c->json)
		return out_json(s, e);
	out_field("id", json_text(s, "id"));
	out_field("identifier", json_text(s, "identifier"));
	out_field("name", json_text(s, "name"));
	fields_state(s);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		out_field(fields[i].title, json_text(s, fields[i].key));
	field_list("tags", json_object_get(s, "tags"));
	field_limits(s);
	out_field("project", json_text(json_object_get(s, "project"), "name"));
	return 0;
}

int cmd_status(struct cli *c, const struct args *a, struct err *e)
{
	static const char *const keys[] = { "id",          "identifier", "status", "setup_status",
					    "exit_reason", "apps",       "stop_at" };
	_cleanup_json_ json_t *s = NULL, *part = json_object();
	int r = get(c, a->pos[0], &s, e);

	if (r < 0)
		return r;
	if (!c->json) {
		fields_state(s);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		json_t *v = json_object_get(s, keys[i]);

		if (v && json_object_set(part, keys[i], v) < 0)
			return err_set(e, ENOMEM, "out of memory");
	}
	return out_json(part, e);
}
