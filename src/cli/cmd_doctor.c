#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "doctor.h"
#include "open.h"
#include "out.h"

enum { ASK_MS = 5000 };

static const char *const verdicts[] = {
	[CHECK_OK] = "ok",
	[CHECK_WARN] = "warn",
	[CHECK_FAIL] = "fail",
};

void finding(struct findings *f, enum verdict v, const char *name, const char *hint,
	     const char *fmt, ...)
{
	char text[512];
	json_t *check;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	check = json_pack("{s:s, s:s, s:s}", "name", name, "status", verdicts[v], "text", text);
	if (check && v != CHECK_OK && hint && *hint)
		json_object_set_new(check, "hint", json_string(hint));
	json_array_append_new(f->checks, check);
	f->failed += v == CHECK_FAIL;
}

static void finding_error(struct findings *f, const char *name, const struct err *e)
{
	finding(f, CHECK_FAIL, name, e->hint, "%s", e->text);
}

static void check_config(struct findings *f, const struct conf *c)
{
	if (!c->token.text)
		finding(f, CHECK_FAIL, "configuration",
			"make up writes one; or: skerry config set token -",
			"no token, neither in '%s' nor in SKERRY_TOKEN", c->path);
	else
		finding(f, CHECK_OK, "configuration", NULL, "API at %s (%s), token from the %s",
			c->url.text, conf_source_name(c->url.source),
			conf_source_name(c->token.source));
}

/* False where nothing answers, so that asking further is no use. */
static bool check_version(struct cli *c, struct findings *f)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *v = NULL;
	struct err e = ERR_INIT;
	const char *theirs;

	buf_adds(&path, "/version");
	if (api_call(c, "GET", &path, NULL, ASK_MS, &v, &e) < 0) {
		/* that is where we are: another hint than "try: skerry doctor" is needed */
		if (str_eq(e.reason, REASON_CONNECTION) || e.code == EIO)
			err_hint(&e, "start it: sudo make up; logs: /var/log/skerry or "
				     "journalctl -u 'skerry*'");
		finding_error(f, "API", &e);
		return false;
	}
	theirs = json_text(v, "version");
	if (!theirs)
		finding(f, CHECK_FAIL, "API", "does the URL name a Skerry API? see: skerry config",
			"it answers, but not with a version");
	else if (!str_eq(theirs, SKERRY_VERSION))
		finding(f, CHECK_WARN, "API", "upgrade the older one",
			"it is version %s, this tool is %s", theirs, SKERRY_VERSION);
	else
		finding(f, CHECK_OK, "API", NULL, "answers, version %s", theirs);
	return true;
}

/* The image that sandboxes are made from when none is named. */
static void check_image(struct cli *c, struct findings *f)
{
	static const char wanted[] = "debian:12";
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *all = NULL;
	struct err e = ERR_INIT;
	const json_t *image;
	size_t i;

	if (api_path(c, &path, &e, "images", NULL) < 0 ||
	    api_call(c, "GET", &path, NULL, ASK_MS, &all, &e) < 0) {
		finding_error(f, "image", &e);
		return;
	}
	json_array_foreach(json_object_get(all, "images"), i, image)
	{
		if (!str_eq(json_text(image, "name"), wanted))
			continue;
		finding(f, CHECK_OK, "image", NULL, "%s is there, %.0f MiB", wanted,
			json_number_value(json_object_get(image, "size_bytes")) / 1024 / 1024);
		return;
	}
	finding(f, CHECK_WARN, "image",
		"sudo make up builds it; others: skerry image list, and create --image NAME",
		"no %s, which sandboxes are made from when no image is named", wanted);
}

static bool check_token(struct cli *c, struct findings *f)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	struct err e = ERR_INIT;

	if (api_path(c, &path, &e, "sandboxes", NULL) < 0)
		return false;
	api_query(&path, "limit", "1");
	if (api_call(c, "GET", &path, NULL, ASK_MS, NULL, &e) < 0) {
		finding_error(f, "token", &e);
		return false;
	}
	finding(f, CHECK_OK, "token", NULL, "accepted for workspace %s", c->conf.workspace.text);
	return true;
}

/* What the daemon says of itself: {"status", "checks" or "notes": [text or {name, status, text |
 * message, hint}]}. */
static void check_health(struct cli *c, struct findings *f)
{
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	struct request q = { .method = "GET", .path = "/healthz", .timeout_ms = ASK_MS };
	_cleanup_json_ json_t *h = NULL;
	struct err e = ERR_INIT;
	const json_t *list, *note;
	size_t i;
	int r = api_send(c, &q, &answer, &e);

	h = json_loadb(buf_str(&answer.body), answer.body.len, 0, NULL);
	if (r < 0)
		finding_error(f, "daemon", &e);
	else
		finding(f, CHECK_OK, "daemon", NULL, "%s", json_text_or(h, "status", "healthy"));
	list = json_object_get(h, "checks");
	if (!list)
		list = json_object_get(h, "notes");
	json_array_foreach(list, i, note)
	{
		const char *status = json_text_or(note, "status", "warn");

		finding(f,
			str_eq(status, "ok")     ? CHECK_OK
			: str_eq(status, "fail") ? CHECK_FAIL
						 : CHECK_WARN,
			json_text_or(note, "name", "daemon"), json_text(note, "hint"), "%s",
			json_is_string(note)
				? json_string_value(note)
				: json_text_or(note, "text", json_text_or(note, "message", "?")));
	}
}

static void check_api(struct cli *c, const struct args *a, struct findings *f)
{
	struct err e = ERR_INIT;

	if (client_open(c, a, &e) < 0) {
		finding_error(f, "configuration", &e);
		return;
	}
	check_config(f, &c->conf);
	if (!check_version(c, f))
		return;
	check_health(c, f);
	if (c->conf.token.text && check_token(c, f))
		check_image(c, f);
}

static void print(const struct findings *f)
{
	bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	bool terminal = isatty(STDOUT_FILENO);
	const json_t *check;
	size_t i;

	json_array_foreach(f->checks, i, check)
	{
		const char *status = json_text_or(check, "status", "?");
		const char *paint = str_eq(status, "ok")     ? "\033[32m"
				    : str_eq(status, "warn") ? "\033[33m"
							     : "\033[31m";
		_cleanup_buf_ struct buf text = BUF_INIT(4096), hint = BUF_INIT(4096);

		out_escape(&text, json_text_or(check, "text", ""),
			   strlen(json_text_or(check, "text", "")));
		out_escape(&hint, json_text_or(check, "hint", ""),
			   strlen(json_text_or(check, "hint", "")));
		if (!terminal) {
			printf("%s\t%s\t%s%s%s\n", status, json_text_or(check, "name", "?"),
			       buf_str(&text), hint.len ? "\t" : "", buf_str(&hint));
			continue;
		}
		printf("%s%-4s%s  %-13s  %s\n", colour ? paint : "", status,
		       colour ? "\033[0m" : "", json_text_or(check, "name", "?"), buf_str(&text));
		if (hint.len)
			printf("%21s→ %s\n", "", buf_str(&hint));
	}
}

int cmd_doctor(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_json_ json_t *all = json_pack("{s:[]}", "checks");
	struct findings f = { .checks = json_object_get(all, "checks") };
	int r = 0;

	if (!all)
		return err_set(e, ENOMEM, "out of memory");
	check_api(c, a, &f);
	if (c->conf.url.text && !conf_url_local(c->conf.url.text))
		finding(&f, CHECK_OK, "host", NULL,
			"not looked at: the API is on another machine; run doctor there");
	else
		doctor_host(&f);
	if (c->json)
		r = out_json(all, e);
	else
		print(&f);
	return r < 0 ? r : f.failed ? EXIT_FAILED : 0;
}
