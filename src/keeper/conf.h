#pragma once
/*
 * The keeper's settings: `key=value` lines written by root's set-up step. Every key is required,
 * an unknown one is an error: a keeper with half its settings does not start.
 */
#include <limits.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { IDS_PER_SLOT = 65536, INSTANCE_MAX = 8 };

struct conf {
	char instance[INSTANCE_MAX + 1]; /* prefix of links ("<instance>-<n>"), table, cgroup */
	char run_dir[PATH_MAX];
	char pool_dir[PATH_MAX];
	char init[PATH_MAX]; /* the skerry-init program */
	uid_t uid;           /* who may ask: skerryd */
	gid_t gid;
	uint32_t id_base;
	uint32_t slots_max;  /* also bounded by what the two ranges hold */
	struct in_addr net4; /* first address of the range */
	unsigned bits4;
	struct in6_addr net6; /* a /48 */
};

int conf_load(struct conf *c, const char *path, struct err *e);

/* Addresses: slot n has <net4> + 16 + n and <net6>::1:<n + 16>; the gateway is <net4> + 1. */
struct in_addr conf_addr4(const struct conf *c, uint32_t slot);
struct in6_addr conf_addr6(const struct conf *c, uint32_t slot);
struct in_addr conf_gateway4(const struct conf *c);
struct in6_addr conf_gateway6(const struct conf *c);
uint32_t conf_root_id(const struct conf *c, uint32_t slot); /* host id of the slot's id 0 */
/* Both addresses of a slot as text. */
void conf_addresses(const struct conf *c, uint32_t slot, char ret4[INET_ADDRSTRLEN],
		    char ret6[INET6_ADDRSTRLEN]);
/* A group id that no slot and nobody else has: it opens the cgroups of sandboxes to their PID 1. */
gid_t conf_key_group(const struct conf *c);
