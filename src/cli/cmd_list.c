#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "out.h"
#include "pages.h"

static void add_row(struct table *t, const json_t *s)
{
	table_cell(t, json_text(s, "identifier"));
	table_cell(t, json_text(s, "status"));
	table_cell(t, json_text(s, "setup_status"));
	table_cell(t, json_text(s, "os"));
	table_cell(t, json_text(s, "resources"));
	table_cell(t, json_text(s, "create_date"));
	table_cell(t, json_text(s, "id"));
}

/* States and tags are asked for as the API spells them. */
static void query_upper(struct buf *path, const char *key, const char *value)
{
	char upper[32];
	size_t i;

	if (!value)
		return;
	for (i = 0; value[i] && i + 1 < sizeof(upper); i++)
		upper[i] = (char)toupper((unsigned char)value[i]);
	upper[i] = '\0';
	api_query(path, key, upper);
}

int cmd_list(struct cli *c, const struct args *a, struct err *e)
{
	static const char *const titles[] = { "IDENTIFIER", "STATUS",  "SETUP", "IMAGE",
					      "RESOURCES",  "CREATED", "ID",    NULL };
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_table_ struct table t;
	_cleanup_json_ json_t *all = NULL;
	const json_t *s;
	size_t i;
	int r;

	table_init(&t, titles);
	r = api_path(c, &path, e, "sandboxes", NULL);
	if (r < 0)
		return r;
	query_upper(&path, "status", args_get(a, "status"));
	api_query(&path, "tag", args_get(a, "tag"));
	r = pages_get(c, &path, "sandboxes", a, 0, &all, e);
	if (r < 0)
		return r;
	if (c->json)
		return out_json(all, e);
	json_array_foreach(json_object_get(all, "sandboxes"), i, s)
	{
		if (args_has(a, "quiet"))
			out_line("%s", json_text_or(s, "id", "-"));
		else
			add_row(&t, s);
	}
	return args_has(a, "quiet") ? 0 : table_print(&t, isatty(STDOUT_FILENO), e);
}
