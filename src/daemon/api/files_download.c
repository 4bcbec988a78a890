/*
 * Bytes out of a sandbox: a file or a part of it, or a directory as a tar. They are read while they
 * are sent, and an answer that cannot be finished is cut.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "api/files_path.h"
#include "api/files_view.h"

enum {
	BLOCK = 128 * 1024,
	TAR_BLOCK = 64 * 1024,
	GZIP_BITS = 15 + 16,
	GZIP_MEMORY = 8, /* zlib's default */
	ETAG_SIZE = 48,
	HEADER_MAX = 8 * 1024,
	DATE_SIZE = 32,
};

static const char *const archives[] = { "tar", "tar.gz", NULL };

const struct field file_download_fields[] = {
	FIELD_ENUM(struct file_download_query, archive, archives,
		   .about = "how a directory comes; default tar.gz"),
	{ 0 },
};

struct download {
	struct file_request q;
	uint64_t left; /* bytes of a file; UINT64_MAX: to its end, wherever that is */
	z_stream z;
	bool packing, read_all, finished;
	size_t have, used; /* of `block` */
	char block[TAR_BLOCK];
};

static void download_free(void *arg)
{
	struct download *d = arg;

	if (d->packing)
		deflateEnd(&d->z);
	file_request_release(&d->q);
	free(d);
}

/* -- streams ------------------------------------------------------------------------------- */

/* The next bytes of the sandbox's; 0 at their end. */
static ssize_t more_bytes(struct download *d, char *data, size_t len)
{
	struct err ignored = ERR_INIT;

	if (d->used == d->have)
		return d->read_all ? 0 : files_receive(&d->q.call, data, len, &ignored);
	if (len > d->have - d->used)
		len = d->have - d->used;
	memcpy(data, d->block + d->used, len);
	d->used += len;
	return (ssize_t)len;
}

static ssize_t file_bytes(void *arg, char *data, size_t len)
{
	struct download *d = arg;
	ssize_t n;

	if (!d->left)
		return 0;
	n = more_bytes(d, data, len < d->left ? len : d->left);
	if (d->left == UINT64_MAX || n < 0)
		return n;
	d->left -= (uint64_t)n;
	return n ? n : -EPIPE; /* it has become shorter than the answer's head says */
}

static int fill(struct download *d)
{
	struct err ignored = ERR_INIT;
	ssize_t n;

	if (d->used == d->have) {
		n = files_receive(&d->q.call, d->block, sizeof(d->block), &ignored);
		if (n < 0)
			return (int)n;
		d->have = (size_t)n;
		d->read_all = !n;
		d->used = 0;
	}
	d->z.next_in = (unsigned char *)d->block + d->used;
	d->z.avail_in = (unsigned)(d->have - d->used);
	d->used = d->have;
	return 0;
}

static ssize_t packed_bytes(void *arg, char *data, size_t len)
{
	struct download *d = arg;

	d->z.next_out = (unsigned char *)data;
	d->z.avail_out = (unsigned)(len < UINT_MAX ? len : UINT_MAX);
	while (d->z.avail_out && !d->finished) {
		int r = !d->z.avail_in && !d->read_all ? fill(d) : 0;

		if (r < 0)
			return r;
		r = deflate(&d->z, d->read_all ? Z_FINISH : Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return -EIO;
		d->finished = r == Z_STREAM_END;
	}
	return (ssize_t)(len - d->z.avail_out);
}

static int start_stream(struct request *r, struct download *d, struct err *e)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s) {
		download_free(d);
		return err_set(e, ENOMEM, "out of memory");
	}
	*s = (struct stream){ .read = file_bytes, .free = download_free, .arg = d, .block = BLOCK };
	r->stream = s; /* released with the request from here on */
	r->stream_type = "application/octet-stream";
	return 0;
}

/* -- heads --------------------------------------------------------------------------------- */

static int put_disposition(struct request *r, const char *name, const char *suffix, struct err *e)
{
	_cleanup_buf_ struct buf value = BUF_INIT(HEADER_MAX);

	file_disposition(&value, name, suffix);
	if (value.failed)
		return err_set(e, ENOMEM, "out of memory");
	return request_header(r, "Content-Disposition", e, "%s", buf_str(&value));
}

/* "Tue, 01 Dec 2026 07:00:00 GMT"; false for a time that has no such text. */
static bool http_date(int64_t mtime_ns, char out[DATE_SIZE])
{
	static const char *const days[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
					      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	time_t t = (time_t)(mtime_ns / (int64_t)NS_PER_SEC);
	struct tm tm;

	if (!gmtime_r(&t, &tm) || tm.tm_year < 0 || tm.tm_year > 9999 - 1900)
		return false;
	snprintf(out, DATE_SIZE, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
		 tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
		 tm.tm_sec);
	return true;
}

static int put_version(struct request *r, const struct agent_entry *n, char etag[ETAG_SIZE],
		       struct err *e)
{
	char date[DATE_SIZE];

	snprintf(etag, ETAG_SIZE, "\"%llx-%llx\"", (unsigned long long)n->size,
		 (unsigned long long)n->mtime_ns);
	if (request_header(r, "ETag", e, "%s", etag) < 0)
		return -e->code;
	return http_date(n->mtime_ns, date) ? request_header(r, "Last-Modified", e, "%s", date) : 0;
}

struct range {
	uint64_t from, to; /* the last byte */
};

/* One range of "bytes=…" in a file of `size`: 1, 0 for what is to be ignored, -ERANGE. */
static int range_parse(const char *text, uint64_t size, struct range *ret)
{
	char first[24];
	size_t n;

	if (!text || !str_starts(text, "bytes="))
		return 0;
	text += 6;
	n = strcspn(text, "-");
	if (n >= sizeof(first) || text[n] != '-')
		return 0;
	memcpy(first, text, n);
	first[n] = '\0';
	text += n + 1;
	*ret = (struct range){ 0, UINT64_MAX };
	if (n && str_u64(first, 0, UINT64_MAX, &ret->from) < 0)
		return 0;
	if ((*text || !n) && str_u64(text, 0, UINT64_MAX, &ret->to) < 0)
		return 0;
	if (!n) { /* the last ones */
		if (!ret->to || !size)
			return -ERANGE;
		ret->from = ret->to < size ? size - ret->to : 0;
		ret->to = UINT64_MAX;
	}
	if (ret->to < ret->from)
		return 0;
	if (ret->from >= size)
		return -ERANGE;
	if (ret->to >= size)
		ret->to = size - 1;
	return 1;
}

/* 1 and the part that is asked for, 0 for all of it. */
static int find_range(struct request *r, uint64_t size, const char *etag, struct range *ret,
		      struct err *e)
{
	int code = !r->if_range || str_eq(r->if_range, etag) ? range_parse(r->range, size, ret) : 0;

	if (code < 0) {
		request_header(r, "Content-Range", e, "bytes */%llu", (unsigned long long)size);
		err_reason(e, ERANGE, "range_not_satisfiable", "the file has %llu bytes",
			   (unsigned long long)size);
		return err_field(e, "Range");
	}
	return code;
}

/* -- answers ------------------------------------------------------------------------------- */

/* Says what is wanted. The first bytes are read before the answer begins: an error that shows with
 * them can still be told. */
static int go(struct request *r, struct download *d, uint64_t offset, uint64_t length,
	      struct err *e)
{
	ssize_t n;

	if (str_eq(r->method, "HEAD"))
		return 0;
	if (files_go(&d->q.call, offset, length, e) < 0)
		return -e->code;
	n = files_receive(&d->q.call, d->block,
			  d->left < sizeof(d->block) ? d->left : sizeof(d->block), e);
	if (n < 0)
		return (int)n;
	d->have = (size_t)n;
	d->read_all = !n;
	return 0;
}

static int answer_file(struct request *r, struct download *d, const struct agent_entry *n,
		       struct err *e)
{
	uint64_t size = n->size;
	char etag[ETAG_SIZE];
	struct range part = { 0 };
	int code = put_version(r, n, etag, e);

	if (!code)
		code = request_header(r, "Accept-Ranges", e, "bytes");
	if (!code)
		code = find_range(r, size, etag, &part, e);
	if (code < 0)
		return code;
	if (!size) { /* one of the kernel's may have bytes all the same */
		d->left = UINT64_MAX;
		code = go(r, d, 0, INT64_MAX, e);
		r->stream->sized = !d->have;
		return code;
	}
	if (!code)
		part = (struct range){ 0, size - 1 };
	r->stream->sized = true;
	r->stream->size = d->left = part.to - part.from + 1;
	if (code) {
		r->status = 206;
		if (request_header(r, "Content-Range", e, "bytes %llu-%llu/%llu",
				   (unsigned long long)part.from, (unsigned long long)part.to,
				   (unsigned long long)size) < 0)
			return -e->code;
	}
	return go(r, d, part.from, d->left, e);
}

static int answer_directory(struct request *r, struct download *d, const char *archive,
			    struct err *e)
{
	d->left = UINT64_MAX;
	if (!str_eq(archive, "tar")) {
		if (deflateInit2(&d->z, Z_BEST_SPEED, Z_DEFLATED, GZIP_BITS, GZIP_MEMORY,
				 Z_DEFAULT_STRATEGY) != Z_OK)
			return err_set(e, ENOMEM, "out of memory");
		d->packing = true;
		r->stream->read = packed_bytes;
	}
	r->stream_type = d->packing ? "application/gzip" : "application/x-tar";
	return go(r, d, 0, 0, e);
}

int handle_file_download(struct request *r, struct err *e)
{
	const struct file_download_query *in = r->in_query;
	struct agent_file f = { .op = FILE_READ, .path = r->rest };
	struct download *d = calloc(1, sizeof(*d));
	const char *name = file_path_name(r->rest);
	struct agent_entry n = { 0 };
	bool dir;
	int code;

	if (!d)
		return err_set(e, ENOMEM, "out of memory");
	file_request_init(&d->q);
	if (start_stream(r, d, e) < 0 || file_request_open(r, &d->q, NULL, &f, e) < 0 ||
	    files_entry(&d->q.call, &n, e) < 0)
		return -e->code;
	dir = n.leads_to == ENTRY_DIR;
	if (!dir && in->archive) {
		err_reason(e, EINVAL, "invalid_field", "only a directory comes as an archive");
		return err_field(e, "archive");
	}
	if (str_eq(name, "/"))
		name = d->q.sandbox.identifier;
	code = put_disposition(r, name,
			       !dir                         ? ""
			       : str_eq(in->archive, "tar") ? ".tar"
							    : ".tar.gz",
			       e);
	if (code < 0)
		return code;
	return dir ? answer_directory(r, d, in->archive, e) : answer_file(r, d, &n, e);
}
