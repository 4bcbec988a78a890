/*
 * Firewalls of others that hold up what sandboxes send: a chain that forwards nothing by default cuts
 * them off, whatever our own table allows, since every chain of a hook has its say.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "doctor.h"
#include "json.h"

enum { RULES_MAX = 16 * 1024 * 1024, CHUNK = 64 * 1024 };

/* What `nft -j list ruleset` says, or NULL. */
static json_t *ruleset(const char *nft)
{
	static char *const envp[] = { (char *)"LC_ALL=C", NULL };
	char *const argv[] = { (char *)"nft", (char *)"-j", (char *)"list", (char *)"ruleset",
			       NULL };
	_cleanup_buf_ struct buf text = BUF_INIT(RULES_MAX);
	posix_spawn_file_actions_t files;
	int out[2], status = -1;
	ssize_t n = 1;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return NULL;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&pid, nft, &files, NULL, argv, envp))
		pid = -1;
	posix_spawn_file_actions_destroy(&files);
	close(out[1]);
	while (pid > 0 && n > 0) {
		char *room = buf_reserve(&text, CHUNK);

		n = room ? read(out[0], room, CHUNK) : 0;
		if (n > 0)
			buf_commit(&text, (size_t)n);
	}
	close(out[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status ? NULL : json_loadb(buf_str(&text), text.len, 0, NULL);
}

static const char *member(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

static bool same_chain(const json_t *a, const char *a_name, const json_t *b, const char *b_name)
{
	return str_eq(member(a, "family"), member(b, "family")) &&
	       str_eq(member(a, "table"), member(b, "table")) && str_eq(a_name, b_name);
}

/* The table of ours, which has the name of the instance, and its links that name before a dash. */
static const char *instance(const json_t *rules)
{
	const json_t *item;
	size_t i;

	json_array_foreach(rules, i, item)
	{
		const json_t *chain = json_object_get(item, "chain");

		if (str_eq(member(chain, "name"), "from_sandbox"))
			return member(chain, "table");
	}
	return NULL;
}

/* Somebody has let them through: a rule of the chain names our links. */
static bool has_exception(const json_t *rules, const json_t *chain, const char *ours)
{
	const json_t *item;
	size_t i;

	json_array_foreach(rules, i, item)
	{
		const json_t *rule = json_object_get(item, "rule");
		_cleanup_free_ char *text = NULL;

		if (!same_chain(rule, member(rule, "chain"), chain, member(chain, "name")))
			continue;
		text = json_dumps(json_object_get(rule, "expr"), JSON_COMPACT);
		if (text && strstr(text, ours))
			return true;
	}
	return false;
}

static void check_chain(struct findings *f, const json_t *chain, const char *name)
{
	char hint[512];

	snprintf(hint, sizeof(hint),
		 "nft insert rule %s %s %s iifname '\"%s-*\"' accept; "
		 "nft insert rule %s %s %s oifname '\"%s-*\"' ct state established,related accept",
		 member(chain, "family"), member(chain, "table"), member(chain, "name"), name,
		 member(chain, "family"), member(chain, "table"), member(chain, "name"), name);
	finding(f, CHECK_WARN, "firewall", hint,
		"chain %s %s %s forwards nothing by default: sandboxes do not reach the outside",
		member(chain, "family"), member(chain, "table"), member(chain, "name"));
}

void doctor_firewall(struct findings *f, const char *nft)
{
	_cleanup_json_ json_t *all = ruleset(nft);
	const json_t *rules = json_object_get(all, "nftables"), *item;
	const char *name = instance(rules);
	char ours[80];
	size_t i, found = 0;

	if (!all) {
		finding(f, CHECK_OK, "firewall", NULL, "not looked at: only root sees its rules");
		return;
	}
	name = name ? name : "skerry";
	snprintf(ours, sizeof(ours), "\"%s-", name);
	json_array_foreach(rules, i, item)
	{
		const json_t *chain = json_object_get(item, "chain");

		if (!str_eq(member(chain, "hook"), "forward") ||
		    !str_eq(member(chain, "policy"), "drop") || has_exception(rules, chain, ours))
			continue;
		check_chain(f, chain, name);
		found++;
	}
	if (!found)
		finding(f, CHECK_OK, "firewall", NULL, "no chain of others keeps sandboxes in");
}
