/*
 * A connection of its own. It has a libcurl handle of its own too: that of requests looks after the
 * connections it knows, and would end one that has something to say.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#include "cli.h"
#include "http.h"

struct dial {
	struct line base;
	CURLM *multi;
	CURL *easy;
	char *host, *prefix;
};

static ssize_t dial_send(struct line *base, const void *data, size_t len)
{
	struct dial *d = (struct dial *)base;
	size_t n = 0;
	CURLcode code = curl_easy_send(d->easy, data, len, &n);

	if (code == CURLE_AGAIN)
		return -EAGAIN;
	return code ? -EPIPE : (ssize_t)n;
}

static ssize_t dial_recv(struct line *base, void *data, size_t len)
{
	struct dial *d = (struct dial *)base;
	size_t n = 0;
	CURLcode code = curl_easy_recv(d->easy, data, len, &n);

	if (code == CURLE_AGAIN)
		return -EAGAIN;
	return code ? -ECONNRESET : (ssize_t)n;
}

static void dial_free(struct line *base)
{
	struct dial *d = (struct dial *)base;

	if (d->multi && d->easy)
		curl_multi_remove_handle(d->multi, d->easy);
	curl_easy_cleanup(d->easy);
	curl_multi_cleanup(d->multi);
	free(d->host);
	free(d->prefix);
	free(d);
}

static char *url_part(CURLU *u, CURLUPart part)
{
	char *text = NULL, *copy;

	if (curl_url_get(u, part, &text, 0))
		return strdup("");
	copy = strdup(text);
	curl_free(text);
	return copy;
}

/* "http://host:1/at" → "host:1" and "/at". */
static int set_names(struct dial *d, const char *url)
{
	CURLU *u = curl_url();
	_cleanup_free_ char *host = NULL, *port = NULL;
	int r = -ENOMEM;

	if (u && !curl_url_set(u, CURLUPART_URL, url, 0)) {
		host = url_part(u, CURLUPART_HOST);
		port = url_part(u, CURLUPART_PORT);
		d->prefix = url_part(u, CURLUPART_PATH);
	}
	if (host && port && d->prefix &&
	    asprintf(&d->host, "%s%s%s", host, *port ? ":" : "", port) >= 0) {
		for (size_t len = strlen(d->prefix); len && d->prefix[len - 1] == '/'; len--)
			d->prefix[len - 1] = '\0';
		r = 0;
	}
	curl_url_cleanup(u);
	return r;
}

static int connect_to(struct http *h, struct dial *d, struct err *e)
{
	curl_socket_t fd = CURL_SOCKET_BAD;
	CURLcode code = CURLE_OK;
	int r;

	http_reach(h, d->easy);
	curl_easy_setopt(d->easy, CURLOPT_URL, h->prefix);
	curl_easy_setopt(d->easy, CURLOPT_CONNECT_ONLY, 1L);
	/* what is spoken on it is not negotiated by libcurl, and not looked into by a proxy */
	curl_easy_setopt(d->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(d->easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
	r = curl_multi_add_handle(d->multi, d->easy) ? -ENOMEM : http_drive(h, d->multi, &code);
	if (r == -EINTR)
		return err_reason(e, EINTR, REASON_INTERRUPTED, "interrupted");
	if (r < 0)
		return err_set(e, r, "connect: %s", strerror(-r));
	if (code)
		return http_tell(h, code, e);
	curl_easy_getinfo(d->easy, CURLINFO_ACTIVESOCKET, &fd);
	if (fd == CURL_SOCKET_BAD)
		return err_reason(e, EIO, REASON_CONNECTION, "connection to %s lost", h->url);
	d->base.fd = fd;
	return 0;
}

int http_dial(struct client *base, struct line **ret, struct err *e)
{
	struct http *h = (struct http *)base;
	struct dial *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return err_set(e, ENOMEM, "out of memory");
	d->base = (struct line){ -1, .send = dial_send, .recv = dial_recv, .free = dial_free };
	d->multi = curl_multi_init();
	d->easy = curl_easy_init();
	if (!d->multi || !d->easy || set_names(d, h->prefix) < 0)
		r = err_set(e, ENOMEM, "out of memory");
	else
		r = connect_to(h, d, e);
	if (r < 0) {
		dial_free(&d->base);
		return r;
	}
	d->base.host = d->host;
	d->base.prefix = d->prefix;
	d->base.auth = h->auth;
	*ret = &d->base;
	return 0;
}
