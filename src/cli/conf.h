#pragma once
/*
 * Where the API is and who we are: options over environment over the configuration file.
 *
 * The file is ~/.config/skerry/config.json, {"current": name, "contexts": {name: {"url", "token",
 * "project", "workspace"}}}. It holds a token, so one that others can read is refused, not mended.
 * The token leaves this module for the transport, and for `config get token --reveal`; nothing else
 * prints it.
 */
#include <stdbool.h>

#include "base/err.h"

#define CONF_DEFAULT_URL       "http://127.0.0.1:7070"
#define CONF_DEFAULT_WORKSPACE "default"
#define CONF_DEFAULT_CONTEXT   "default"

enum conf_source { FROM_NOWHERE, FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_OPTION };

struct conf_value {
	char *text; /* or NULL */
	enum conf_source source;
};

struct conf {
	char *path; /* of the file, whether it exists or not */
	bool exists;
	struct conf_value context, url, token, project, workspace;
};

/* What the command line said, NULL where it said nothing. */
struct conf_options {
	const char *context, *url, *project, *workspace;
};

/* Fills what can be known even when it fails (a bad file). */
int conf_load(struct conf *c, const struct conf_options *o, struct err *e);
void conf_release(struct conf *c);

/* Writes one value ("current", "url", "token", "project", "workspace"; NULL removes it) to the
 * context in force. Makes directory (0700) and file (0600). "current" must name a context. */
int conf_set(const struct conf *c, const char *key, const char *value, struct err *e);

extern const char conf_keys[];                       /* the keys of conf_set, "a b c" */
const char *conf_source_name(enum conf_source from); /* "configuration file" … */
/* The daemon runs on this machine: a Unix socket or a loopback address. */
bool conf_url_local(const char *url);
