#include "api/request.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"

#include "access/limits.h"
#include "api/files_path.h"
#include "api/routes.h"
#include "sandbox/identifier.h"

int request_init(struct request *r, const char *method, const char *target)
{
	*r = (struct request){ .method = method, .client_fd = -1 };
	buf_init(&r->body, BODY_MAX);
	r->target = strdup(target);
	return r->target && id_make("rq", r->id) == 0 ? 0 : -ENOMEM;
}

void request_release(struct request *r)
{
	free(r->target);
	free(r->path);
	free(r->authorization);
	free(r->content_type);
	free(r->idempotency_key);
	free(r->accept);
	free(r->range);
	free(r->if_range);
	free(r->rest);
	for (unsigned i = 0; i < r->headers_count; i++)
		free(r->headers[i].value);
	free(r->edge);
	buf_release(&r->body);
	json_decref(r->body_json);
	json_decref(r->query_json);
	json_decref(r->answer);
	free(r->in);
	free(r->in_query);
	free(r->written);
	if (r->stream) {
		r->stream->free(r->stream->arg);
		free(r->stream);
	}
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Once, in place. */
static int percent_decode(char *s, bool plus)
{
	char *out = s;

	for (; *s; s++) {
		if (*s == '%') {
			int high = hex(s[1]), low = high < 0 ? -1 : hex(s[2]);

			if (low < 0 || !(high | low))
				return -EINVAL;
			*out++ = (char)(high << 4 | low);
			s += 2;
		} else {
			*out++ = plus && *s == '+' ? ' ' : *s;
		}
	}
	*out = '\0';
	return 0;
}

static int bad_encoding(struct err *e, const char *field)
{
	err_reason(e, EINVAL, "bad_encoding",
		   "the %s has a '%%' without two hexadecimal digits, or a NUL", field);
	return err_field(e, "%s", field);
}

static int parse_query(struct request *r, char *text, struct err *e)
{
	while (text && *text) {
		char *next = strchr(text, '&'), *value;

		if (next)
			*next++ = '\0';
		value = strchr(text, '=');
		if (value)
			*value++ = '\0';
		else
			value = text + strlen(text);
		if (percent_decode(text, true) < 0 || percent_decode(value, true) < 0 ||
		    !utf8_valid(text, strlen(text)) || !utf8_valid(value, strlen(value)))
			return bad_encoding(e, "query");
		if (r->query_count == QUERY_MAX)
			return err_reason(e, EINVAL, "bad_query", "the query has too many parts");
		if (request_query(r, text)) {
			err_reason(e, EINVAL, "duplicate_field", "'%s' is given twice", text);
			return err_field(e, "%s", text);
		}
		r->query[r->query_count].name = text;
		r->query[r->query_count++].value = value;
		text = next;
	}
	return 0;
}

int request_parse(struct request *r, struct err *e)
{
	char *query = strchr(r->target, '?'), *at = r->target;

	if (query)
		*query++ = '\0';
	r->path = strdup(r->target);
	if (!r->path)
		return err_set(e, ENOMEM, "out of memory");
	if (*at != '/') {
		err_reason(e, EINVAL, "bad_path", "the path does not start with '/'");
		return err_field(e, "path");
	}
	while (at) {
		char *segment = at + 1;

		at = strchr(segment, '/');
		if (at)
			*at = '\0';
		if (r->segments_count == SEGMENTS_MAX) {
			r->segments_more = true;
			break;
		}
		if (percent_decode(segment, false) < 0)
			return bad_encoding(e, "path");
		r->segments[r->segments_count++] = segment;
	}
	return parse_query(r, query, e);
}

int request_rest(struct request *r, unsigned i, struct err *e)
{
	const char *raw = "";
	char *at;

	/* decoding shortens a segment where it stands, so it starts where it came */
	if (i < r->segments_count)
		raw = r->path + (r->segments[i] - r->target);
	free(r->rest);
	r->rest = at = malloc(strlen(raw) + 2);
	if (!at)
		return err_set(e, ENOMEM, "out of memory");
	*at = '/';
	memcpy(at + 1, raw, strlen(raw) + 1);
	if (percent_decode(at, false) < 0)
		return bad_encoding(e, "path");
	return file_path_tidy(at, e) < 0 ? err_field(e, "path") : 0;
}

int request_header(struct request *r, const char *name, struct err *e, const char *fmt, ...)
{
	char *value;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&value, fmt, ap);
	va_end(ap);
	if (n < 0 || r->headers_count == HEADERS_MAX)
		return err_set(e, ENOMEM, "out of memory");
	r->headers[r->headers_count].name = name;
	r->headers[r->headers_count++].value = value;
	return 0;
}

const char *request_query(const struct request *r, const char *name)
{
	for (unsigned i = 0; i < r->query_count; i++) {
		if (str_eq(r->query[i].name, name))
			return r->query[i].value;
	}
	return NULL;
}

static int project_of(struct request *r, struct tx *t, struct project_row *ret, struct err *e)
{
	const char *name = request_query(r, "project_name");
	const char *field = name ? "project_name" : "project";
	int code;

	if (!name)
		name = request_query(r, "project");
	if (!name && *r->token.project)
		return project_by_id(t, r->token.project, ret, e);
	code = project_by_name(t, r->token.workspace, name ? name : "default", ret, e);
	if (!code && *r->token.project && !str_eq(r->token.project, ret->id))
		code = err_reason(e, ENOENT, "project_not_found", "there is no project '%s'", name);
	return code < 0 && name ? err_field(e, "%s", field) : code;
}

int request_project(struct request *r, struct project_row *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int code = tx_begin(&t, STORE_READ, e);

	return code < 0 ? code : project_of(r, &t, ret, e);
}

/* The sandbox's part of the connection limits, once a request. */
static int enter_limit(struct request *r, const char *id, struct err *e)
{
	int code;

	if (r->counted_sandbox || r->route->control)
		return 0;
	code = limit_enter(id, dispatch_config()->connections_sandbox, e);
	if (code < 0)
		return code;
	str_copy(r->sandbox_id, sizeof(r->sandbox_id), id);
	r->counted_sandbox = true;
	return 0;
}

static int not_found(const char *what, struct err *e)
{
	return err_reason(e, ENOENT, "sandbox_not_found", "there is no sandbox '%s'", what);
}

int request_sandbox(struct request *r, struct sandbox_row *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	const char *what = r->params[1];
	struct sandbox_row row = { 0 };
	struct project_row project;
	int code = tx_begin(&t, STORE_READ, e);

	if (code < 0)
		return code;
	if (id_valid(what, "sb")) {
		code = sandbox_by_id(&t, what, &row, e);
		if (!code)
			code = project_by_id(&t, row.project, &project, e);
		if (!code && (!str_eq(project.workspace, r->token.workspace) ||
			      (*r->token.project && !str_eq(r->token.project, project.id))))
			code = not_found(what, e);
	} else {
		code = project_of(r, &t, &project, e);
		if (!code)
			code = sandbox_by_identifier(&t, project.id, what, &row, e);
	}
	if (!code)
		code = enter_limit(r, row.id, e);
	if (code < 0) {
		sandbox_row_release(&row);
		return code;
	}
	*ret = row;
	return 0;
}
