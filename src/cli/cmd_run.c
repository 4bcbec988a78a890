/*
 * run: create, exec, destroy. The sandbox gets an identifier of our making, so that it can be
 * destroyed even when the answer to its creation never came.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "exec.h"
#include "fields.h"
#include "out.h"
#include "signals.h"

enum { NAME_SIZE = 32, DESTROY_TRIES = 10, DESTROY_PAUSE_MS = 500, DESTROY_MS = 60 * 1000 };

static int make(struct cli *c, const struct args *a, const char *name, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *body = json_object(), *s = NULL;
	int r = fields_fill(a, shape_fields, body, e);

	if (r < 0 || (r = api_put(body, "name", name, e)) < 0 ||
	    (r = api_put(body, "identifier", name, e)) < 0 ||
	    (r = api_put(body, "os", a->pos[0], e)) < 0 ||
	    (r = api_path(c, &path, e, "sandboxes", NULL)) < 0)
		return r;
	api_query(&path, "wait", "running");
	r = api_call(c, "POST", &path, body, 0, &s, e);
	if (r < 0)
		return r;
	if (args_has(a, "keep"))
		out_note("the sandbox is %s (%s)", json_text_or(s, "id", "?"), name);
	if (!str_eq(json_text(s, "status"), "RUNNING"))
		return err_reason(e, EIO, "sandbox_failed", "the sandbox is %s: %s",
				  json_text_or(s, "status", "?"),
				  json_text_or(json_object_get(s, "exit_reason"), "text",
					       "it did not come up in time"));
	return 0;
}

/* `unsure`: the creation may still be under way, so a 404 does not yet mean that it is gone. */
static void destroy(struct cli *c, const char *name, bool unsure)
{
	static const struct timespec pause = { .tv_nsec = DESTROY_PAUSE_MS * 1000000L };
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	struct err e = ERR_INIT;
	char reason[sizeof(c->reason)]; /* of the error that is to be told, if there is one */
	int r = api_path(c, &path, &e, "sandboxes", name, NULL);

	memcpy(reason, c->reason, sizeof(reason));

	for (int i = 0; !r && i < DESTROY_TRIES; i++) {
		r = api_call(c, "DELETE", &path, NULL, DESTROY_MS, NULL, &e);
		if (r != -ENOENT)
			break;
		r = 0;
		if (!unsure)
			break;
		nanosleep(&pause, NULL);
	}
	if (r < 0)
		out_note("'%s' could not be destroyed: %s; try: skerry destroy %s", name, e.text,
			 name);
	memcpy(c->reason, reason, sizeof(reason));
}

/* An error that is the API's answer says that nothing was made. */
static bool answered(const struct err *e)
{
	return !str_eq(e->reason, REASON_CONNECTION) && !str_eq(e->reason, REASON_INTERRUPTED);
}

int cmd_run(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_json_ json_t *body = NULL;
	char id[ID_SIZE], name[NAME_SIZE];
	bool keep = args_has(a, "keep"), unsure = false, nothing = false;
	int r = exec_body(a, "skerry run IMAGE", &body, e);

	if (r < 0 || (r = exec_check(c, a, e)) < 0)
		return r;
	if (c->json && args_has(a, "stdin") && (r = exec_put_stdin(body, e)) < 0)
		return r;
	r = id_make("sb", id);
	if (r < 0)
		return err_set(e, r, "no random bytes: %m");
	snprintf(name, sizeof(name), "run-%.12s", id + 2);
	r = signals_hold(c, e);
	if (r < 0)
		return r;
	r = make(c, a, name, e);
	if (r < 0) {
		unsure = !answered(e);
		nothing = e->code == ECONNREFUSED; /* it was not even asked for */
		keep = keep && !unsure;
	} else {
		r = exec_call(c, a, name, body, e);
	}
	signals_ignore(c);
	if (!keep && !nothing)
		destroy(c, name, unsure);
	return r;
}
