/*
 * From a request to its answer, in the order of what it costs: path, token, route, scope, limits,
 * body, idempotency, handler.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/banned.h"
#include "base/log.h"

#include "access/limits.h"
#include "access/token.h"
#include "api/errors.h"
#include "api/once.h"
#include "api/routes.h"

static const struct config *config;

static const struct field common_query[] = {
	{ "project", FIELD_KIND_STR, .max = 128 },
	{ "project_name", FIELD_KIND_STR, .max = 128 },
	{ 0 },
};

void dispatch_init(const struct config *c)
{
	config = c;
}

const struct config *dispatch_config(void)
{
	return config;
}

static bool is_public(const struct request *r)
{
	static const char *const names[] = { "healthz", "version", "openapi.json" };

	for (unsigned i = 0; i < ARRAY_SIZE(names) && r->segments_count == 1; i++) {
		if (str_eq(r->segments[0], names[i]))
			return true;
	}
	return false;
}

static int authenticate(struct request *r, struct err *e)
{
	int code = token_check(r->authorization, &r->token, e);

	r->actor.request = r->id;
	r->actor.name = "anonymous";
	if (code < 0)
		return is_public(r) ? 0 : code;
	r->authenticated = true;
	snprintf(r->actor_name, sizeof(r->actor_name), "token:%s", r->token.name);
	r->actor.name = r->actor_name;
	return 0;
}

static int check_scope(const struct request *r, struct err *e)
{
	static const struct {
		unsigned scope;
		const char *name;
	} names[] = { { SCOPE_READ, "SANDBOX_READ" },
		      { SCOPE_WRITE, "SANDBOX_WRITE" },
		      { SCOPE_MANAGE, "SANDBOX_MANAGE" } };
	unsigned want = r->route->scope;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (names[i].scope == want && !(r->token.scopes & want))
			return err_reason(e, EACCES, "scope", "this needs a token with %s",
					  names[i].name);
	}
	/* the first parameter of everything that needs a token is the workspace */
	if (want && r->params[0] && !str_eq(r->params[0], r->token.workspace))
		return err_reason(e, ENOENT, "workspace_not_found", "there is no workspace '%s'",
				  r->params[0]);
	return 0;
}

static int enter_limits(struct request *r, struct err *e)
{
	int code;

	/* whoever has too much under way must be able to end some of it */
	if (!r->authenticated || r->route->control)
		return 0;
	code = limit_enter(r->token.id, config->connections_token, e);
	if (code < 0)
		return code;
	r->counted_token = true;
	return 0;
}

void dispatch_end(struct request *r)
{
	if (r->counted_token)
		limit_leave(r->token.id);
	if (r->counted_sandbox)
		limit_leave(r->sandbox_id);
	r->counted_token = r->counted_sandbox = false;
}

static int decode_query(struct request *r, struct err *e)
{
	json_t *own = json_object();

	r->query_json = own;
	for (unsigned i = 0; i < r->query_count; i++) {
		const char *name = r->query[i].name;
		const struct field *f = field_find(r->route->query, name);

		if (!f && field_find(common_query, name))
			continue;
		if (!f) {
			err_reason(e, EINVAL, "unknown_field",
				   "'%s' is not a parameter of this request", name);
			return err_field(e, "%s", name);
		}
		if (json_object_set_new(own, name, field_from_text(f, r->query[i].value)) < 0)
			return err_set(e, ENOMEM, "out of memory");
	}
	if (!r->route->query)
		return 0;
	r->in_query = calloc(1, r->route->query_size);
	if (!r->in_query)
		return err_set(e, ENOMEM, "out of memory");
	return fields_decode(r->route->query, own, r->in_query, e);
}

int dispatch_head(struct request *r, struct err *e)
{
	int code = request_parse(r, e);

	if (!code)
		code = authenticate(r, e);
	if (!code)
		code = route_find(r, e);
	if (!code)
		code = check_scope(r, e);
	if (!code && !route_available(r->route)) {
		err_reason(e, ENOTSUP, "not_available", "%s: not available yet", r->route->summary);
		code = err_field(e, "%s", r->route->summary);
	}
	if (!code)
		code = enter_limits(r, e);
	if (!code)
		code = decode_query(r, e);
	return code;
}

static int check_type(const struct request *r, struct err *e)
{
	const char *type = r->content_type;

	if (!type || !r->body.len)
		return 0;
	if (!strncasecmp(type, "application/json", 16) && (!type[16] || strchr("; ", type[16])))
		return 0;
	err_reason(e, EMEDIUMTYPE, "unsupported_media_type", "the body must be application/json");
	err_hint(e, "send the header 'Content-Type: application/json' (curl -d sends another)");
	return err_field(e, "Content-Type");
}

static int decode_body(struct request *r, struct err *e)
{
	int code = check_type(r, e);

	if (code < 0)
		return code;
	if (r->body.len)
		code = json_parse_object(r->body.data, r->body.len, &r->body_json, e);
	else
		r->body_json = json_object();
	if (code < 0)
		return code;
	if (!r->route->fields) {
		if (!json_object_size(r->body_json))
			return 0;
		const char *first = json_object_iter_key(json_object_iter(r->body_json));

		err_reason(e, EINVAL, "unknown_field", "this request takes no body");
		return err_field(e, "%s", *first ? first : "body");
	}
	r->in = calloc(1, r->route->fields_size);
	if (!r->in)
		return err_set(e, ENOMEM, "out of memory");
	return fields_decode(r->route->fields, r->body_json, r->in, e);
}

int dispatch_run(struct request *r, struct err *e)
{
	int code = decode_body(r, e);

	if (code < 0)
		return code;
	if (r->route->once && r->idempotency_key)
		return once_run(r, e);
	return r->route->handler(r, e);
}

void dispatch_answer(struct request *r, const struct err *e)
{
	json_t *v = NULL;

	if (e->code) {
		r->status = error_status(e);
		r->retry_after = error_retry_after(e);
		v = error_json(e);
		if (r->status == 500)
			log_error("request %s: %s", r->id, e->text);
	} else {
		if (!r->status)
			r->status = r->route->status;
		if (r->stream || r->written || r->status == 204)
			return;
		if (!r->text)
			v = json_incref(r->answer);
	}
	free(r->written);
	r->written = r->text && !e->code ? strdup(r->text) : v ? json_dumps(v, JSON_ANSWER) : NULL;
	json_decref(v);
	if (!r->written) {
		r->status = 503;
		r->written = strdup("{\"errors\":[{\"message\":\"out of memory\","
				    "\"code\":\"out_of_memory\"}]}");
	}
	r->written_len = r->written ? strlen(r->written) : 0;
}
