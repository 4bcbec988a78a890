#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "exec.h"
#include "fields.h"
#include "out.h"
#include "signals.h"

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

/* Reads our standard input to its end: the request carries it as one text. */
static int put_stdin(json_t *body, struct err *e)
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

/* `-it`, as other tools spell a terminal, is here a time limit without a number. */
static int check_timeout(const struct args *a, struct err *e)
{
	const char *text = args_get(a, "timeout");

	if (!text || isdigit((unsigned char)*text) || *text == '.')
		return 0;
	usage(e, "--timeout: '%s' is not a number", text);
	return err_hint(e, "-t is --timeout SECONDS; terminals (-it) are not there yet");
}

int exec_body(const struct args *a, const char *form, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *body = json_object();
	int r = check_timeout(a, e);

	if (r < 0 || (r = fields_fill(a, exec_fields, body, e)) < 0 ||
	    (r = put_command(a, form, body, e)) < 0 || (r = put_env(a, body, e)) < 0)
		return r;
	if (args_has(a, "stdin") && (r = put_stdin(body, e)) < 0)
		return r;
	*ret = take_ptr(body);
	return 0;
}

/* The stream's bytes: from base64 where the text could not hold them. */
static int write_stream(const json_t *answer, const char *name, int fd, struct err *e)
{
	const json_t *text = json_object_get(answer, name);
	_cleanup_buf_ struct buf bytes = BUF_INIT(ANSWER_MAX);
	const char *encoded;
	char key[32];
	int r;

	snprintf(key, sizeof(key), "%s_base64", name);
	encoded = json_text(answer, key);
	if (!encoded)
		return json_is_string(text)
			       ? out_bytes(fd, json_string_value(text), json_string_length(text), e)
			       : 0;
	r = base64_decode(&bytes, encoded, strlen(encoded));
	if (r < 0)
		return err_reason(e, EPROTO, REASON_ANSWER, "the answer's %s cannot be decoded",
				  key);
	return out_bytes(fd, buf_str(&bytes), bytes.len, e);
}

static void tell_cut(const json_t *answer, const char *name)
{
	char cut[32], total[32];

	snprintf(cut, sizeof(cut), "%s_truncated", name);
	snprintf(total, sizeof(total), "%s_bytes", name);
	if (!json_is_true(json_object_get(answer, cut)))
		return;
	out_note("%s was cut: it had %lld bytes, of which the first and the last MiB are kept "
		 "and what lies between is gone",
		 name, (long long)json_int_or(answer, total, -1));
}

static int outcome(const json_t *answer, const char *sandbox, struct err *e)
{
	const json_t *code = json_object_get(answer, "exit_code");
	const json_t *w;
	size_t i;

	json_array_foreach(json_object_get(answer, "warnings"), i, w)
		out_note("%s", json_is_string(w) ? json_string_value(w)
						 : json_text_or(w, "message", "warning"));
	tell_cut(answer, "stdout");
	tell_cut(answer, "stderr");
	if (json_is_true(json_object_get(answer, "timed_out")))
		out_note("the command was ended by its time limit of %g s (--timeout)",
			 json_number_value(json_object_get(answer, "timeout")));
	if (json_is_true(json_object_get(answer, "oom_killed")))
		out_note("the sandbox ran out of memory");
	if (!json_is_integer(code)) {
		err_reason(e, EIO, "outcome_unknown", "nobody knows how the command ended");
		return err_hint(e, "skerry command status %s %s", sandbox,
				json_text_or(answer, "id", "ID"));
	}
	return (int)(json_integer_value(code) & 0xff);
}

int exec_call(struct cli *c, const char *sandbox, const json_t *body, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *answer = NULL;
	int r = api_path(c, &path, e, "sandboxes", sandbox, "exec", NULL);

	if (r < 0 || (r = api_call(c, "POST", &path, body, 0, &answer, e)) < 0)
		return r;
	if (c->json) {
		r = out_json(answer, e);
	} else {
		r = write_stream(answer, "stdout", STDOUT_FILENO, e);
		if (!r)
			r = write_stream(answer, "stderr", STDERR_FILENO, e);
	}
	return r < 0 ? r : outcome(answer, sandbox, e);
}

static int detach(struct cli *c, const char *sandbox, const json_t *body, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *record = NULL;
	int r = api_path(c, &path, e, "sandboxes", sandbox, "commands", NULL);

	if (r < 0 || (r = api_call(c, "POST", &path, body, CALL_TIMEOUT_MS, &record, e)) < 0)
		return r;
	if (c->json)
		return out_json(record, e);
	out_line("%s", json_text_or(record, "id", "-"));
	return 0;
}

int cmd_exec(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_json_ json_t *body = NULL;
	int r = exec_body(a, "skerry exec SANDBOX", &body, e);

	if (r < 0)
		return r;
	if (args_has(a, "detach"))
		return detach(c, a->pos[0], body, e);
	r = signals_hold(c, e);
	if (r < 0)
		return r;
	r = exec_call(c, a->pos[0], body, e);
	if (r == -EINTR && signals_taken(c)) {
		err_reason(e, EINTR, REASON_INTERRUPTED,
			   "interrupted; if the command had begun, it runs on in '%s'", a->pos[0]);
		return err_hint(e, "see: skerry command list %s", a->pos[0]);
	}
	return r;
}
