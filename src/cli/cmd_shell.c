/* shell: a login shell on a terminal of its own, shown on ours. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "detach.h"
#include "stream.h"
#include "tty.h"

/* Names the API does not know as such are left out: it has a default. */
static const char *term_name(void)
{
	const char *term = getenv("TERM");

	return term && *term && strlen(term) <= 64 &&
			       !term[strspn(term, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
						  "abcdefghijklmnopqrstuvwxyz0123456789+._-")]
		       ? term
		       : NULL;
}

static void add_size(struct buf *path)
{
	unsigned cols, rows;
	char text[16];

	if (!tty_size(&cols, &rows))
		return;
	snprintf(text, sizeof(text), "%u", cols);
	api_query(path, "cols", text);
	snprintf(text, sizeof(text), "%u", rows);
	api_query(path, "rows", text);
}

static int check(struct cli *c, const struct args *a, struct err *e)
{
	if (!isatty(STDIN_FILENO)) {
		err_reason(e, ENOTTY, REASON_USAGE, "standard input is not a terminal");
		return err_hint(e, "for commands and scripts: skerry exec %s -- COMMAND",
				a->pos[0]);
	}
	if (c->json)
		return usage(e, "a shell has no JSON; leave --format json out");
	if (args_has(a, "attach") && (args_has(a, "user") || args_has(a, "cwd")))
		return usage(e, "--user and --cwd are for a new shell, and --attach is given");
	return 0;
}

int cmd_shell(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	struct stream_spec spec = {
		.sandbox = a->pos[0],
		.tty = true,
		.input = true,
		.replayed = args_has(a, "attach"),
	};
	int r = check(c, a, e);

	if (r < 0 || (r = detach_parse(&spec.detach, args_get(a, "detach-keys"), e)) < 0 ||
	    (r = api_path(c, &path, e, "sandboxes", a->pos[0], "terminal", NULL)) < 0)
		return r;
	add_size(&path);
	api_query(&path, "term", spec.replayed ? NULL : term_name());
	api_query(&path, "user", args_get(a, "user"));
	api_query(&path, "cwd", args_get(a, "cwd"));
	api_query(&path, "id", args_get(a, "attach"));
	if (path.failed)
		return err_set(e, path.failed, "a name is too long");
	spec.path = buf_str(&path);
	return stream_run(c, &spec, e);
}
