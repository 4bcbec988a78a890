#include "pages.h"

#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"

enum { ENTRIES_MAX = 1000000 };

static int page_get(struct cli *c, const struct buf *path, size_t limit, const char *cursor,
		    const char *key, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf full = BUF_INIT(PATH_MAX_LEN);
	char text[32];
	int r;

	buf_adds(&full, buf_str(path));
	snprintf(text, sizeof(text), "%zu", limit);
	api_query(&full, "limit", limit ? text : NULL);
	api_query(&full, "cursor", cursor);
	r = api_call(c, "GET", &full, NULL, CALL_TIMEOUT_MS, ret, e);
	if (r < 0)
		return r;
	if (json_is_array(json_object_get(*ret, key)))
		return 0;
	json_decref(*ret);
	*ret = NULL;
	return err_reason(e, EPROTO, REASON_ANSWER, "the answer has no list '%s'", key);
}

int pages_get(struct cli *c, const struct buf *path, const char *key, const struct args *a,
	      unsigned otherwise, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *all = NULL;
	double limit = otherwise;
	json_t *list;
	int r = args_number(a, "limit", 1, ENTRIES_MAX, &limit, e);

	if (r < 0)
		return r;
	r = page_get(c, path, (size_t)limit, NULL, key, &all, e);
	if (r < 0)
		return r;
	list = json_object_get(all, key);
	while (json_text(all, "next_cursor") && (limit == 0 || json_array_size(list) < limit)) {
		_cleanup_json_ json_t *page = NULL;
		size_t had = json_array_size(list);
		json_t *next;

		if (had > ENTRIES_MAX)
			return err_set(e, E2BIG, "the list does not end");
		r = page_get(c, path, limit > 0 ? (size_t)limit - had : 0,
			     json_text(all, "next_cursor"), key, &page, e);
		if (r < 0)
			return r;
		next = json_object_get(page, "next_cursor");
		if (json_array_extend(list, json_object_get(page, key)) < 0)
			return err_set(e, ENOMEM, "out of memory");
		if (next && json_array_size(list) > had)
			json_object_set(all, "next_cursor", next);
		else
			json_object_del(all, "next_cursor");
	}
	*ret = take_ptr(all);
	return 0;
}
