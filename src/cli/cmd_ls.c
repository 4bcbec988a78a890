/* ls: sandboxes, or the files of one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "out.h"
#include "pages.h"
#include "remote.h"

enum { NAME_BUF = 16 * 1024 };

/* "drwxr-xr-x" */
static void mode_text(const json_t *item, char out[11])
{
	static const struct {
		const char *kind;
		char letter;
	} kinds[] = { { "LINK", 'l' }, { "FIFO", 'p' }, { "SOCKET", 's' }, { "DEVICE", 'c' } };
	unsigned long mode = strtoul(json_text_or(item, "mode", "0"), NULL, 8);
	const char *kind = json_text_or(item, "kind", "");

	memcpy(out, "?rwxrwxrwx", 11);
	out[0] = remote_is_dir(item) ? 'd' : '-';
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (str_eq(kind, kinds[i].kind))
			out[0] = kinds[i].letter;
	}
	for (int bit = 0; bit < 9; bit++) {
		if (!(mode >> (8 - bit) & 1))
			out[1 + bit] = '-';
	}
	if (mode & 04000)
		out[3] = out[3] == 'x' ? 's' : 'S';
	if (mode & 02000)
		out[6] = out[6] == 'x' ? 's' : 'S';
	if (mode & 01000)
		out[9] = out[9] == 'x' ? 't' : 'T';
}

static int add_row(struct table *t, const json_t *item, const char *key)
{
	_cleanup_buf_ struct buf name = BUF_INIT(NAME_BUF), target = BUF_INIT(NAME_BUF);
	char mode[11], size[32];

	mode_text(item, mode);
	snprintf(size, sizeof(size), "%lld", (long long)json_int_or(item, "size", 0));
	if (remote_bytes(item, key, &name) < 0 || remote_bytes(item, "target", &target) < 0)
		return -ENOMEM;
	if (target.len)
		buf_addf(&name, " -> %s", buf_str(&target));
	table_cell(t, mode);
	table_cell(t, json_text(item, "owner"));
	table_cell(t, json_text(item, "group"));
	table_cell(t, size);
	table_cell(t, json_text(item, "mtime"));
	table_cell(t, buf_str(&name));
	return name.failed;
}

/* Its bytes; on a terminal what is no text is escaped. */
static int print_name(const json_t *item, const char *key, char end, struct err *e)
{
	_cleanup_buf_ struct buf name = BUF_INIT(NAME_BUF), shown = BUF_INIT(4 * NAME_BUF);

	if (remote_bytes(item, key, &name) < 0)
		return err_set(e, EPROTO, "the answer has a name that is none");
	if (isatty(STDOUT_FILENO) && end)
		out_escape(&shown, buf_str(&name), name.len);
	else
		buf_add(&shown, buf_str(&name), name.len);
	buf_addc(&shown, end);
	return shown.failed ? err_set(e, ENOMEM, "out of memory")
			    : out_bytes(STDOUT_FILENO, shown.data, shown.len, e);
}

static int print(const struct args *a, const json_t *items, struct err *e)
{
	static const char *const titles[] = { "MODE",     "OWNER", "GROUP", "SIZE",
					      "MODIFIED", "NAME",  NULL };
	const char *key = args_has(a, "recursive") ? "path" : "name";
	_cleanup_table_ struct table t;
	const json_t *item;
	int r = 0;
	size_t i;

	table_init(&t, titles);
	json_array_foreach(items, i, item)
	{
		if (args_has(a, "long"))
			r = add_row(&t, item, key);
		else
			r = print_name(item, key, args_has(a, "null") ? '\0' : '\n', e);
		if (r < 0)
			return e->code ? r : err_set(e, r, "print: %s", strerror(-r));
	}
	return args_has(a, "long") ? table_print(&t, isatty(STDOUT_FILENO), e) : 0;
}

/* All pages of a directory; of anything else the item alone. */
static int get(struct cli *c, const struct args *a, const struct remote *r, json_t **ret,
	       struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *item = NULL;
	int code = remote_stat(c, r, &item, e);

	if (code < 0)
		return code;
	if (!code)
		return err_set(e, ENOENT, "there is no '%s' in sandbox '%s'", r->path, r->sandbox);
	if (!remote_is_dir(item)) {
		*ret = json_pack("{s[O]}", "contents", item);
		return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
	}
	code = remote_url(c, r, "content", &url, e);
	if (code < 0)
		return code;
	api_query(&url, "recursive", args_has(a, "recursive") ? "true" : NULL);
	return pages_get(c, &url, "contents", a, 0, ret, e);
}

/* An option that says nothing about what is listed is a mistake. */
static int refuse(const struct args *a, const char *const *names, const char *about, struct err *e)
{
	for (; *names; names++) {
		if (args_has(a, *names))
			return usage(e, "--%s is about %s", *names, about);
	}
	return 0;
}

int cmd_ls(struct cli *c, const struct args *a, struct err *e)
{
	static const char *const of_files[] = { "long", "recursive", "null", NULL };
	static const char *const of_sandboxes[] = { "status", "tag", "quiet", NULL };
	_cleanup_json_ json_t *all = NULL;
	struct remote r;
	int code;

	if (!a->n_pos) {
		code = refuse(a, of_files, "files: name SANDBOX:/path", e);
		return code < 0 ? code : cmd_list(c, a, e);
	}
	code = refuse(a, of_sandboxes, "sandboxes", e);
	if (!code)
		code = remote_parse(a->pos[0], &r, e);
	if (!code)
		code = get(c, a, &r, &all, e);
	if (code < 0)
		return code;
	return c->json ? out_json(all, e) : print(a, json_object_get(all, "contents"), e);
}
