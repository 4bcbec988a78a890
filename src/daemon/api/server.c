#include "api/server.h"

#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/accept.h"
#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#include "api/errors.h"
#include "api/handshake.h"
#include "api/routes.h"

enum {
	STACK_SIZE = 256 * 1024,
	HEAD_MEMORY = 64 * 1024,
	IDLE_SECONDS = 60,
	BACKLOG = 512,
	STREAM_BLOCK = 32 * 1024,
	DRAIN_MAX = 64 * 1024 * 1024, /* bytes of a body that is not wanted, read to answer it */
};

static struct MHD_Daemon *server;

/* What the library carries through the calls of one request. */
struct exchange {
	struct request r;
	struct err e;
	bool started;                /* the head was looked at */
	const struct upload *upload; /* has begun and not ended; NULL: none */
	bool expects;                /* the client waits for a go-ahead before it sends the body */
	uint64_t drained;
	char *uri;
};

/* A handler may wait for hours, and so may a stream: the library's limit is for silence before a
 * request is complete, and between two requests. */
static void set_idle_limit(struct MHD_Connection *c, unsigned seconds)
{
	MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *c)
{
	struct exchange *x = calloc(1, sizeof(*x));

	(void)cls;
	(void)c;
	if (x)
		x->uri = strdup(uri);
	return x;
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct exchange *x = *con_cls;
	struct err ignored = ERR_INIT;

	(void)cls;
	*con_cls = NULL;
	if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		set_idle_limit(c, IDLE_SECONDS);
	if (!x)
		return;
	if (x->upload)
		x->upload->end(&x->r, true, &ignored);
	if (x->started) {
		dispatch_end(&x->r);
		request_release(&x->r);
	}
	free(x->uri);
	free(x);
}

static char *header(struct MHD_Connection *c, const char *name)
{
	const char *v = MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);

	return v ? strdup(v) : NULL;
}

static int client_fd(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? (int)info->connect_fd : -1;
}

static ssize_t on_stream(void *cls, uint64_t pos, char *data, size_t max)
{
	struct stream *s = cls;
	ssize_t n = s->read(s->arg, data, max);

	(void)pos;
	if (n > 0)
		return n;
	return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void on_stream_free(void *cls)
{
	struct stream *s = cls;

	s->free(s->arg);
	free(s);
}

static struct MHD_Response *make_response(struct request *r)
{
	struct MHD_Response *resp;

	if (r->stream && !r->written && !(r->stream->sized && !r->stream->size)) {
		resp = MHD_create_response_from_callback(
			r->stream->sized ? r->stream->size : MHD_SIZE_UNKNOWN,
			r->stream->block ? r->stream->block : STREAM_BLOCK, on_stream, r->stream,
			on_stream_free);
		if (resp)
			r->stream = NULL;
		return resp;
	}
	resp = MHD_create_response_from_buffer(r->written_len, r->written,
					       r->written ? MHD_RESPMEM_MUST_FREE
							  : MHD_RESPMEM_PERSISTENT);
	if (resp)
		r->written = NULL;
	return resp;
}

static enum MHD_Result answer(struct exchange *x, struct MHD_Connection *c)
{
	struct request *r = &x->r;
	struct MHD_Response *resp;
	enum MHD_Result ok;
	const char *type = "application/json";

	if (x->e.code == ECONNABORTED)
		return MHD_NO; /* nobody is there to answer */
	dispatch_answer(r, &x->e);
	if (!x->e.code && r->stream)
		type = r->stream_type;
	/* a stream holds its places until its end */
	if (x->e.code || !r->stream)
		dispatch_end(r);
	resp = make_response(r);
	if (!resp)
		return MHD_NO;
	if (r->status != 204)
		MHD_add_response_header(resp, "Content-Type", type);
	MHD_add_response_header(resp, "X-Request-Id", r->id);
	for (unsigned i = 0; i < r->headers_count; i++)
		MHD_add_response_header(resp, r->headers[i].name, r->headers[i].value);
	if (r->allow)
		MHD_add_response_header(resp, "Allow", r->allow);
	if (r->status == 401)
		MHD_add_response_header(resp, "WWW-Authenticate", "Bearer");
	if (r->retry_after) {
		char text[16];

		snprintf(text, sizeof(text), "%u", r->retry_after);
		MHD_add_response_header(resp, "Retry-After", text);
	}
	ok = MHD_queue_response(c, r->status, resp);
	MHD_destroy_response(resp);
	return ok;
}

static void too_large(struct exchange *x)
{
	if (x->e.code)
		return;
	err_reason(&x->e, EMSGSIZE, "body_too_large", "the body has more than %d bytes", BODY_MAX);
	err_field(&x->e, "body");
}

/* An error known before the body: answered at once where the client waits for a go-ahead or means
 * to send more than we would read; else the body is read and dropped first. */
static bool answer_early(const struct exchange *x, struct MHD_Connection *c)
{
	const char *text = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
	uint64_t length = 0;

	if (!x->e.code)
		return false;
	return x->expects ||
	       (text && (str_u64(text, 0, UINT64_MAX, &length) < 0 || length > DRAIN_MAX));
}

static void look_at_length(struct exchange *x, struct MHD_Connection *c)
{
	const char *text = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
	uint64_t length;

	if (text && !x->r.route->upload && str_u64(text, 0, BODY_MAX, &length) < 0)
		too_large(x);
}

/* The socket of an upgraded connection, until the session is over; its thread is the connection's. */
static void on_upgraded(void *cls, struct MHD_Connection *c, void *con_cls, const char *early,
			size_t early_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
	struct exchange *x = cls;

	(void)c;
	(void)con_cls;
	x->r.route->socket->run(&x->r, (int)fd, early, early_len);
	dispatch_end(&x->r);
	MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
}

static enum MHD_Result upgrade(struct exchange *x, struct MHD_Connection *c)
{
	const struct handshake h = {
		.upgrade = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Upgrade"),
		.connection = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Connection"),
		.version = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-WebSocket-Version"),
		.key = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-WebSocket-Key"),
	};
	char accept[ACCEPT_SIZE];
	struct MHD_Response *resp;
	enum MHD_Result ok;

	if (handshake_check(&h, &x->e) < 0 || x->r.route->socket->open(&x->r, &x->e) < 0)
		return answer(x, c);
	resp = MHD_create_response_for_upgrade(on_upgraded, x);
	if (!resp)
		return MHD_NO;
	accept_of_key(h.key, accept);
	MHD_add_response_header(resp, "Upgrade", "websocket");
	MHD_add_response_header(resp, "Sec-WebSocket-Accept", accept);
	MHD_add_response_header(resp, "X-Request-Id", x->r.id);
	ok = MHD_queue_response(c, MHD_HTTP_SWITCHING_PROTOCOLS, resp);
	MHD_destroy_response(resp);
	return ok;
}

static enum MHD_Result begin(struct exchange *x, struct MHD_Connection *c, const char *method)
{
	struct request *r = &x->r;
	const char *expect = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Expect");

	if (!x->uri || request_init(r, method, x->uri) < 0)
		return MHD_NO;
	x->started = true;
	x->expects = expect && !strcasecmp(expect, "100-continue");
	r->client_fd = client_fd(c);
	r->authorization = header(c, "Authorization");
	r->content_type = header(c, "Content-Type");
	r->idempotency_key = header(c, "Idempotency-Key");
	r->accept = header(c, "Accept");
	r->range = header(c, "Range");
	r->if_range = header(c, "If-Range");
	r->edge = header(c, "X-Skerry-Edge");
	r->connection = c;
	if (dispatch_head(r, &x->e) >= 0) {
		x->e = (struct err)ERR_INIT; /* of something that was tried on the way */
		look_at_length(x, c);
		if (!x->e.code && r->route->upload)
			x->upload = r->route->upload->begin(r, &x->e) < 0 ? NULL : r->route->upload;
	}
	return answer_early(x, c) ? answer(x, c) : MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, struct MHD_Connection *c, const char *data,
				 size_t len)
{
	if (x->upload && !x->e.code) {
		/* the time its taker needs is not the client's */
		set_idle_limit(c, 0);
		x->upload->write(&x->r, data, len, &x->e);
		set_idle_limit(c, IDLE_SECONDS);
		return MHD_YES;
	}
	if (!x->e.code && buf_add(&x->r.body, data, len) < 0)
		too_large(x);
	if (!x->e.code || x->upload)
		return MHD_YES;
	x->drained += len;
	return x->drained > DRAIN_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *len, void **con_cls)
{
	struct exchange *x = *con_cls;

	(void)cls;
	(void)url;
	(void)version;
	if (!x)
		return MHD_NO;
	if (!x->started)
		return begin(x, c, method);
	if (*len) {
		enum MHD_Result ok = take_body(x, c, data, *len);

		*len = 0;
		return ok;
	}
	set_idle_limit(c, 0);
	if (x->r.route && x->r.route->socket && !x->e.code)
		return upgrade(x, c);
	if (x->upload) {
		const struct upload *upload = x->upload;

		x->upload = NULL;
		if (upload->end(&x->r, false, &x->e) >= 0)
			x->e = (struct err)ERR_INIT;
	} else if (!x->e.code) {
		if (dispatch_run(&x->r, &x->e) >= 0)
			x->e = (struct err)ERR_INIT;
	}
	return answer(x, c);
}

static void on_log(void *cls, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void on_log(void *cls, const char *fmt, va_list ap)
{
	char text[256];

	(void)cls;
	vsnprintf(text, sizeof(text), fmt, ap);
	log_debug("http: %s", text);
}

static size_t no_unescape(void *cls, struct MHD_Connection *c, char *s)
{
	(void)cls;
	(void)c;
	return strlen(s);
}

int server_start(const struct config *config, struct err *e)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/api.sock", config->run_dir);
	/* for everyone, HAProxy among them: who may do what is told by the token alone */
	fd = unix_listen(path, SOCK_STREAM, 0666, BACKLOG);
	if (fd < 0)
		return err_set(e, -fd, "listen on '%s': %m", path);
	dispatch_init(config);
	server = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC | MHD_USE_ERROR_LOG | MHD_ALLOW_UPGRADE,
		0, NULL, NULL, on_request, NULL, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL,
		MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, NULL, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_SIZE,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)config->connections_total,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_MEMORY,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
	if (!server) {
		close(fd);
		return err_set(e, EIO, "start the HTTP server");
	}
	log_notice("listening on %s", path);
	return 0;
}

void server_stop(void)
{
	if (server)
		MHD_stop_daemon(server);
	server = NULL;
}
