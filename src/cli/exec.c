/* Running a command: with its streams, or as one answer in JSON. */
#include "exec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#include "out.h"
#include "signals.h"
#include "stream.h"
#include "tty.h"

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

int exec_outcome(const json_t *record, const char *sandbox, struct err *e)
{
	const json_t *code = json_object_get(record, "exit_code");
	const json_t *w;
	size_t i;

	json_array_foreach(json_object_get(record, "warnings"), i, w)
		out_note("%s", json_is_string(w) ? json_string_value(w)
						 : json_text_or(w, "message", "warning"));
	tell_cut(record, "stdout");
	tell_cut(record, "stderr");
	if (json_is_true(json_object_get(record, "timed_out")))
		out_note("the command was ended by its time limit of %g s; --timeout sets another",
			 json_number_value(json_object_get(record, "timeout")));
	else if (str_eq(json_text_or(record, "reason", ""), "KILLED"))
		out_note("the command was terminated, or its sandbox stopped");
	if (json_is_true(json_object_get(record, "oom_killed")))
		out_note("the sandbox ran out of memory");
	if (!json_is_integer(code)) {
		err_reason(e, EIO, "outcome_unknown", "nobody knows how the command ended");
		return err_hint(e, "skerry command status %s %s", sandbox,
				json_text_or(record, "id", "ID"));
	}
	return (int)(json_integer_value(code) & 0xff);
}

int exec_check(struct cli *c, const struct args *a, struct err *e)
{
	if (!args_has(a, "tty"))
		return 0;
	if (c->json)
		return usage(e, "a terminal (-t) has no JSON; leave --format json out");
	if (args_has(a, "detach"))
		return usage(e, "a command in the background (-d) has no terminal (-t)");
	if (args_has(a, "stdin") && !isatty(STDIN_FILENO)) {
		usage(e, "standard input is not a terminal");
		return err_hint(e, "leave -t out: what is piped in is passed on as it is");
	}
	return 0;
}

static int call_json(struct cli *c, const char *sandbox, const json_t *body, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *answer = NULL;
	int r = signals_hold(c, e);

	if (r < 0 || (r = api_path(c, &path, e, "sandboxes", sandbox, "exec", NULL)) < 0)
		return r;
	r = api_call(c, "POST", &path, body, 0, &answer, e);
	if (r == -EINTR && signals_taken(c)) {
		err_reason(e, EINTR, REASON_INTERRUPTED,
			   "interrupted; if the command had begun, it runs on in '%s'", sandbox);
		return err_hint(e, "see: skerry command list %s", sandbox);
	}
	if (r < 0 || (r = out_json(answer, e)) < 0)
		return r;
	return exec_outcome(answer, sandbox, e);
}

/* Programs there should know what kind of terminal shows what they draw. */
static int put_term(json_t *body)
{
	const char *term = getenv("TERM");
	json_t *env = json_object_get(body, "env");

	if (!term || !*term || !utf8_valid(term, strlen(term)))
		return 0;
	if (!env) {
		if (json_object_set_new(body, "env", json_object()) < 0)
			return -ENOMEM;
		env = json_object_get(body, "env");
	}
	return json_object_get(env, "TERM") ? 0
					    : json_object_set_new(env, "TERM", json_string(term));
}

static int put_terminal(json_t *body)
{
	unsigned cols, rows;

	if (json_object_set_new(body, "tty", json_true()) < 0 || put_term(body) < 0)
		return -ENOMEM;
	if (!tty_size(&cols, &rows))
		return 0;
	if (json_object_set_new(body, "cols", json_integer((json_int_t)cols)) < 0 ||
	    json_object_set_new(body, "rows", json_integer((json_int_t)rows)) < 0)
		return -ENOMEM;
	return 0;
}

/* What a shell pipes or redirects has an end. The socket of a program that started us may have none,
 * and a command that reads it would wait for that. */
static bool input_was_meant(void)
{
	struct stat st;

	return !isatty(STDIN_FILENO) && !(fstat(STDIN_FILENO, &st) == 0 && S_ISSOCK(st.st_mode));
}

static int call_stream(struct cli *c, const struct args *a, const char *sandbox, json_t *body,
		       struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	struct stream_spec spec = {
		.sandbox = sandbox,
		.first = body,
		.tty = args_has(a, "tty"),
		.input = args_has(a, "stdin") || input_was_meant(),
	};
	int r = api_path(c, &path, e, "sandboxes", sandbox, "exec", NULL);

	if (r < 0)
		return r;
	spec.path = buf_str(&path);
	if ((spec.tty && put_terminal(body) < 0) ||
	    (spec.input && json_object_set_new(body, "stdin_open", json_true()) < 0))
		return err_set(e, ENOMEM, "out of memory");
	r = api_fits(json_dumpb(body, NULL, 0, JSON_COMPACT), e);
	return r < 0 ? r : stream_run(c, &spec, e);
}

int exec_call(struct cli *c, const struct args *a, const char *sandbox, json_t *body, struct err *e)
{
	return c->json ? call_json(c, sandbox, body, e) : call_stream(c, a, sandbox, body, e);
}
