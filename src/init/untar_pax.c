#include "untar_pax.h"

#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

enum pax_type { TEXT, NUMBER, TIME, EXTENT_OFFSET, EXTENT_LEN, EXTENT_LIST };

struct pax_key {
	const char *name;
	enum pax_type type;
	unsigned have;
	size_t at; /* of the field in struct tar_pax */
};

#define AT(field) offsetof(struct tar_pax, field)

static const struct pax_key keys[] = {
	{ "path", TEXT, PAX_PATH, AT(path) },
	{ "linkpath", TEXT, PAX_LINK, AT(link) },
	{ "size", NUMBER, PAX_SIZE, AT(size) },
	{ "uid", NUMBER, PAX_UID, AT(uid) },
	{ "gid", NUMBER, PAX_GID, AT(gid) },
	{ "mtime", TIME, PAX_MTIME, AT(mtime) },
	{ "GNU.sparse.name", TEXT, PAX_SPARSE_NAME, AT(sparse_name) },
	{ "GNU.sparse.major", NUMBER, PAX_SPARSE_MAJOR, AT(sparse_major) },
	{ "GNU.sparse.minor", NUMBER, PAX_SPARSE_MINOR, AT(sparse_minor) },
	{ "GNU.sparse.size", NUMBER, PAX_SPARSE_SIZE, AT(sparse_size) },
	{ "GNU.sparse.realsize", NUMBER, PAX_SPARSE_SIZE, AT(sparse_size) },
	{ "GNU.sparse.offset", EXTENT_OFFSET, PAX_SPARSE_MAP, 0 },
	{ "GNU.sparse.numbytes", EXTENT_LEN, PAX_SPARSE_MAP, 0 },
	{ "GNU.sparse.map", EXTENT_LIST, PAX_SPARSE_MAP, 0 },
};

/* "[-]seconds[.fraction]"; digits beyond nanoseconds are dropped. */
static int parse_time(char *s, struct tar_time *ret)
{
	bool negative = *s == '-';
	char *dot = strchr(s, '.');
	uint64_t seconds;
	uint32_t ns = 0;
	int r;

	if (dot)
		*dot = '\0';
	r = str_u64(s + negative, 0, INT64_MAX - 1, &seconds);
	if (dot)
		*dot = '.';
	if (r < 0)
		return -EBADMSG;
	for (int i = 0; dot && i < 9; i++) {
		if (dot[1] && (dot[1] < '0' || dot[1] > '9'))
			return -EBADMSG;
		ns = ns * 10 + (dot[1] ? (uint32_t)(*++dot - '0') : 0);
	}
	*ret = (struct tar_time){ (int64_t)seconds, ns };
	if (negative)
		*ret = ns ? (struct tar_time){ -(int64_t)seconds - 1, 1000000000u - ns }
			  : (struct tar_time){ -(int64_t)seconds, 0 };
	return 0;
}

/* "offset,length,offset,length…" */
static int parse_extents(char *s, struct tar_map *map)
{
	uint64_t pair[2];
	int half = 0;

	while (s) {
		char *comma = strchr(s, ',');
		int r;

		if (comma)
			*comma++ = '\0';
		if (str_u64(s, 0, INT64_MAX, &pair[half]) < 0)
			return -EBADMSG;
		s = comma;
		half = !half;
		if (half)
			continue;
		r = tar_map_push(map, pair[0], pair[1]);
		if (r < 0)
			return r;
	}
	return half ? -EBADMSG : 0;
}

static int parse_extent(struct tar_pax *p, enum pax_type type, char *value, struct tar_map *map)
{
	uint64_t number;

	if (type == EXTENT_LIST)
		return parse_extents(value, map);
	if (str_u64(value, 0, INT64_MAX, &number) < 0 || p->extent_open != (type == EXTENT_LEN))
		return -EBADMSG;
	p->extent_open = !p->extent_open;
	if (!p->extent_open)
		return tar_map_push(map, p->extent_offset, number);
	p->extent_offset = number;
	return 0;
}

static int parse_value(struct tar_pax *p, const struct pax_key *k, char *value, struct tar_map *map)
{
	void *field = (char *)p + k->at;
	uint64_t number;
	int r = 0;

	if (!*value && k->type <= TIME) {
		p->have &= ~k->have;
		return 0;
	}
	switch (k->type) {
	case TEXT:
		memcpy(field, &value, sizeof(value));
		break;
	case NUMBER:
		r = str_u64(value, 0, INT64_MAX, &number) < 0 ? -EBADMSG : 0;
		if (!r)
			memcpy(field, &number, sizeof(number));
		break;
	case TIME:
		r = parse_time(value, field);
		break;
	case EXTENT_OFFSET:
	case EXTENT_LEN:
	case EXTENT_LIST:
		r = map ? parse_extent(p, k->type, value, map) : -EBADMSG;
		break;
	}
	if (!r)
		p->have |= k->have;
	return r;
}

/* GNU tar writes '=' and '%' in the name of an attribute as %3D and %25. */
static void decode_name(char *name)
{
	char *out = name;

	while (*name) {
		bool equals = str_starts(name, "%3D");

		if (equals || str_starts(name, "%25")) {
			*out++ = equals ? '=' : '%';
			name += 3;
		} else {
			*out++ = *name++;
		}
	}
	*out = '\0';
}

/* A later value of the same name wins. */
static int keep_xattr(struct tar_pax *p, char *name, const void *value, size_t len)
{
	size_t i = 0;

	if (!*name)
		return -EBADMSG;
	decode_name(name);
	while (i < p->xattrs_count && !str_eq(p->xattrs[i].name, name))
		i++;
	if (i == TAR_XATTRS_MAX)
		return -EMSGSIZE;
	p->xattrs[i] = (struct tar_xattr){ name, value, len };
	if (i == p->xattrs_count)
		p->xattrs_count++;
	return 0;
}

static const char xattr[] = "SCHILY.xattr.";

static int parse_record(struct tar_pax *p, char *key, char *value, size_t len, struct tar_map *map)
{
	if (str_starts(key, xattr))
		return keep_xattr(p, key + sizeof(xattr) - 1, value, len);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (!str_eq(keys[i].name, key))
			continue;
		return strlen(value) == len ? parse_value(p, &keys[i], value, map) : -EBADMSG;
	}
	return 0;
}

/* The length at the start of a record, which counts itself; 0 for none that fits `left`. */
static size_t record_len(const char *s, size_t left, size_t *ret_digits)
{
	size_t len = 0, i = 0;

	while (i < left && s[i] >= '0' && s[i] <= '9') {
		len = len * 10 + (size_t)(s[i++] - '0');
		if (len > left)
			return 0;
	}
	if (i == 0 || i == left || s[i] != ' ')
		return 0;
	*ret_digits = i;
	return len;
}

int tar_pax_parse(struct tar_pax *p, char *text, size_t len, struct tar_map *map, struct err *e)
{
	while (len) {
		size_t digits = 0, record = record_len(text, len, &digits);
		char *key = text + digits + 1, *last, *equals;
		int r;

		if (record < digits + 4 || text[record - 1] != '\n') /* "n k=\n" */
			return err_set(e, EBADMSG, "extended header: a record's length is wrong");
		last = text + record - 1;
		equals = memchr(key, '=', (size_t)(last - key));
		if (!equals || equals == key || memchr(key, '\0', (size_t)(equals - key)))
			return err_set(e, EBADMSG, "extended header: a record has no key");
		*equals = '\0';
		*last = '\0';
		r = parse_record(p, key, equals + 1, (size_t)(last - equals) - 1, map);
		if (r < 0)
			return err_set(e, r, "extended header: %s %s",
				       r == -EBADMSG ? "bad value of" : "too much of",
				       str_starts(key, xattr) ? "an attribute" : key);
		text += record;
		len -= record;
	}
	if (p->extent_open)
		return err_set(e, EBADMSG, "extended header: an extent has no length");
	return 0;
}
