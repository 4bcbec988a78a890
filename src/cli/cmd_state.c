/* start, stop and restart: the same call with another verb. */
#include <unistd.h>

#include "api.h"
#include "each.h"
#include "fields.h"
#include "out.h"

static const struct field grace_fields[] = {
	{ "grace", "grace", FIELD_NUMBER },
	{ 0 },
};

static int change(struct cli *c, const struct args *a, const char *sandbox, const char *verb,
		  struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *s = NULL, *body = json_object();
	int r = fields_fill(a, grace_fields, body, e);

	if (r < 0 || (r = api_path(c, &path, e, "sandboxes", sandbox, verb, NULL)) < 0)
		return r;
	r = api_call(c, "POST", &path, json_object_size(body) ? body : NULL, 0, &s, e);
	if (r < 0)
		return r;
	if (c->json)
		return out_json(s, e);
	out_field(json_text_or(s, "identifier", sandbox), json_text_or(s, "status", "-"));
	return 0;
}

static int start(struct cli *c, const struct args *a, const char *sandbox, struct err *e)
{
	return change(c, a, sandbox, "start", e);
}

static int stop(struct cli *c, const struct args *a, const char *sandbox, struct err *e)
{
	return change(c, a, sandbox, "stop", e);
}

static int restart(struct cli *c, const struct args *a, const char *sandbox, struct err *e)
{
	return change(c, a, sandbox, "restart", e);
}

int cmd_start(struct cli *c, const struct args *a, struct err *e)
{
	return each_arg(c, a, start, e);
}

int cmd_stop(struct cli *c, const struct args *a, struct err *e)
{
	return each_arg(c, a, stop, e);
}

int cmd_restart(struct cli *c, const struct args *a, struct err *e)
{
	return each_arg(c, a, restart, e);
}
