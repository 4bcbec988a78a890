#include "open.h"

#include "client.h"

int settings_open(struct cli *c, const struct args *a, struct err *e)
{
	struct conf_options o = {
		.context = args_get(a, "context"),
		.url = args_get(a, "url"),
		.project = args_get(a, "project"),
		.workspace = args_get(a, "workspace"),
	};

	return conf_load(&c->conf, &o, e);
}

int client_open(struct cli *c, const struct args *a, struct err *e)
{
	int r = settings_open(c, a, e);

	return r < 0 ? r : http_client_open(&c->conf, &c->client, e);
}
