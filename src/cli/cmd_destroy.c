#include <unistd.h>

#include "api.h"
#include "each.h"
#include "out.h"

static int destroy(struct cli *c, const struct args *a, const char *sandbox, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	int r = api_path(c, &path, e, "sandboxes", sandbox, NULL);

	(void)a;
	if (r < 0 || (r = api_call(c, "DELETE", &path, NULL, 0, NULL, e)) < 0)
		return r;
	if (!c->json && isatty(STDOUT_FILENO))
		out_field(sandbox, "destroyed");
	return 0;
}

int cmd_destroy(struct cli *c, const struct args *a, struct err *e)
{
	return each_arg(c, a, destroy, e);
}
