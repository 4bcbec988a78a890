#include "api.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "hints.h"

void api_encode(struct buf *out, const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-._~";

	for (; *text; text++) {
		if (strchr(plain, *text))
			buf_addc(out, *text);
		else
			buf_addf(out, "%%%02X", (unsigned char)*text);
	}
}

void api_query(struct buf *path, const char *key, const char *value)
{
	if (!value)
		return;
	buf_addc(path, strchr(buf_str(path), '?') ? '&' : '?');
	api_encode(path, key);
	buf_addc(path, '=');
	api_encode(path, value);
}

static int add_part(struct buf *path, const char *part, struct err *e)
{
	if (!*part || str_eq(part, ".") || str_eq(part, ".."))
		return usage(e, "'%s' cannot be a name", part);
	buf_addc(path, '/');
	api_encode(path, part);
	return 0;
}

int api_path(struct cli *c, struct buf *path, struct err *e, ...)
{
	const char *part = c->conf.workspace.text;
	va_list ap;
	int r = 0;

	buf_clear(path);
	buf_adds(path, "/workspaces");
	va_start(ap, e);
	for (; part && !r; part = va_arg(ap, const char *))
		r = add_part(path, part, e);
	va_end(ap);
	api_query(path, "project_name", c->conf.project.text);
	return r;
}

static const struct {
	int status;
	int code;
	const char *reason; /* where the API gave no word */
} statuses[] = {
	{ 400, EINVAL, "bad_request" },       { 401, EACCES, "unauthorized" },
	{ 403, EPERM, "forbidden" },          { 404, ENOENT, "not_found" },
	{ 409, EBUSY, "conflict" },           { 413, EFBIG, "too_large" },
	{ 415, EINVAL, "unsupported_type" },  { 422, EINVAL, "unprocessable" },
	{ 429, EAGAIN, "too_many_requests" }, { 502, EIO, "bad_gateway" },
	{ 503, EAGAIN, "unavailable" },       { 507, ENOSPC, "disk_full" },
	{ 0, EIO, "server_error" },
};

int api_fault(struct cli *c, int status, const char *path, const json_t *error, struct err *e)
{
	const char *field = json_text(error, "field");
	size_t i = 0;

	while (statuses[i].status && statuses[i].status != status)
		i++;
	snprintf(c->reason, sizeof(c->reason), "%s",
		 json_text_or(error, "code", statuses[i].reason));
	err_reason(e, statuses[i].code, c->reason, "%s",
		   json_text_or(error, "message", "the API refused"));
	if (field)
		err_field(e, "%s", field);
	hint_answer(e, status, path, json_text(error, "hint"));
	return -e->code;
}

/* The API's error, or what can be said about an answer that is not from it. */
int api_refusal(struct cli *c, const struct request *r, const struct answer *a, struct err *e)
{
	_cleanup_json_ json_t *body =
		json_loadb(buf_str(&a->body), a->body.len, JSON_ALLOW_NUL, NULL);
	const json_t *first = json_array_get(json_object_get(body, "errors"), 0);

	api_fault(c, a->status, r->path, first, e);
	if (!json_text(first, "message"))
		snprintf(e->text, sizeof(e->text), "%s %.*s answered with status %d", r->method,
			 (int)strcspn(r->path, "?"), r->path, a->status);
	if (!*e->hint && a->status >= 500 && *a->request_id)
		err_hint(e, "the log of skerryd has it under request %s", a->request_id);
	return -e->code;
}

int api_send(struct cli *c, const struct request *r, struct answer *ret, struct err *e)
{
	int n = c->client->send(c->client, r, ret, e);

	if (n < 0)
		return n;
	if (ret->status < 200 || ret->status > 299)
		return api_refusal(c, r, ret, e);
	return 0;
}

int api_fits(size_t len, struct err *e)
{
	if (len <= BODY_MAX)
		return 0;
	err_reason(e, EFBIG, "too_large",
		   "what was given takes %zu bytes in the request, %d are allowed", len, BODY_MAX);
	return err_hint(e, HINT_ESCAPES);
}

int api_call(struct cli *c, const char *method, const struct buf *path, const json_t *body,
	     unsigned timeout_ms, json_t **ret, struct err *e)
{
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	_cleanup_free_ char *text = NULL;
	struct request r = { .method = method, .path = buf_str(path), .timeout_ms = timeout_ms };
	json_error_t je;
	int n;

	if (path->failed)
		return err_set(e, path->failed, "a name is too long");
	if (body) {
		text = json_dumps(body, JSON_COMPACT);
		if (!text)
			return err_set(e, ENOMEM, "out of memory");
		r.type = "application/json";
		r.body = text;
		r.body_len = strlen(text);
		if (api_fits(r.body_len, e) < 0)
			return -e->code;
	}
	n = api_send(c, &r, &answer, e);
	if (n < 0 || !ret)
		return n;
	if (!answer.body.len) {
		*ret = NULL;
		return 0;
	}
	*ret = json_loadb(answer.body.data, answer.body.len, JSON_ALLOW_NUL, &je);
	if (!*ret) {
		err_reason(e, EPROTO, REASON_ANSWER, "the answer is not JSON: %s", je.text);
		return err_hint(e, "does the URL name a Skerry API? see: skerry config");
	}
	return 0;
}

int api_put(json_t *object, const char *key, const char *value, struct err *e)
{
	json_t *text;

	if (!utf8_valid(value, strlen(value)))
		return usage(e, "%s: the value is not UTF-8", key);
	text = json_string(value);
	return json_object_set_new(object, key, text) < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
}
