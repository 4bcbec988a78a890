/* What is to be run, as the API is told: from options and words. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "exec.h"
#include "fields.h"

static const struct field exec_fields[] = {
	{ "user", "user", FIELD_TEXT },
	{ "cwd", "cwd", FIELD_TEXT },
	{ "timeout", "timeout", FIELD_NUMBER },
	{ "runtime", "runtime", FIELD_UPPER },
	{ 0 },
};

static int put_env(const struct args *a, json_t *body, struct err *e)
{
	json_t *env = json_object();
	const char *value;
	int r = 0;

	for (size_t at = 0; !r && (value = args_next(a, "env", &at));) {
		_cleanup_free_ char *key = strndup(value, strcspn(value, "="));

		if (!key || !env)
			r = err_set(e, ENOMEM, "out of memory");
		else if (!*key || !strchr(value, '='))
			r = usage(e, "--env: '%s' is not KEY=VALUE", value);
		else if (!utf8_valid(value, strlen(value)))
			r = usage(e, "--env: '%s' is not UTF-8", value);
		else if (json_object_set_new(env, key, json_string(value + strlen(key) + 1)) < 0)
			r = err_set(e, ENOMEM, "out of memory");
	}
	if (!r && json_object_size(env) && json_object_set(body, "env", env) < 0)
		r = err_set(e, ENOMEM, "out of memory");
	json_decref(env);
	return r;
}

static int __attribute__((format(printf, 2, 3))) tell_large(struct err *e, const char *fmt, ...)
{
	char size[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(size, sizeof(size), fmt, ap);
	va_end(ap);
	err_reason(e, EFBIG, "too_large",
		   "standard input has %s and a request holds %d bytes of text with all else", size,
		   BODY_MAX);
	return err_hint(e, HINT_ESCAPES);
}

int exec_put_stdin(json_t *body, struct err *e)
{
	_cleanup_free_ char *data = malloc(BODY_MAX + 1);
	json_t *text;
	size_t size;
	ssize_t n;

	if (!data)
		return err_set(e, ENOMEM, "out of memory");
	n = read_full(STDIN_FILENO, data, BODY_MAX + 1);
	if (n < 0)
		return err_set(e, (int)n, "read standard input: %s", strerror((int)-n));
	if (n > BODY_MAX)
		return tell_large(e, "more than %d bytes", BODY_MAX);
	if (!utf8_valid(data, (size_t)n))
		return err_reason(
			e, EILSEQ, "bad_request",
			"standard input is not UTF-8 text, which is all a request can hold");
	text = json_stringn(data, (size_t)n);
	size = json_dumpb(text, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
	if (json_object_set_new(body, "stdin", text) < 0)
		return err_set(e, ENOMEM, "out of memory");
	if (size > BODY_MAX)
		return tell_large(e, "%zd bytes, which take %zu in the request,", n, size);
	return 0;
}

static int put_args(const struct args *a, json_t *body, struct err *e)
{
	json_t *list = json_array();

	if (json_object_set_new(body, "args", list) < 0)
		return err_set(e, ENOMEM, "out of memory");
	for (int i = 1; i < a->n_pos; i++) {
		if (json_array_append_new(list, json_string(a->pos[i])) < 0)
			return usage(e, "argument %d is not UTF-8", i);
	}
	return 0;
}

/* Words are a program and its arguments; a script is one string for an interpreter. */
static int put_command(const struct args *a, const char *form, json_t *body, struct err *e)
{
	const char *script = args_get(a, "command");
	bool one = args_has(a, "shell") || args_has(a, "runtime");
	int words = a->n_pos - 1;

	if (script && words)
		return usage(e, "both --command and COMMAND are given");
	if (!script && !words)
		return usage(e, "which command? %s -- COMMAND [ARG...], or -c SCRIPT", form);
	if (script)
		return api_put(body, "command", script, e);
	if (one && words > 1)
		return usage(e, "--%s takes one string; quote it",
			     args_has(a, "shell") ? "shell" : "runtime");
	if (one)
		return api_put(body, "command", a->pos[1], e);
	if (words == 1 && !a->dashes && strpbrk(a->pos[1], " \t\n|&;<>$")) {
		usage(e, "'%s' is one word, and no shell reads it", a->pos[1]);
		return err_hint(
			e, "for the shell: -c '…' or --shell; for a program of that name: -- '…'");
	}
	return put_args(a, body, e);
}

int exec_body(const struct args *a, const char *form, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *body = json_object();
	int r = fields_fill(a, exec_fields, body, e);

	if (r < 0 || (r = put_command(a, form, body, e)) < 0 || (r = put_env(a, body, e)) < 0)
		return r;
	*ret = take_ptr(body);
	return 0;
}
