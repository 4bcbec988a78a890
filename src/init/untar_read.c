#include "untar_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

/* Where the fields of a header lie. */
enum {
	AT_NAME = 0,
	AT_MODE = 100,
	AT_UID = 108,
	AT_GID = 116,
	AT_SIZE = 124,
	AT_MTIME = 136,
	AT_CHECKSUM = 148,
	AT_TYPE = 156,
	AT_LINK = 157,
	AT_MAGIC = 257,
	AT_PREFIX = 345,
	AT_GNU_EXTENTS = 386, /* four, in the header of an old sparse file */
	AT_GNU_MORE = 482,
	AT_GNU_SIZE = 483,
	AT_STAR_MAGIC = 508,

	LEN_NAME = 100,
	LEN_PREFIX = 155,
	LEN_STAR_PREFIX = 131,
	LEN_EXTENT = 24,
	MORE_EXTENTS = 21, /* in each block that follows */
	AT_MORE_MORE = 504,
};

int tar_reader_init(struct tar_reader *r, ssize_t (*read)(void *ctx, void *data, size_t len),
		    void *ctx)
{
	*r = (struct tar_reader){
		.read = read,
		.ctx = ctx,
		.local = BUF_INIT(TAR_PAX_MAX),
		.global = BUF_INIT(TAR_GLOBAL_MAX),
		.global_text = BUF_INIT(TAR_GLOBAL_MAX),
		.long_name = BUF_INIT(TAR_NAME_MAX + 1), /* it comes with its NUL */
		.long_link = BUF_INIT(TAR_NAME_MAX + 1),
	};
	r->window = malloc(TAR_WINDOW);
	return r->window ? 0 : -ENOMEM;
}

void tar_reader_release(struct tar_reader *r)
{
	free(r->window);
	r->window = NULL;
	buf_release(&r->local);
	buf_release(&r->global);
	buf_release(&r->global_text);
	buf_release(&r->long_name);
	buf_release(&r->long_link);
	tar_map_release(&r->map);
}

static int cut_short(struct err *e)
{
	return err_set(e, EBADMSG, "the archive ends too early");
}

/* One read into the free part of the window. The count, 0 at the end of the stream. */
static ssize_t window_fill(struct tar_reader *r, struct err *e)
{
	ssize_t n;

	if (r->at) {
		memmove(r->window, r->window + r->at, r->filled - r->at);
		r->filled -= r->at;
		r->at = 0;
	}
	n = r->read(r->ctx, r->window + r->filled, TAR_WINDOW - r->filled);
	if (n < 0)
		return err_set(e, (int)n, "read the archive: %m");
	r->filled += (size_t)n;
	return n;
}

/* The next block, or NULL in `*ret` at the end of the stream. */
static int next_block(struct tar_reader *r, const char **ret, struct err *e)
{
	while (r->filled - r->at < TAR_BLOCK) {
		ssize_t n = window_fill(r, e);

		if (n < 0)
			return (int)n;
		if (n == 0 && r->filled > r->at)
			return cut_short(e);
		if (n == 0) {
			*ret = NULL;
			return 0;
		}
	}
	*ret = r->window + r->at;
	r->at += TAR_BLOCK;
	return 0;
}

static int need_block(struct tar_reader *r, const char **ret, struct err *e)
{
	int n = next_block(r, ret, e);

	return n < 0 ? n : *ret ? 0 : cut_short(e);
}

static int skip_bytes(struct tar_reader *r, uint64_t len, struct err *e)
{
	for (;;) {
		size_t have = r->filled - r->at;
		ssize_t n;

		if (have >= len) {
			r->at += (size_t)len;
			return 0;
		}
		len -= have;
		r->at = r->filled = 0;
		n = window_fill(r, e);
		if (n < 0)
			return (int)n;
		if (n == 0)
			return cut_short(e);
	}
}

static uint32_t padding_of(uint64_t size)
{
	return (uint32_t)(-size & (TAR_BLOCK - 1));
}

/* Appends the content of a meta entry to `b`. */
static int read_body(struct tar_reader *r, struct buf *b, uint64_t size, struct err *e)
{
	uint32_t padding = padding_of(size);

	if (size > b->max - b->len)
		return err_set(e, EMSGSIZE, "an extended header or long name is too long");
	while (size) {
		size_t have = r->filled - r->at;

		if (have > size)
			have = (size_t)size;
		if (have && buf_add(b, r->window + r->at, have) < 0)
			return err_set(e, b->failed, "keep an extended header: %m");
		r->at += have;
		size -= have;
		if (size) {
			ssize_t n = window_fill(r, e);

			if (n <= 0)
				return n < 0 ? (int)n : cut_short(e);
		}
	}
	return skip_bytes(r, padding, e);
}

/* Two's complement in the bits after the first one, which marks it. */
static int base256(const unsigned char *p, size_t len, int64_t *ret)
{
	int64_t v = (p[0] & 0x40) ? -1 : 0;

	v = v * 64 + (p[0] & 0x3f);
	for (size_t i = 1; i < len; i++) {
		if (v > INT64_MAX / 256 || v < INT64_MIN / 256)
			return -EBADMSG;
		v = v * 256 + p[i];
	}
	*ret = v;
	return 0;
}

/* Octal digits between blanks, ended by NUL, a blank or the field's end; an empty field is 0. */
static int header_number(const char *block, size_t at, size_t len, int64_t *ret)
{
	const char *s = block + at, *end = s + len;
	int64_t v = 0;

	if (*s & 0x80)
		return base256((const unsigned char *)s, len, ret);
	while (s < end && *s == ' ')
		s++;
	for (; s < end && *s >= '0' && *s <= '7'; s++)
		v = v * 8 + (*s - '0'); /* 12 digits at most */
	if (s < end && *s != ' ' && *s != '\0')
		return -EBADMSG;
	*ret = v;
	return 0;
}

static int header_unsigned(const char *block, size_t at, size_t len, uint64_t *ret)
{
	int64_t v = 0;

	if (header_number(block, at, len, &v) < 0 || v < 0)
		return -EBADMSG;
	*ret = (uint64_t)v;
	return 0;
}

static bool all_zero(const char *block)
{
	return block[0] == '\0' && !memcmp(block, block + 1, TAR_BLOCK - 1);
}

/* Old writers added the bytes as signed ones. */
static bool checksum_right(const char *block)
{
	int64_t as_unsigned = 0, as_signed = 0, want = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++) {
		char c = i >= AT_CHECKSUM && i < AT_CHECKSUM + 8 ? ' ' : block[i];

		as_unsigned += (unsigned char)c;
		as_signed += (signed char)c;
	}
	return header_number(block, AT_CHECKSUM, 8, &want) == 0 &&
	       (want == as_unsigned || want == as_signed);
}

static void copy_field(char *out, const char *field, size_t len)
{
	len = strnlen(field, len);
	memcpy(out, field, len);
	out[len] = '\0';
}

/* Name and link target as the header alone has them. */
static void header_names(struct tar_reader *r, const char *block)
{
	bool star = !memcmp(block + AT_STAR_MAGIC, "tar", 4);
	size_t prefix = 0;

	if (!memcmp(block + AT_MAGIC, "ustar", 6))
		prefix = strnlen(block + AT_PREFIX, star ? LEN_STAR_PREFIX : LEN_PREFIX);
	if (prefix) {
		memcpy(r->name, block + AT_PREFIX, prefix);
		r->name[prefix++] = '/';
	}
	copy_field(r->name + prefix, block + AT_NAME, LEN_NAME);
	copy_field(r->link, block + AT_LINK, LEN_NAME);
}

static int kind_of(char type, const char *name, enum tar_kind *ret)
{
	size_t len = strlen(name);

	switch (type) {
	case '\0':
	case '0': /* v7 marks a directory by its name only */
		*ret = len && name[len - 1] == '/' ? TAR_DIR : TAR_FILE;
		return 0;
	case '7':
	case 'S':
		*ret = TAR_FILE;
		return 0;
	case '1':
		*ret = TAR_HARDLINK;
		return 0;
	case '2':
		*ret = TAR_SYMLINK;
		return 0;
	case '3':
	case '4':
		*ret = TAR_DEVICE;
		return 0;
	case '5':
	case 'D': /* with a listing as its content */
		*ret = TAR_DIR;
		return 0;
	case '6':
		*ret = TAR_FIFO;
		return 0;
	default:
		return -EBADMSG;
	}
}

static int bad_field(struct err *e, const char *what)
{
	return err_set(e, EBADMSG, "bad %s", what);
}

/* Numbers of the header, or of the extended header where that has them. */
static int entry_numbers(struct tar_reader *r, const char *block, struct tar_entry *n,
			 struct err *e)
{
	const struct tar_pax *pax = &r->pax;
	uint64_t uid = pax->uid, gid = pax->gid, size = pax->size;
	int64_t mode, mtime;

	if (header_number(block, AT_MODE, 8, &mode) < 0)
		return bad_field(e, "mode");
	if (!(pax->have & PAX_UID) && header_unsigned(block, AT_UID, 8, &uid) < 0)
		return bad_field(e, "user id");
	if (!(pax->have & PAX_GID) && header_unsigned(block, AT_GID, 8, &gid) < 0)
		return bad_field(e, "group id");
	if (uid >= UINT32_MAX || gid >= UINT32_MAX)
		return bad_field(e, "user or group id");
	if (!(pax->have & PAX_SIZE) && header_unsigned(block, AT_SIZE, 12, &size) < 0)
		return bad_field(e, "size");
	n->mtime = pax->mtime;
	if (!(pax->have & PAX_MTIME)) {
		if (header_number(block, AT_MTIME, 12, &mtime) < 0)
			return bad_field(e, "modification time");
		n->mtime = (struct tar_time){ mtime, 0 };
	}
	n->mode = (uint32_t)mode & 07777;
	n->uid = (uint32_t)uid;
	n->gid = (uint32_t)gid;
	n->size = size;
	return 0;
}

/* Takes the extents of one run; a field without a length ends it early. */
static int gnu_extents(struct tar_map *m, const char *at, int count, struct err *e)
{
	for (int i = 0; i < count; i++, at += LEN_EXTENT) {
		uint64_t offset, len;
		int n;

		if (at[12] == '\0')
			break;
		if (header_unsigned(at, 0, 12, &offset) < 0 ||
		    header_unsigned(at, 12, 12, &len) < 0)
			return bad_field(e, "sparse map");
		n = tar_map_push(m, offset, len);
		if (n < 0)
			return err_set(e, n, "keep the sparse map: %m");
	}
	return 0;
}

/* Old GNU format: the map is in the header and in blocks between it and the content. */
static int sparse_gnu(struct tar_reader *r, const char *block, uint64_t *ret_size, struct err *e)
{
	bool more = block[AT_GNU_MORE] != '\0';
	int n;

	if (header_unsigned(block, AT_GNU_SIZE, 12, ret_size) < 0)
		return bad_field(e, "size of a sparse file");
	n = gnu_extents(&r->map, block + AT_GNU_EXTENTS, 4, e);
	while (!n && more) {
		n = need_block(r, &block, e);
		if (n < 0)
			return n;
		more = block[AT_MORE_MORE] != '\0';
		n = gnu_extents(&r->map, block, MORE_EXTENTS, e);
	}
	return n;
}

/* A run of decimal numbers, a line each, in blocks of the entry's content. */
struct map_text {
	const char *block;
	size_t at;
};

static int map_number(struct tar_reader *r, struct map_text *t, uint64_t *ret, struct err *e)
{
	uint64_t v = 0;
	bool digits = false;

	for (;;) {
		char c;

		if (t->at == TAR_BLOCK) {
			int n;

			if (r->stored < TAR_BLOCK)
				return bad_field(e, "sparse map");
			n = need_block(r, &t->block, e);
			if (n < 0)
				return n;
			r->stored -= TAR_BLOCK;
			t->at = 0;
		}
		c = t->block[t->at++];
		if (c == '\n' && digits)
			break;
		if (c < '0' || c > '9' || v > (INT64_MAX - 9) / 10)
			return bad_field(e, "sparse map");
		v = v * 10 + (uint64_t)(c - '0');
		digits = true;
	}
	*ret = v;
	return 0;
}

/* PAX 1.0: the map is the first part of the content. */
static int sparse_pax1(struct tar_reader *r, struct err *e)
{
	struct map_text t = { .at = TAR_BLOCK };
	uint64_t count = 0, offset = 0, len = 0;
	int n = map_number(r, &t, &count, e);

	if (n < 0)
		return n;
	while (count--) {
		n = map_number(r, &t, &offset, e);
		if (!n)
			n = map_number(r, &t, &len, e);
		if (n < 0)
			return n;
		n = tar_map_push(&r->map, offset, len);
		if (n < 0)
			return err_set(e, n, "keep the sparse map: %m");
	}
	return 0;
}

/* Finds out where the content goes; `n->size` is what the header said and becomes that of the
 * file. */
static int entry_content(struct tar_reader *r, const char *block, struct tar_entry *n,
			 struct err *e)
{
	const struct tar_pax *pax = &r->pax;
	bool version1 = (pax->have & PAX_SPARSE_MAJOR) && pax->sparse_major == 1;
	bool old_gnu = block[AT_TYPE] == 'S'; /* `block` is gone once the next one was read */
	uint64_t size = pax->sparse_size;
	int f = 0;

	r->stored = n->size;
	r->padding = padding_of(n->size);
	r->whole = (struct tar_extent){ 0, n->size };
	r->extent = &r->whole;
	r->extent_end = r->extent + 1;
	r->extent_used = 0;
	if (old_gnu)
		f = sparse_gnu(r, block, &size, e);
	else if (version1 && pax->sparse_minor == 0)
		f = sparse_pax1(r, e);
	else if ((pax->have & PAX_SPARSE_MAJOR) && pax->sparse_major > 0)
		return err_set(e, EBADMSG, "sparse format %llu.%llu is not known",
			       (unsigned long long)pax->sparse_major,
			       (unsigned long long)pax->sparse_minor);
	else if (!(pax->have & PAX_SPARSE_MAP) && !(pax->have & PAX_SPARSE_SIZE))
		return 0;
	if (f < 0)
		return f;
	if (!old_gnu && !(pax->have & PAX_SPARSE_SIZE))
		return bad_field(e, "sparse map");
	if (size > INT64_MAX || tar_map_check(&r->map, r->stored, size) < 0)
		return bad_field(e, "sparse map");
	n->size = size;
	r->extent = r->map.list;
	r->extent_end = r->map.list ? r->map.list + r->map.count : NULL;
	return 0;
}

/* The extended headers that hold for the next entry, and no other. */
static int apply_pax(struct tar_reader *r, struct err *e)
{
	r->pax = r->global_pax;
	if (!r->local.len)
		return 0;
	return tar_pax_parse(&r->pax, r->local.data, r->local.len, &r->map, e);
}

/* Values point into the parsed text, and parsing changes it: a copy is parsed anew. */
static int add_global(struct tar_reader *r, uint64_t size, struct err *e)
{
	int n = read_body(r, &r->global, size, e);

	if (n < 0)
		return n;
	buf_clear(&r->global_text);
	if (buf_add(&r->global_text, buf_str(&r->global), r->global.len) < 0)
		return err_set(e, r->global_text.failed, "keep a global header: %m");
	r->global_pax = (struct tar_pax){ 0 };
	return tar_pax_parse(&r->global_pax, r->global_text.data, r->global_text.len, NULL, e);
}

static const char *entry_name(const struct tar_reader *r)
{
	if (r->pax.have & PAX_SPARSE_NAME)
		return r->pax.sparse_name;
	if (r->pax.have & PAX_PATH)
		return r->pax.path;
	return r->long_name.len ? r->long_name.data : r->name;
}

static const char *entry_link(const struct tar_reader *r)
{
	if (r->pax.have & PAX_LINK)
		return r->pax.link;
	return r->long_link.len ? r->long_link.data : r->link;
}

static int make_entry(struct tar_reader *r, const char *block, struct tar_entry *ret, struct err *e)
{
	struct tar_entry n = { .link = "" };
	uint64_t listing;
	int f;

	header_names(r, block);
	f = apply_pax(r, e);
	if (f < 0)
		return f;
	n.name = entry_name(r);
	if (!*n.name || strlen(n.name) > TAR_NAME_MAX)
		return bad_field(e, "name");
	if (kind_of(block[AT_TYPE], n.name, &n.kind) < 0)
		return err_set(e, EBADMSG, "entries of type 0x%02x are not known",
			       (unsigned char)block[AT_TYPE]);
	if (n.kind == TAR_SYMLINK || n.kind == TAR_HARDLINK) {
		n.link = entry_link(r);
		if (!*n.link || strlen(n.link) > TAR_NAME_MAX)
			return bad_field(e, "link target");
	}
	f = entry_numbers(r, block, &n, e);
	if (f < 0)
		return f;
	listing = block[AT_TYPE] == 'D' ? n.size : 0;
	if (n.kind == TAR_FILE) {
		f = entry_content(r, block, &n, e);
	} else {
		n.size = 0;
		r->extent = r->extent_end = NULL;
		r->stored = listing;
		r->padding = padding_of(listing);
	}
	if (f < 0)
		return f;
	n.xattrs = r->pax.xattrs;
	n.xattrs_count = r->pax.xattrs_count;
	*ret = n;
	return 1;
}

/* A header, past the meta entry it may be: 1 when `block` describes an object, 0 when it was a
 * meta entry, which is kept for the object that follows. */
static int take_meta(struct tar_reader *r, const char *block, struct err *e)
{
	char type = block[AT_TYPE];
	struct buf *name = type == 'K' ? &r->long_link : &r->long_name;
	uint64_t size = 0;

	if (type != 'x' && type != 'X' && type != 'g' && type != 'L' && type != 'K' && type != 'V')
		return 1;
	if (header_unsigned(block, AT_SIZE, 12, &size) < 0)
		return bad_field(e, "size of an extended header");
	switch (type) {
	case 'g':
		return add_global(r, size, e);
	case 'K':
	case 'L':
		buf_clear(name);
		return read_body(r, name, size, e);
	case 'V':
		return skip_bytes(r, size + padding_of(size), e);
	default:
		return read_body(r, &r->local, size, e);
	}
}

static void forget_entry(struct tar_reader *r)
{
	buf_clear(&r->local);
	buf_clear(&r->long_name);
	buf_clear(&r->long_link);
	r->map.count = 0;
	r->extent = r->extent_end = NULL;
}

int tar_next(struct tar_reader *r, struct tar_entry *ret, struct err *e)
{
	int n = skip_bytes(r, r->stored, e);

	if (!n)
		n = skip_bytes(r, r->padding, e);
	if (n < 0)
		return n;
	r->stored = 0;
	r->padding = 0;
	forget_entry(r);
	do {
		const char *block;

		n = need_block(r, &block, e);
		if (n < 0)
			return n;
		if (all_zero(block)) {
			n = need_block(r, &block, e);
			if (n < 0)
				return n;
			return all_zero(block) ? 0 : err_set(e, EBADMSG, "half an end mark");
		}
		if (!checksum_right(block))
			return err_set(e, EBADMSG, "not a tar archive, or damaged: bad checksum");
		n = take_meta(r, block, e);
		if (n == 1)
			return make_entry(r, block, ret, e);
	} while (n == 0);
	return n;
}

ssize_t tar_data(struct tar_reader *r, const void **ret_data, uint64_t *ret_offset, struct err *e)
{
	uint64_t len;

	while (r->extent != r->extent_end && r->extent_used == r->extent->len) {
		r->extent++;
		r->extent_used = 0;
	}
	if (r->extent == r->extent_end)
		return 0;
	if (r->at == r->filled) {
		ssize_t n;

		r->at = r->filled = 0;
		n = window_fill(r, e);
		if (n <= 0)
			return n < 0 ? n : cut_short(e);
	}
	len = r->extent->len - r->extent_used;
	if (len > r->filled - r->at)
		len = r->filled - r->at;
	*ret_data = r->window + r->at;
	*ret_offset = r->extent->offset + r->extent_used;
	r->at += (size_t)len;
	r->extent_used += len;
	r->stored -= len;
	return (ssize_t)len;
}

int tar_drain(struct tar_reader *r, struct err *e)
{
	ssize_t n;

	do {
		r->at = r->filled = 0;
		n = window_fill(r, e);
	} while (n > 0);
	return (int)n;
}
