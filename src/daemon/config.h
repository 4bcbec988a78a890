#pragma once
/*
 * /etc/skerry/skerry.yaml, decoded by the same field tables as requests. Read once at start; plain
 * data afterwards, read by every thread.
 */
#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

struct config {
	const char *instance, *state_dir, *run_dir, *user, *group, *listen, *url, *workspace;
	const char *ipv4, *ipv6, *pool_path, *pool_dir;
	uint32_t id_base, slots, overcommit_memory;
	uint32_t connections_total, connections_token, connections_sandbox;

	json_t *document; /* owns what came from the file */
	char *derived[5]; /* owns the defaults that were computed */
};

/* A missing file at the default path means defaults; any other missing file is an error. */
int config_load(struct config *c, const char *path, struct err *e);
void config_release(struct config *c);
json_t *config_json(const struct config *c);

/* Writes keeper.conf, haproxy.cfg and dnsmasq.conf to the directory. */
int config_render(const struct config *c, const char *dir, struct err *e);

/* yaml.c: one document whose root is a mapping; anchors, tags and duplicate keys are refused. */
int yaml_parse_object(const char *text, size_t len, json_t **ret, struct err *e);
