#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "json.h"
#include "open.h"
#include "out.h"

enum { VALUE_MAX = 4096 };

static void row(struct table *t, const char *name, const char *value, enum conf_source from)
{
	table_cell(t, name);
	table_cell(t, value);
	table_cell(t, conf_source_name(from));
}

static int show_json(const struct conf *c, struct err *e)
{
	_cleanup_json_ json_t *j = json_object();
	const struct {
		const char *name;
		const struct conf_value *value;
	} rows[] = {
		{ "context", &c->context },
		{ "url", &c->url },
		{ "project", &c->project },
		{ "workspace", &c->workspace },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].value->text)
			json_object_set_new(j, rows[i].name,
					    json_pack("{s:s, s:s}", "value", rows[i].value->text,
						      "source",
						      conf_source_name(rows[i].value->source)));
	}
	json_object_set_new(j, "token",
			    json_pack("{s:b, s:s}", "set", c->token.text != NULL, "source",
				      conf_source_name(c->token.source)));
	json_object_set_new(j, "file",
			    json_pack("{s:s, s:b}", "path", c->path, "exists", c->exists));
	return j ? out_json(j, e) : err_set(e, ENOMEM, "out of memory");
}

static int show(struct cli *cli, struct err *e)
{
	static const char *const titles[] = { "SETTING", "VALUE", "FROM", NULL };
	const struct conf *c = &cli->conf;
	_cleanup_table_ struct table t;

	table_init(&t, titles);
	if (cli->json)
		return show_json(c, e);
	row(&t, "url", c->url.text, c->url.source);
	row(&t, "token", c->token.text ? "(set, not shown)" : NULL, c->token.source);
	row(&t, "project", c->project.text, c->project.source);
	row(&t, "workspace", c->workspace.text, c->workspace.source);
	row(&t, "context", c->context.text, c->context.source);
	row(&t, "file", c->path, c->exists ? FROM_FILE : FROM_NOWHERE);
	return table_print(&t, isatty(STDOUT_FILENO), e);
}

static const struct conf_value *value_of(const struct conf *c, const char *key)
{
	const struct {
		const char *key;
		const struct conf_value *value;
	} values[] = {
		{ "current", &c->context },     { "url", &c->url },
		{ "token", &c->token },         { "project", &c->project },
		{ "workspace", &c->workspace },
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (str_eq(key, values[i].key))
			return values[i].value;
	}
	return NULL;
}

/* The value and a line end, whatever the format: it is for variables of a shell. */
static int get(struct cli *cli, const struct args *a, struct err *e)
{
	const char *key = a->n_pos > 1 ? a->pos[1] : "";
	const struct conf_value *v = value_of(&cli->conf, key);

	if (!v)
		return usage(e, "config get: KEY is one of: %s", conf_keys);
	if (a->n_pos > 2)
		return usage(e, "unexpected argument '%s'", a->pos[2]);
	if (str_eq(key, "token") && !args_has(a, "reveal")) {
		usage(e, "the token is a secret and is printed on request only");
		return err_hint(e, "skerry config get token --reveal");
	}
	if (!v->text) {
		err_reason(e, ENOENT, REASON_CONFIG, "%s is not set", key);
		return err_hint(e, "see: skerry config");
	}
	out_line("%s", v->text);
	return 0;
}

static int read_value(char *out, struct err *e)
{
	ssize_t n = read_full(STDIN_FILENO, out, VALUE_MAX);

	if (n < 0)
		return err_set(e, (int)n, "read standard input: %s", strerror((int)-n));
	if (n == VALUE_MAX)
		return usage(e, "the value on standard input is too long");
	while (n && strchr("\r\n", out[n - 1]))
		n--;
	out[n] = '\0';
	return 0;
}

static int set(struct cli *cli, const struct args *a, struct err *e)
{
	const char *key = a->n_pos > 1 ? a->pos[1] : NULL;
	const char *value = a->n_pos > 2 ? a->pos[2] : NULL;
	char typed[VALUE_MAX];
	int r;

	if (!key || !word_in(conf_keys, key))
		return usage(e, "config set: KEY is one of: %s", conf_keys);
	if (str_eq(value, "-")) {
		r = read_value(typed, e);
		if (r < 0)
			return r;
		value = typed;
	}
	if (value && !*value)
		return usage(e, "%s: the value is empty", key);
	if (value && str_eq(key, "url") && !str_starts(value, "http://") &&
	    !str_starts(value, "https://") && !str_starts(value, "unix:/"))
		return usage(e, "url: '%s' is neither http://… nor unix:///path", value);
	return conf_set(&cli->conf, key, value, e);
}

/* A context that is to be made by `set` need not be there yet. */
static int open_for_set(struct cli *cli, const struct args *a, struct err *e)
{
	int r = settings_open(cli, a, e);

	return r == -ENOENT && cli->conf.context.text ? 0 : r;
}

int cmd_config(struct cli *c, const struct args *a, struct err *e)
{
	int r;

	if (!a->n_pos) {
		r = settings_open(c, a, e);
		return r < 0 ? r : show(c, e);
	}
	if (str_eq(a->pos[0], "get")) {
		r = settings_open(c, a, e);
		return r < 0 ? r : get(c, a, e);
	}
	if (!str_eq(a->pos[0], "set"))
		return usage(e, "config knows 'get' and 'set', not '%s'", a->pos[0]);
	r = open_for_set(c, a, e);
	return r < 0 ? r : set(c, a, e);
}
