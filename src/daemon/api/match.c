/* From a path to a row of the table. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"

#include "api/routes.h"
#include "sandbox/identifier.h"

/* What may stand for each parameter; a text that may not is a 400 naming it. */
static int handle_check(const char *s, struct err *e)
{
	return id_valid(s, NULL) ? 0 : identifier_check(s, e);
}

static int word_check(const char *s, struct err *e)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");

	if (*s && !s[n] && n < NAME_SIZE && strcmp(s, ".") != 0 && strcmp(s, "..") != 0)
		return 0;
	return err_reason(e, EINVAL, "invalid_field",
			  "a workspace's name has characters of A-Z a-z 0-9 _ . -");
}

static int command_check(const char *s, struct err *e)
{
	return id_valid(s, "cm") ? 0
				 : err_reason(e, EINVAL, "invalid_field",
					      "a command's id is 'cm' and %d characters of a-z2-7",
					      ID_RANDOM);
}

/* Without a check: it takes the rest of the path, which is the absolute path of a file. */
static const struct {
	const char *name;
	int (*check)(const char *s, struct err *e);
} kinds[] = {
	{ "{path}", NULL },
	{ "{workspace}", word_check },
	{ "{sandbox_id}", handle_check },
	{ "{command_id}", command_check },
	{ "{image}", image_name_check },
};

static size_t piece(const char *pattern)
{
	return strcspn(pattern, "/");
}

static bool takes_rest(const char *pattern)
{
	return !strncmp(pattern, "{path}", 6);
}

/* Matches, noting the parameters' values in `params` and their names in `names`; `*ret_rest` is
 * where a rest starts, else -1. */
static bool matches(const struct request *r, const char *pattern, const char **params,
		    const char **names, int *ret_rest)
{
	unsigned i = 0, n = 0;

	for (const char *p = pattern; *p == '/';) {
		size_t len = piece(++p);

		if (len == 2 && !memcmp(p, "**", 2))
			return true;
		if (takes_rest(p)) {
			*ret_rest = (int)i;
			names[n] = p;
			return true;
		}
		if (i == r->segments_count)
			return false;
		if (*p == '{') {
			params[n] = r->segments[i];
			names[n++] = p;
		} else if (strlen(r->segments[i]) != len || memcmp(p, r->segments[i], len) != 0) {
			return false;
		}
		i++;
		p += len;
	}
	return i == r->segments_count && !r->segments_more;
}

static int check_params(const struct request *r, const char *const *names, struct err *e)
{
	for (unsigned i = 0; i < PARAMS_MAX && names[i]; i++) {
		for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
			size_t len = strlen(kinds[k].name);

			if (!kinds[k].check || strncmp(kinds[k].name, names[i], len) != 0)
				continue;
			if (kinds[k].check(r->params[i], e) < 0)
				return err_field(e, "%.*s", (int)len - 2, kinds[k].name + 1);
		}
	}
	return 0;
}

static int take_params(struct request *r, const char *const *names, int rest, struct err *e)
{
	int code = check_params(r, names, e);

	if (code < 0 || rest < 0)
		return code;
	return request_rest(r, (unsigned)rest, e);
}

static int no_route(struct request *r, struct err *e)
{
	for (unsigned i = 0; i < r->segments_count; i++) {
		if (str_eq(r->segments[i], ".") || str_eq(r->segments[i], "..") ||
		    strchr(r->segments[i], '/')) {
			err_reason(e, EINVAL, "bad_path",
				   "the path has a part that is '.', '..' or contains '/'");
			return err_field(e, "path");
		}
	}
	if (r->segments_more) {
		err_reason(e, EINVAL, "bad_path", "the path has too many parts");
		return err_field(e, "path");
	}
	err_reason(e, ENOENT, "path_not_found", "there is nothing at '%s'", r->path);
	return err_hint(e, "/openapi.json lists the paths");
}

static bool method_fits(const char *method, const char *asked)
{
	return str_eq(method, "*") || str_eq(method, asked) ||
	       (str_eq(method, "GET") && str_eq(asked, "HEAD"));
}

bool route_available(const struct route *t)
{
	return t->handler || t->upload || t->socket;
}

int route_find(struct request *r, struct err *e)
{
	static const char *const methods[] = { "GET", "POST", "PATCH", "PUT", "DELETE" };
	static _Thread_local char allow[64];
	const char *names[PARAMS_MAX + 1], *params[PARAMS_MAX + 1];
	bool any = false;
	int rest = -1;

	allow[0] = '\0';
	for (const struct route *t = routes; t->method; t++) {
		memset(names, 0, sizeof(names));
		memset(params, 0, sizeof(params));
		rest = -1;
		if (!matches(r, t->pattern, params, names, &rest))
			continue;
		memcpy(r->params, params, sizeof(r->params));
		if (method_fits(t->method, r->method)) {
			r->route = t;
			return take_params(r, names, rest, e);
		}
		any = true;
		for (unsigned i = 0; i < ARRAY_SIZE(methods); i++) {
			size_t n = strlen(allow);

			if (str_eq(methods[i], t->method) && !strstr(allow, methods[i]))
				snprintf(allow + n, sizeof(allow) - n, "%s%s", n ? ", " : "",
					 methods[i]);
		}
	}
	if (!any)
		return no_route(r, e);
	r->allow = allow;
	return err_reason(e, ENOTBLK, "method_not_allowed", "%s is not allowed here, but %s",
			  r->method, allow);
}
