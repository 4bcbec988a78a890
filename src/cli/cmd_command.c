/* command list, status and kill: the records of commands. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "fields.h"
#include "out.h"
#include "pages.h"

enum { LIST_DEFAULT = 100, WAIT_PIECE = 60 };

static const char *code_text(const json_t *record, char *out, size_t size)
{
	const json_t *code = json_object_get(record, "exit_code");

	if (!json_is_integer(code))
		return NULL;
	snprintf(out, size, "%lld", (long long)json_integer_value(code));
	return out;
}

static void add_row(struct table *t, const json_t *record)
{
	char code[24];

	table_cell(t, json_text(record, "id"));
	table_cell(t, json_text(record, "status"));
	table_cell(t, code_text(record, code, sizeof(code)));
	table_cell(t, json_text(record, "reason"));
	table_cell(t, json_text(record, "start_date"));
	table_cell(t, json_text(record, "command"));
}

int cmd_command_list(struct cli *c, const struct args *a, struct err *e)
{
	static const char *const titles[] = { "ID",      "STATUS",  "CODE", "REASON",
					      "STARTED", "COMMAND", NULL };
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_table_ struct table t;
	_cleanup_json_ json_t *all = NULL;
	const json_t *record;
	size_t i;
	int r;

	table_init(&t, titles);
	t.fit = true;
	r = api_path(c, &path, e, "sandboxes", a->pos[0], "commands", NULL);
	if (r < 0 || (r = pages_get(c, &path, "commands", a, LIST_DEFAULT, &all, e)) < 0)
		return r;
	if (c->json)
		return out_json(all, e);
	json_array_foreach(json_object_get(all, "commands"), i, record)
	{
		if (args_has(a, "quiet"))
			out_line("%s", json_text_or(record, "id", "-"));
		else
			add_row(&t, record);
	}
	return args_has(a, "quiet") ? 0 : table_print(&t, isatty(STDOUT_FILENO), e);
}

static int print_record(struct cli *c, const json_t *record, struct err *e)
{
	static const struct {
		const char *title, *key;
	} fields[] = {
		{ "id", "id" },
		{ "command", "command" },
		{ "runtime", "runtime" },
		{ "user", "user" },
		{ "cwd", "cwd" },
		{ "status", "status" },
		{ "reason", "reason" },
		{ "signal", "signal" },
		{ "started", "start_date" },
		{ "finished", "finish_date" },
	};
	char code[24];

	if (c->json)
		return out_json(record, e);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		out_field(fields[i].title, json_text(record, fields[i].key));
	out_field("exit code", code_text(record, code, sizeof(code)));
	return 0;
}

/* Waits in pieces, so that a connection is never silent for long. */
int cmd_command_status(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_json_ json_t *record = NULL;
	double left = 0;
	int r = args_number(a, "wait", 0, 31536000, &left, e);

	if (r < 0)
		return r;
	left = ceil(left); /* the API counts whole seconds */
	for (;;) {
		_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
		double piece = left < WAIT_PIECE ? left : WAIT_PIECE;
		char text[32];

		r = api_path(c, &path, e, "sandboxes", a->pos[0], "commands", a->pos[1], NULL);
		if (r < 0)
			return r;
		snprintf(text, sizeof(text), "%g", piece);
		api_query(&path, "wait", piece > 0 ? text : NULL);
		json_decref(record);
		record = NULL;
		r = api_call(c, "GET", &path, NULL, CALL_TIMEOUT_MS, &record, e);
		if (r < 0)
			return r;
		left -= piece;
		if (left <= 0 || !str_eq(json_text(record, "status"), "INPROGRESS"))
			return print_record(c, record, e);
	}
}

int cmd_command_kill(struct cli *c, const struct args *a, struct err *e)
{
	static const struct field fields[] = {
		{ "signal", "signal", FIELD_UPPER },
		{ "grace", "grace", FIELD_NUMBER },
		{ 0 },
	};
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *record = NULL, *body = json_object();
	int r = fields_fill(a, fields, body, e);

	if (r < 0 || (r = api_path(c, &path, e, "sandboxes", a->pos[0], "commands", a->pos[1],
				   "terminate", NULL)) < 0)
		return r;
	r = api_call(c, "POST", &path, json_object_size(body) ? body : NULL, 0, &record, e);
	return r < 0 ? r : print_record(c, record, e);
}
