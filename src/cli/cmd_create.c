#include <errno.h>
#include <stdlib.h>

#include "base/str.h"

#include "api.h"
#include "fields.h"
#include "out.h"

static const struct field create_fields[] = {
	{ "name", "name", FIELD_TEXT }, { "identifier", "identifier", FIELD_TEXT },
	{ "image", "os", FIELD_TEXT },  { "os", "os", FIELD_TEXT },
	{ "tag", "tags", FIELD_LIST },  { 0 },
};

static void tell(const json_t *made, const json_t *asked)
{
	const char *identifier = json_text(made, "identifier");

	out_line("%s", json_text_or(made, "id", "-"));
	if (identifier && !json_text(asked, "identifier") &&
	    !str_eq(identifier, json_text(asked, "name")))
		out_note("its identifier is '%s'", identifier);
	if (str_eq(json_text(made, "status"), "FAILED"))
		out_note("it could not be started: %s",
			 json_text_or(json_object_get(made, "exit_reason"), "text",
				      "see: skerry get"));
	if (str_eq(json_text(made, "setup_status"), "FAILED"))
		out_note("its set-up failed; see boot_logs in: skerry get --format json");
}

int cmd_create(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *body = json_object(), *made = NULL;
	int r = fields_fill(a, create_fields, body, e);

	if (r < 0 || (r = fields_fill(a, shape_fields, body, e)) < 0)
		return r;
	if (a->n_pos && args_has(a, "name"))
		return usage(e, "the name is given twice");
	if (a->n_pos && (r = api_put(body, "name", a->pos[0], e)) < 0)
		return r;
	if (!json_object_get(body, "name"))
		return usage(e, "which name? skerry create NAME");
	r = api_path(c, &path, e, "sandboxes", NULL);
	if (r < 0)
		return r;
	api_query(&path, "wait", args_get(a, "wait"));
	api_query(&path, "wait_timeout", args_get(a, "wait-timeout"));
	r = api_call(c, "POST", &path, body, 0, &made, e);
	if (r < 0)
		return r;
	if (c->json)
		return out_json(made, e);
	tell(made, body);
	return 0;
}
