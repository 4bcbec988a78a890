#include "conf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

enum { RESERVED_ADDRESSES = 16, CONF_SIZE = 8192 };

static int set_text(char *out, size_t size, const char *value)
{
	return *value && str_copy(out, size, value) ? 0 : -EINVAL;
}

static int set_path(char *out, size_t size, const char *value)
{
	return *value == '/' ? set_text(out, size, value) : -EINVAL;
}

static int set_u32(uint32_t *out, const char *value, uint64_t min, uint64_t max)
{
	uint64_t v;
	int r = str_u64(value, min, max, &v);

	if (!r)
		*out = (uint32_t)v;
	return r;
}

static int set_instance(struct conf *c, const char *v)
{
	for (const char *p = v; *p; p++) {
		if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p))
			return -EINVAL;
	}
	return set_text(c->instance, sizeof(c->instance), v);
}

static int set_run_dir(struct conf *c, const char *v)
{
	return set_path(c->run_dir, sizeof(c->run_dir), v);
}

static int set_pool_dir(struct conf *c, const char *v)
{
	return set_path(c->pool_dir, sizeof(c->pool_dir), v);
}

static int set_init(struct conf *c, const char *v)
{
	return set_path(c->init, sizeof(c->init), v);
}

static int set_uid(struct conf *c, const char *v)
{
	return set_u32(&c->uid, v, 0, INT32_MAX);
}

static int set_gid(struct conf *c, const char *v)
{
	return set_u32(&c->gid, v, 0, INT32_MAX);
}

static int set_id_base(struct conf *c, const char *v)
{
	int r = set_u32(&c->id_base, v, IDS_PER_SLOT, UINT32_MAX - 2 * IDS_PER_SLOT);

	return r ? r : c->id_base % IDS_PER_SLOT ? -EINVAL : 0;
}

static int set_slots_max(struct conf *c, const char *v)
{
	return set_u32(&c->slots_max, v, 1, 65536);
}

static int set_ipv4(struct conf *c, const char *v)
{
	char text[INET_ADDRSTRLEN + 4];
	uint64_t bits;
	char *slash;

	if (!str_copy(text, sizeof(text), v) || !(slash = strchr(text, '/')))
		return -EINVAL;
	*slash = '\0';
	if (inet_pton(AF_INET, text, &c->net4) != 1 || str_u64(slash + 1, 8, 26, &bits))
		return -EINVAL;
	c->bits4 = (unsigned)bits;
	return ntohl(c->net4.s_addr) & ((1u << (32 - c->bits4)) - 1) ? -EINVAL : 0;
}

static int set_ipv6(struct conf *c, const char *v)
{
	char text[INET6_ADDRSTRLEN + 4];
	char *slash;

	if (!str_copy(text, sizeof(text), v) || !(slash = strchr(text, '/')) ||
	    !str_eq(slash, "/48"))
		return -EINVAL;
	*slash = '\0';
	return inet_pton(AF_INET6, text, &c->net6) == 1 ? 0 : -EINVAL;
}

static const struct setting {
	const char *key;
	int (*set)(struct conf *c, const char *value);
} settings[] = {
	{ "instance", set_instance }, { "run_dir", set_run_dir },
	{ "pool_dir", set_pool_dir }, { "init", set_init },
	{ "uid", set_uid },           { "gid", set_gid },
	{ "id_base", set_id_base },   { "slots_max", set_slots_max },
	{ "ipv4", set_ipv4 },         { "ipv6", set_ipv6 },
};

static int set_line(struct conf *c, char *line, unsigned *seen, struct err *e)
{
	char *value = strchr(line, '=');

	if (!value)
		return err_set(e, EINVAL, "'%s' is not key=value", line);
	*value++ = '\0';
	for (unsigned i = 0; i < ARRAY_SIZE(settings); i++) {
		if (!str_eq(settings[i].key, line))
			continue;
		if (settings[i].set(c, value))
			return err_set(e, EINVAL, "bad value for %s: '%s'", line, value);
		*seen |= 1u << i;
		return 0;
	}
	return err_set(e, EINVAL, "unknown key '%s'", line);
}

int conf_load(struct conf *c, const char *path, struct err *e)
{
	char text[CONF_SIZE];
	unsigned seen = 0;
	ssize_t n = read_text_at(AT_FDCWD, path, text, sizeof(text));
	uint64_t by_ids, by_addresses;
	char *next = text;

	if (n < 0)
		return err_set(e, (int)-n, "read '%s': %m", path);
	*c = (struct conf){ 0 };
	while (*next) {
		char *line = next;

		next += strcspn(next, "\n");
		if (*next)
			*next++ = '\0';
		if (*line && *line != '#' && set_line(c, line, &seen, e))
			return err_wrap(e, "read '%s'", path);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(settings); i++) {
		if (!(seen & (1u << i)))
			return err_set(e, EINVAL, "'%s' lacks %s", path, settings[i].key);
	}
	/* the range after the last slot's is the unpacker's */
	by_ids = (UINT32_MAX - (uint64_t)c->id_base) / IDS_PER_SLOT - 1;
	by_addresses = (1ull << (32 - c->bits4)) - RESERVED_ADDRESSES - 1;
	if (c->slots_max > by_ids)
		c->slots_max = (uint32_t)by_ids;
	if (c->slots_max > by_addresses)
		c->slots_max = (uint32_t)by_addresses;
	return 0;
}

struct in_addr conf_addr4(const struct conf *c, uint32_t slot)
{
	return (struct in_addr){ htonl(ntohl(c->net4.s_addr) + RESERVED_ADDRESSES + slot) };
}

struct in6_addr conf_addr6(const struct conf *c, uint32_t slot)
{
	struct in6_addr a = c->net6;

	a.s6_addr[13] = 1;
	a.s6_addr[14] = (uint8_t)((slot + RESERVED_ADDRESSES) >> 8);
	a.s6_addr[15] = (uint8_t)(slot + RESERVED_ADDRESSES);
	if (slot + RESERVED_ADDRESSES > 0xffff)
		a.s6_addr[13] = 2;
	return a;
}

struct in_addr conf_gateway4(const struct conf *c)
{
	return (struct in_addr){ htonl(ntohl(c->net4.s_addr) + 1) };
}

struct in6_addr conf_gateway6(const struct conf *c)
{
	struct in6_addr a = c->net6;

	a.s6_addr[15] = 1;
	return a;
}

uint32_t conf_root_id(const struct conf *c, uint32_t slot)
{
	return c->id_base + slot * IDS_PER_SLOT;
}

void conf_addresses(const struct conf *c, uint32_t slot, char ret4[INET_ADDRSTRLEN],
		    char ret6[INET6_ADDRSTRLEN])
{
	struct in_addr a4 = conf_addr4(c, slot);
	struct in6_addr a6 = conf_addr6(c, slot);

	inet_ntop(AF_INET, &a4, ret4, INET_ADDRSTRLEN);
	inet_ntop(AF_INET6, &a6, ret6, INET6_ADDRSTRLEN);
}

gid_t conf_key_group(const struct conf *c)
{
	/* the last id of the range behind the slots', of which the unpacker uses the first ones */
	return conf_root_id(c, c->slots_max) + IDS_PER_SLOT - 1;
}
