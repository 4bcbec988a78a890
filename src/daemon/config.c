#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "api/field.h"
#include "paths.h"

enum { CONFIG_MAX = 256 * 1024, IDS_PER_SLOT = 65536 };

static int instance_check(const char *s, struct err *e)
{
	size_t len = strlen(s);

	if (len >= 1 && len <= 8 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == len)
		return 0;
	return err_set(e, EINVAL, "'instance' has 1 to 8 characters of a-z 0-9");
}

static int dir_check(const char *s, struct err *e)
{
	if (*s == '/' && !strpbrk(s, "\n\r\"'\\ "))
		return 0;
	return err_set(e, EINVAL, "'%s' is not an absolute path without spaces and quotes", s);
}

static int word_check(const char *s, struct err *e)
{
	if (*s && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") ==
			  strlen(s))
		return 0;
	return err_set(e, EINVAL, "'%s' has characters other than A-Z a-z 0-9 _ . -", s);
}

/* host:port, with an IPv6 host in brackets */
static int listen_check(const char *s, struct err *e)
{
	const char *colon = strrchr(s, ':');
	uint64_t port;

	if (colon && colon != s && str_u64(colon + 1, 1, 65535, &port) == 0 &&
	    strspn(s, "0123456789abcdefABCDEF.:[]") == strlen(s))
		return 0;
	return err_set(e, EINVAL, "'%s' is not an address and port, as in 127.0.0.1:7070", s);
}

static int url_check(const char *s, struct err *e)
{
	if ((str_starts(s, "http://") || str_starts(s, "https://")) && !strpbrk(s, "\n\r\" ") &&
	    !str_ends(s, "/"))
		return 0;
	return err_set(e, EINVAL, "'%s' is not an http or https URL without a slash at its end", s);
}

static int range(const char *s, int family, unsigned least, unsigned most)
{
	char text[64], *slash;
	unsigned char bytes[16];
	uint64_t bits;

	if (!str_copy(text, sizeof(text), s) || !(slash = strchr(text, '/')))
		return -EINVAL;
	*slash = '\0';
	if (inet_pton(family, text, bytes) != 1 || str_u64(slash + 1, least, most, &bits) < 0)
		return -EINVAL;
	for (unsigned i = (unsigned)bits; i < (family == AF_INET ? 32u : 128u); i++) {
		if (bytes[i / 8] & (0x80 >> i % 8))
			return -EINVAL;
	}
	return 0;
}

static int ipv4_check(const char *s, struct err *e)
{
	if (!range(s, AF_INET, 8, 26))
		return 0;
	return err_set(e, EINVAL, "'%s' is not an IPv4 range from /8 to /26", s);
}

static int ipv6_check(const char *s, struct err *e)
{
	if (!range(s, AF_INET6, 48, 48))
		return 0;
	return err_set(e, EINVAL, "'%s' is not an IPv6 range with /48", s);
}

#define C struct config
static const struct field network_fields[] = {
	{ "ipv4", FIELD_KIND_STR, FIELD_AT(C, ipv4, const char *), .check = ipv4_check },
	{ "ipv6", FIELD_KIND_STR, FIELD_AT(C, ipv6, const char *), .check = ipv6_check },
	{ 0 },
};
static const struct field pool_fields[] = {
	{ "path", FIELD_KIND_STR, FIELD_AT(C, pool_path, const char *), .check = dir_check },
	{ "dir", FIELD_KIND_STR, FIELD_AT(C, pool_dir, const char *), .check = dir_check },
	{ 0 },
};
static const struct field connection_fields[] = {
	{ "total", FIELD_KIND_U32, FIELD_AT(C, connections_total, uint32_t), .min = 8, .max = 65536,
	  .absent = 1024 },
	{ "token", FIELD_KIND_U32, FIELD_AT(C, connections_token, uint32_t), .min = 1, .max = 65536,
	  .absent = 512 },
	{ "sandbox", FIELD_KIND_U32, FIELD_AT(C, connections_sandbox, uint32_t), .min = 1,
	  .max = 65536, .absent = 256 },
	{ 0 },
};
static const struct field config_fields[] = {
	FIELD_STR(C, instance, .check = instance_check),
	FIELD_STR(C, state_dir, .max = 200, .check = dir_check),
	FIELD_STR(C, run_dir, .max = 80, .check = dir_check),
	FIELD_STR(C, user, .max = 32, .check = word_check),
	FIELD_STR(C, group, .max = 32, .check = word_check),
	FIELD_STR(C, listen, .max = 64, .check = listen_check),
	FIELD_STR(C, url, .max = 200, .check = url_check),
	FIELD_STR(C, workspace, .max = 63, .check = word_check),
	FIELD_U32(C, id_base, .min = IDS_PER_SLOT, .absent = 1879048192),
	FIELD_U32(C, slots, .max = 256, .absent = 8),
	FIELD_U32(C, overcommit_memory, .min = 1, .max = 1000, .absent = 4),
	FIELD_OBJECT("network", network_fields),
	FIELD_OBJECT("pool", pool_fields),
	FIELD_OBJECT("connections", connection_fields),
	{ 0 },
};
#undef C

/* A /48 of our own that stays the same on this host: from the machine's id. Set-up writes its
 * choice into the file; this one serves where it did not. */
static void derive_ula(const char *instance, char *out, size_t size)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	char seed[128] = "";
	size_t n;

	if (read_text_at(AT_FDCWD, "/etc/machine-id", seed, sizeof(seed) - 16) < 0)
		seed[0] = '\0';
	n = strlen(seed);
	snprintf(seed + n, sizeof(seed) - n, "%s", instance);
	crypto_hash_sha256(hash, (const unsigned char *)seed, strlen(seed));
	snprintf(out, size, "fd%02x:%02x%02x:%02x%02x::/48", hash[0], hash[1], hash[2], hash[3],
		 hash[4]);
}

static int set_default(struct config *c, unsigned slot, const char **value, const char *fmt,
		       const char *arg, struct err *e)
{
	if (*value)
		return 0;
	c->derived[slot] = malloc(strlen(fmt) + strlen(arg) + 1);
	if (!c->derived[slot])
		return err_set(e, ENOMEM, "out of memory");
	snprintf(c->derived[slot], strlen(fmt) + strlen(arg) + 1, "%s%s", *fmt == '<' ? arg : fmt,
		 *fmt == '<' ? fmt + 1 : arg);
	*value = c->derived[slot];
	return 0;
}

static int fill(struct config *c, struct err *e)
{
	const struct {
		const char **value, *fallback;
	} plain[] = {
		{ &c->instance, "skerry" },       { &c->state_dir, "/var/lib/skerry" },
		{ &c->run_dir, "/run/skerry" },   { &c->user, "skerry" },
		{ &c->listen, "127.0.0.1:7070" }, { &c->workspace, "default" },
		{ &c->ipv4, "10.213.0.0/16" },
	};
	char ula[64];
	int r;

	for (unsigned i = 0; i < ARRAY_SIZE(plain); i++) {
		if (!*plain[i].value)
			*plain[i].value = plain[i].fallback;
	}
	if (!c->group)
		c->group = c->user;
	if (c->id_base % IDS_PER_SLOT) {
		err_set(e, EINVAL, "'id_base' is not a multiple of %d", IDS_PER_SLOT);
		return err_field(e, "id_base");
	}
	derive_ula(c->instance, ula, sizeof(ula));
	r = set_default(c, 0, &c->ipv6, "", ula, e);
	if (!r)
		r = set_default(c, 1, &c->url, "http://", c->listen, e);
	if (!r)
		r = set_default(c, 2, &c->pool_path, "</pool.img", c->state_dir, e);
	if (!r)
		r = set_default(c, 3, &c->pool_dir, "</pool", c->state_dir, e);
	return r;
}

int config_load(struct config *c, const char *path, struct err *e)
{
	_cleanup_free_ char *text = malloc(CONFIG_MAX);
	ssize_t n;
	int r;

	*c = (struct config){ 0 };
	if (!text)
		return err_set(e, ENOMEM, "out of memory");
	n = read_text_at(AT_FDCWD, path, text, CONFIG_MAX);
	if (n == -ENOENT && str_eq(path, CONFIG_PATH))
		n = 0;
	if (n < 0)
		return err_set(e, (int)-n, "read '%s': %m", path);
	r = yaml_parse_object(text, (size_t)n, &c->document, e);
	if (!r)
		r = fields_decode(config_fields, c->document, c, e);
	if (!r)
		r = fill(c, e);
	if (r < 0) {
		config_release(c);
		return err_wrap(e, "configuration '%s'", path);
	}
	return 0;
}

void config_release(struct config *c)
{
	json_decref(c->document);
	for (unsigned i = 0; i < ARRAY_SIZE(c->derived); i++)
		free(c->derived[i]);
	*c = (struct config){ 0 };
}

json_t *config_json(const struct config *c)
{
	return json_pack("{ss ss ss ss ss ss ss ss sI si si s{ss ss} s{ss ss} s{si si si}}",
			 "instance", c->instance, "state_dir", c->state_dir, "run_dir", c->run_dir,
			 "user", c->user, "group", c->group, "listen", c->listen, "url", c->url,
			 "workspace", c->workspace, "id_base", (json_int_t)c->id_base, "slots",
			 c->slots, "overcommit_memory", c->overcommit_memory, "network", "ipv4",
			 c->ipv4, "ipv6", c->ipv6, "pool", "path", c->pool_path, "dir", c->pool_dir,
			 "connections", "total", c->connections_total, "token",
			 c->connections_token, "sandbox", c->connections_sandbox);
}
