#include <errno.h>
#include <string.h>

#include "exec.h"
#include "out.h"

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
	bool detached = args_has(a, "detach");
	int r = exec_body(a, "skerry exec SANDBOX", &body, e);

	if (r < 0 || (r = exec_check(c, a, e)) < 0)
		return r;
	if ((detached || c->json) && args_has(a, "stdin") && (r = exec_put_stdin(body, e)) < 0)
		return r;
	return detached ? detach(c, a->pos[0], body, e) : exec_call(c, a, a->pos[0], body, e);
}
