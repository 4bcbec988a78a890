#include <errno.h>
#include <stdio.h>

#include "api.h"
#include "open.h"
#include "out.h"

enum { ASK_MS = 3000 };

void version_print(const struct cli *c)
{
	printf(c->json ? "{\"version\": \"%s\"}\n" : "skerry %s\n", SKERRY_VERSION);
}

int cmd_version(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *api = NULL, *both = NULL;
	struct err ignored = ERR_INIT; /* the tool's own version needs no API */
	const char *theirs;

	buf_adds(&path, "/version");
	if (client_open(c, a, &ignored) == 0)
		api_call(c, "GET", &path, NULL, ASK_MS, &api, &ignored);
	theirs = json_text(api, "version");
	if (!c->json) {
		out_field("skerry", SKERRY_VERSION);
		out_field("API", theirs ? theirs : "not reachable");
		return 0;
	}
	both = json_pack("{s:s}", "version", SKERRY_VERSION);
	if (!both || (api && json_object_set(both, "api", api) < 0))
		return err_set(e, ENOMEM, "out of memory");
	return out_json(both, e);
}
