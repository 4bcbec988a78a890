#include "http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "cli.h"
#include "hints.h"

enum { CONNECT_MS = 10000, POLL_MS = 1000 };

/* One request in flight. */
struct flight {
	const struct request *request;
	struct answer *answer;
	CURL *easy;
	int failed; /* what source, sink or the buffer returned */
};

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct flight *f = arg;
	long status = 0;

	n *= size;
	curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
	if (f->request->sink && status >= 200 && status < 300) {
		f->answer->streamed = true;
		f->failed = f->request->sink(f->request->arg, data, n);
	} else {
		f->failed = buf_add(&f->answer->body, data, n);
	}
	return f->failed < 0 ? CURL_WRITEFUNC_ERROR : n;
}

static size_t on_source(char *data, size_t size, size_t n, void *arg)
{
	struct flight *f = arg;
	ssize_t got = f->request->source(f->request->arg, data, size * n);

	if (got < 0) {
		f->failed = (int)got;
		return CURL_READFUNC_ABORT;
	}
	return (size_t)got;
}

void http_header(const char *line, size_t len, const char *name, char *out, size_t size)
{
	size_t skip = strlen(name);

	if (len < skip || strncasecmp(line, name, skip))
		return;
	while (skip < len && strchr(" \t", line[skip]))
		skip++;
	while (len > skip && strchr(" \t\r\n", line[len - 1]))
		len--;
	snprintf(out, size, "%.*s", (int)(len - skip), line + skip);
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct flight *f = arg;

	n *= size;
	http_header(data, n, "content-type:", f->answer->type, sizeof(f->answer->type));
	http_header(data, n, "x-request-id:", f->answer->request_id, sizeof(f->answer->request_id));
	return n;
}

static int set_body(struct http *h, struct flight *f, struct curl_slist **headers)
{
	const struct request *r = f->request;
	char line[128];
	CURL *easy = f->easy;

	if (r->source) {
		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_source);
		curl_easy_setopt(easy, CURLOPT_READDATA, f);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->source_len);
	} else if (r->body || str_eq(r->method, "POST")) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body ? r->body : "");
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len);
	}
	snprintf(line, sizeof(line), "Content-Type:%s%s", r->type ? " " : "",
		 r->type ? r->type : "");
	*headers = curl_slist_append(*headers, line);
	if (h->auth)
		*headers = curl_slist_append(*headers, h->auth);
	return *headers ? 0 : -ENOMEM;
}

void http_reach(const struct http *h, CURL *easy)
{
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	if (h->socket)
		curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, h->socket);
	if (h->local) /* a proxy from the environment does not lead here */
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
}

static void set_options(struct http *h, struct flight *f, const char *url,
			struct curl_slist *headers)
{
	CURL *easy = f->easy;

	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, f->request->method);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "skerry/" SKERRY_VERSION);
	/* never followed: the token must not travel to where an answer points */
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	/* "." and ".." in names are names; the server refuses or knows them */
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	/* on a connection used before libcurl would send a request twice when that one has died */
	curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)f->request->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, f);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, f);
	http_reach(h, easy);
}

int http_drive(struct http *h, CURLM *multi, CURLcode *ret)
{
	struct curl_waitfd cancel = { .fd = h->base.cancel_fd, .events = CURL_WAIT_POLLIN };
	int running = 1;

	while (running) {
		CURLMcode m = curl_multi_perform(multi, &running);

		if (!m && running)
			m = curl_multi_poll(multi, &cancel, h->base.cancel_fd >= 0, POLL_MS, NULL);
		if (m == CURLM_OUT_OF_MEMORY)
			return -ENOMEM;
		if (m)
			return -EIO;
		if (cancel.revents)
			return -EINTR;
	}
	for (CURLMsg *msg; (msg = curl_multi_info_read(multi, &running));) {
		if (msg->msg == CURLMSG_DONE)
			*ret = msg->data.result;
	}
	return 0;
}

int http_tell(const struct http *h, CURLcode code, struct err *e)
{
	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_OUT_OF_MEMORY:
		return err_set(e, ENOMEM, "out of memory");
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		err_reason(e, ECONNREFUSED, REASON_CONNECTION, "cannot reach %s: %s", h->url,
			   curl_easy_strerror(code));
		hint_silence(e, h->local);
		return -e->code;
	case CURLE_OPERATION_TIMEDOUT:
		err_reason(e, ETIMEDOUT, REASON_CONNECTION, "no answer from %s in time", h->url);
		return err_hint(e, "try: skerry doctor");
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_URL_MALFORMAT:
		err_reason(e, EINVAL, REASON_CONFIG, "'%s' is not a URL of an API", h->url);
		return err_hint(e, "use http://host:port or unix:///path");
	default:
		err_reason(e, EIO, REASON_CONNECTION, "connection to %s lost: %s", h->url,
			   curl_easy_strerror(code));
		return err_hint(e, "the request may have been carried out; look before repeating");
	}
}

/* What source or sink said, or the connection. */
static int tell_flight(struct http *h, struct flight *f, CURLcode code, struct err *e)
{
	if (code != CURLE_WRITE_ERROR && code != CURLE_ABORTED_BY_CALLBACK)
		return http_tell(h, code, e);
	if (f->failed == -EMSGSIZE)
		return err_reason(e, EMSGSIZE, REASON_ANSWER,
				  "the answer of %s is larger than %d MiB", h->url,
				  ANSWER_MAX / 1024 / 1024);
	if (f->answer->streamed && e->code) /* the sink has told it */
		return -e->code;
	return err_set(e, f->failed ? f->failed : EIO, "transfer: %s",
		       strerror(f->failed ? -f->failed : EIO));
}

static int http_send(struct client *base, const struct request *r, struct answer *ret,
		     struct err *e)
{
	struct http *h = (struct http *)base;
	_cleanup_free_ char *url = NULL;
	struct flight f = { .request = r, .answer = ret, .easy = curl_easy_init() };
	struct curl_slist *headers = NULL;
	CURLcode code = CURLE_OK;
	long status = 0;
	int n;

	if (!f.easy || asprintf(&url, "%s%s", h->prefix, r->path) < 0 ||
	    set_body(h, &f, &headers) < 0) {
		curl_easy_cleanup(f.easy);
		return err_set(e, ENOMEM, "out of memory");
	}
	set_options(h, &f, url, headers);
	n = curl_multi_add_handle(h->multi, f.easy) ? -ENOMEM : http_drive(h, h->multi, &code);
	curl_easy_getinfo(f.easy, CURLINFO_RESPONSE_CODE, &status);
	curl_multi_remove_handle(h->multi, f.easy);
	curl_easy_cleanup(f.easy);
	curl_slist_free_all(headers);
	if (n == -EINTR)
		return err_reason(e, EINTR, REASON_INTERRUPTED, "interrupted");
	if (n < 0)
		return err_set(e, n, "transfer: %s", strerror(-n));
	ret->status = (int)status;
	/* an upload that was refused midway has its answer all the same */
	if (code == CURLE_SEND_ERROR && status >= 400)
		return 0;
	return tell_flight(h, &f, code, e);
}

static void http_free(struct client *base)
{
	struct http *h = (struct http *)base;

	curl_multi_cleanup(h->multi);
	free(h->url);
	free(h->prefix);
	free(h->socket);
	if (h->auth)
		explicit_bzero(h->auth, strlen(h->auth));
	free(h->auth);
	free(h);
	curl_global_cleanup();
}

static bool set_url(struct http *h, const char *url)
{
	size_t len = strlen(url);

	h->url = strdup(url);
	if (str_starts(url, "unix:")) {
		const char *path = url + strlen("unix:");

		h->socket = strdup(str_starts(path, "//") ? path + 2 : path);
		h->prefix = strdup("http://localhost");
		return h->url && h->socket && h->prefix;
	}
	while (len && url[len - 1] == '/')
		len--;
	h->prefix = strndup(url, len);
	return h->url && h->prefix;
}

int http_client_open(const struct conf *conf, struct client **ret, struct err *e)
{
	const char *url = conf->url.text;
	struct http *h;

	if (!str_starts(url, "http://") && !str_starts(url, "https://") &&
	    !str_starts(url, "unix:/")) {
		err_reason(e, EINVAL, REASON_CONFIG, "'%s' is not a URL of an API", url);
		return err_hint(e, "use http://host:port or unix:///path");
	}
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return err_set(e, ENOMEM, "libcurl does not start");
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(e, ENOMEM, "out of memory");
	h->base = (struct client){
		.send = http_send, .dial = http_dial, .free = http_free, .cancel_fd = -1
	};
	h->local = conf_url_local(url);
	h->multi = curl_multi_init();
	if (!h->multi || !set_url(h, url) ||
	    (conf->token.text &&
	     asprintf(&h->auth, "Authorization: Bearer %s", conf->token.text) < 0)) {
		http_free(&h->base);
		return err_set(e, ENOMEM, "out of memory");
	}
	*ret = &h->base;
	return 0;
}
