#include "init/tar_write.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/str.h"

enum { OCTAL_7 = 07777777, NAME = 100, ID_MOST = OCTAL_7 };

struct header {
	char name[NAME], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[NAME];
	char magic[8], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct header) == TARW_BLOCK, "a block");

static void zeros(struct buf *b, size_t len)
{
	static const char none[TARW_BLOCK];

	buf_add(b, none, len);
}

size_t tarw_padding(uint64_t content)
{
	return (size_t)((TARW_BLOCK - content % TARW_BLOCK) % TARW_BLOCK);
}

void tarw_end(struct buf *out)
{
	zeros(out, TARW_BLOCK);
	zeros(out, TARW_BLOCK);
}

static size_t digits(size_t n)
{
	size_t count = 1;

	while (n >= 10) {
		n /= 10;
		count++;
	}
	return count;
}

/* "<length of all> <key>=<value>\n", its own digits counted. */
static void record(struct buf *pax, const char *key, const void *value, size_t len)
{
	size_t rest = 1 + strlen(key) + 1 + len + 1, all = rest + digits(rest);

	if (digits(all) > digits(rest))
		all++;
	buf_addf(pax, "%zu %s=", all, key);
	buf_add(pax, value, len);
	buf_addc(pax, '\n');
}

static void record_text(struct buf *pax, const char *key, const char *value)
{
	record(pax, key, value, strlen(value));
}

static void record_number(struct buf *pax, const char *key, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	record_text(pax, key, text);
}

/* '=' ends a key: it and '%' are written as GNU tar writes them. */
void tarw_xattr(struct buf *pax, const char *name, const void *value, size_t len)
{
	char key[sizeof("SCHILY.xattr.") + 3 * XATTR_NAME_MAX] = "SCHILY.xattr.";
	size_t at = strlen(key);

	for (; *name && at + 4 <= sizeof(key); name++) {
		if (*name == '=' || *name == '%')
			at += (size_t)snprintf(key + at, 4, "%%%02X", *name);
		else
			key[at++] = *name;
	}
	key[at] = '\0';
	record(pax, key, value, len);
}

/* "[-]seconds[.nanoseconds]", which a negative time counts down from its seconds. */
static void record_time(struct buf *pax, const char *key, struct timespec t)
{
	bool negative = t.tv_sec < 0;
	uint64_t seconds = (uint64_t)t.tv_sec;
	uint64_t ns = (uint64_t)t.tv_nsec;
	char text[48];

	if (negative) {
		seconds = 0 - seconds - (ns > 0);
		ns = ns ? NS_PER_SEC - ns : 0;
	}
	snprintf(text, sizeof(text), "%s%" PRIu64 ".%09" PRIu64, negative ? "-" : "", seconds, ns);
	if (!ns)
		*strchr(text, '.') = '\0';
	record_text(pax, key, text);
}

static void octal(char *field, size_t size, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%0*" PRIo64, (int)size - 1, value);
	memcpy(field, text, size - 1);
}

static void put(char *field, size_t size, const char *text)
{
	size_t len = strlen(text);

	memcpy(field, text, len < size ? len : size);
}

static void finish(struct buf *out, struct header *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned sum = 0;

	memset(h->sum, ' ', sizeof(h->sum));
	memcpy(h->magic, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(*h); i++)
		sum += p[i];
	octal(h->sum, sizeof(h->sum) - 1, sum);
	h->sum[6] = '\0';
	buf_add(out, h, sizeof(*h));
}

/* What the header cannot say. */
static void say_more(struct buf *pax, const struct tarw_entry *n, const char *name, uint64_t size)
{
	const char *link = n->link ? n->link : "";
	bool binary = !utf8_valid(name, strlen(name)) || !utf8_valid(link, strlen(link));
	bool long_name = strlen(name) > NAME, long_link = strlen(link) > NAME;

	if (binary && (long_name || long_link))
		record_text(pax, "hdrcharset", "BINARY");
	if (long_name && !n->extents)
		record_text(pax, "path", name);
	if (long_link)
		record_text(pax, "linkpath", link);
	if (size > 077777777777)
		record_number(pax, "size", (int64_t)size);
	if (n->st->st_uid > ID_MOST)
		record_number(pax, "uid", n->st->st_uid);
	if (n->st->st_gid > ID_MOST)
		record_number(pax, "gid", n->st->st_gid);
	if (n->st->st_mtim.tv_nsec || n->st->st_mtim.tv_sec < 0 ||
	    n->st->st_mtim.tv_sec > 077777777777)
		record_time(pax, "mtime", n->st->st_mtim);
}

static void put_pax(struct buf *out, struct buf *pax)
{
	struct header h = { .type = 'x' };

	if (!pax->len)
		return;
	put(h.name, sizeof(h.name), "PaxHeaders/next");
	octal(h.mode, sizeof(h.mode), 0644);
	octal(h.uid, sizeof(h.uid), 0);
	octal(h.gid, sizeof(h.gid), 0);
	octal(h.size, sizeof(h.size), pax->len);
	octal(h.mtime, sizeof(h.mtime), 0);
	finish(out, &h);
	buf_add(out, pax->data, pax->len);
	zeros(out, tarw_padding(pax->len));
	buf_clear(pax);
}

/* The map of a sparse file, padded. */
static void put_map(struct buf *map, const struct tarw_entry *n)
{
	buf_addf(map, "%zu\n", n->extents_count);
	for (size_t i = 0; i < n->extents_count; i++)
		buf_addf(map, "%" PRIu64 "\n%" PRIu64 "\n", n->extents[i].offset,
			 n->extents[i].length);
	zeros(map, tarw_padding(map->len));
}

static uint64_t content_of(const struct tarw_entry *n, uint64_t map)
{
	uint64_t size = map;

	if (n->type != '0')
		return 0;
	if (!n->extents)
		return (uint64_t)n->st->st_size;
	for (size_t i = 0; i < n->extents_count; i++)
		size += n->extents[i].length;
	return size;
}

static void say_sparse(struct buf *pax, const struct tarw_entry *n)
{
	if (!utf8_valid(n->name, strlen(n->name)))
		record_text(pax, "hdrcharset", "BINARY");
	record_text(pax, "GNU.sparse.major", "1");
	record_text(pax, "GNU.sparse.minor", "0");
	record_text(pax, "GNU.sparse.name", n->name);
	record_number(pax, "GNU.sparse.realsize", n->st->st_size);
}

void tarw_head(struct buf *out, struct buf *pax, const struct tarw_entry *n, uint64_t *ret_content)
{
	struct buf map = BUF_INIT(2 * 1024 * 1024), name = BUF_INIT(8192);
	const uint64_t most = 077777777777;
	struct header h = { .type = n->type };
	uint64_t content;

	buf_adds(&name, n->extents ? "GNUSparseFile.0/" : "");
	buf_adds(&name, n->name);
	if (n->type == '5')
		buf_addc(&name, '/');
	if (n->extents) {
		put_map(&map, n);
		say_sparse(pax, n);
	}
	content = content_of(n, map.len);
	say_more(pax, n, buf_str(&name), content);
	put_pax(out, pax);
	put(h.name, sizeof(h.name), buf_str(&name));
	put(h.link, sizeof(h.link), n->link ? n->link : "");
	octal(h.mode, sizeof(h.mode), n->st->st_mode & 07777);
	octal(h.uid, sizeof(h.uid), n->st->st_uid > ID_MOST ? 0 : n->st->st_uid);
	octal(h.gid, sizeof(h.gid), n->st->st_gid > ID_MOST ? 0 : n->st->st_gid);
	octal(h.size, sizeof(h.size), content > most ? 0 : content);
	octal(h.mtime, sizeof(h.mtime),
	      n->st->st_mtim.tv_sec < 0 || (uint64_t)n->st->st_mtim.tv_sec > most
		      ? 0
		      : (uint64_t)n->st->st_mtim.tv_sec);
	put(h.user, sizeof(h.user) - 1, n->user);
	put(h.group, sizeof(h.group) - 1, n->group);
	finish(out, &h);
	buf_add(out, map.data, map.len);
	*ret_content = content - map.len;
	if (map.failed || name.failed)
		out->failed = out->failed ? out->failed : -ENOMEM;
	buf_release(&map);
	buf_release(&name);
}
