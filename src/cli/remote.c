#include "remote.h"

#include <errno.h>
#include <string.h>

#include "base/base64.h"
#include "base/str.h"

#include "api.h"

bool remote_is(const char *word)
{
	size_t n = strcspn(word, ":/");

	return n && word[n] == ':' && word[n + 1] == '/';
}

int remote_parse(const char *word, struct remote *ret, struct err *e)
{
	size_t n = strcspn(word, ":/");

	if (!remote_is(word))
		return usage(e, "'%s' is not SANDBOX:/path", word);
	if (n >= sizeof(ret->sandbox))
		return usage(e, "'%.40s…' is too long for a sandbox", word);
	memcpy(ret->sandbox, word, n);
	ret->sandbox[n] = '\0';
	ret->path = word + n + 1;
	return 0;
}

int remote_url(struct cli *c, const struct remote *r, const char *call, struct buf *url,
	       struct err *e)
{
	_cleanup_buf_ struct buf base = BUF_INIT(PATH_MAX_LEN);
	const char *query, *path = r->path;
	int code = api_path(c, &base, e, "sandboxes", r->sandbox, NULL);

	if (code < 0)
		return code;
	query = strchrnul(buf_str(&base), '?');
	buf_clear(url);
	buf_addf(url, "%.*s/%s", (int)(query - buf_str(&base)), buf_str(&base), call);
	while (*path == '/')
		path++;
	for (buf_addc(url, '/'); *path;) {
		size_t n = strcspn(path, "/");
		_cleanup_free_ char *part = strndup(path, n);

		if (!part)
			return err_set(e, ENOMEM, "out of memory");
		api_encode(url, part);
		path += n;
		if (*path == '/') {
			buf_addc(url, '/');
			path++;
		}
	}
	buf_adds(url, query);
	return url->failed ? err_set(e, ENAMETOOLONG, "the path is too long") : 0;
}

int remote_stat(struct cli *c, const struct remote *r, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf url = BUF_INIT(PATH_MAX_LEN);
	int code = remote_url(c, r, "stat", &url, e);

	*ret = NULL;
	if (!code)
		code = api_call(c, "GET", &url, NULL, CALL_TIMEOUT_MS, ret, e);
	if (code < 0 && str_eq(e->reason ? e->reason : "", "file_not_found")) {
		*e = (struct err)ERR_INIT;
		return 0;
	}
	return code < 0 ? code : 1;
}

int remote_bytes(const json_t *item, const char *key, struct buf *out)
{
	char name[32];
	const char *encoded;

	snprintf(name, sizeof(name), "%s_base64", key);
	encoded = json_text(item, name);
	buf_clear(out);
	if (encoded)
		return base64_decode(out, encoded, strlen(encoded));
	return buf_adds(out, json_text_or(item, key, ""));
}

bool remote_is_dir(const json_t *item)
{
	return str_eq(json_text_or(item, "type", ""), "DIR");
}
