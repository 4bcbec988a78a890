/* The settings of the other processes, made from ours, so that each value is stated once. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include "config.h"
#include "paths.h"

enum { TEXT_MAX = 64 * 1024, SLOTS_MAX = 65536 };

static int write_file(int dir, const char *name, const struct buf *text, struct err *e)
{
	int r = text->failed;

	if (!r)
		r = replace_file_at(dir, name, text->data, text->len, 0644);
	return r < 0 ? err_set(e, -r, "write '%s': %m", name) : 0;
}

static int keeper_conf(const struct config *c, struct buf *out, struct err *e)
{
	const struct passwd *user = getpwnam(c->user);
	const struct group *group = getgrnam(c->group);

	if (!user || !group)
		return err_set(e, ENOENT, "there is no user '%s' or no group '%s'", c->user,
			       c->group);
	buf_addf(out, "instance=%s\nrun_dir=%s\npool_dir=%s\ninit=%s\n", c->instance, c->run_dir,
		 c->pool_dir, INIT_PATH);
	buf_addf(out, "uid=%u\ngid=%u\nid_base=%u\nslots_max=%u\nipv4=%s\nipv6=%s\n", user->pw_uid,
		 group->gr_gid, c->id_base, SLOTS_MAX, c->ipv4, c->ipv6);
	return 0;
}

/* What HAProxy answers itself has the form of our own errors. */
static const struct {
	unsigned status;
	const char *code, *message, *more;
} edge_errors[] = {
	{ 400, "bad_request", "the request is not well-formed HTTP", "" },
	{ 408, "request_timeout", "the request did not come in time", "" },
	{ 500, "internal", "something went wrong in HAProxy", "" },
	{ 502, "bad_answer", "skerryd ended before it had answered", " hdr Retry-After 2" },
	{ 503, "daemon_down", "skerryd does not run, or has too many requests",
	  " hdr Retry-After 2" },
	{ 504, "daemon_slow", "skerryd did not answer", " hdr Retry-After 2" },
};

/*
 * HAProxy parses what comes over TCP and sends on requests whose framing is beyond doubt. A command
 * may be silent for as long as a client waits on it, so nothing ends an exchange that has begun but
 * its two ends. A client that closed its sending side is still served: over TCP that is all one
 * sees of a client that left, too. Those who only wait or follow are taken to have left, so that
 * they do not hold their places; and who asks for kill_on_disconnect in the part of the body that
 * fits a buffer (skerryd is told which, and refuses the field elsewhere). The frontend needs
 * abortonclose to notice at all.
 */
static void haproxy_cfg(const struct config *c, struct buf *out)
{
	buf_addf(out,
		 "global\n"
		 "    user haproxy\n"
		 "    group haproxy\n"
		 "    stats socket %s/haproxy.sock mode 660 group %s level admin\n"
		 "    maxconn %u\n"
		 "    log stderr format raw local0 notice\n"
		 "    tune.bufsize 65536\n" /* a frame of output in one piece */
		 "\n"
		 "defaults\n"
		 "    mode http\n"
		 "    log global\n"
		 "    option dontlognull\n"
		 "    option http-keep-alive\n"
		 "    option abortonclose\n"
		 "    http-reuse safe\n"
		 "    timeout connect 5s\n"
		 "    timeout queue 30s\n"
		 "    timeout http-request 10s\n"
		 "    timeout http-keep-alive 60s\n"
		 "    timeout client 24d\n"
		 "    timeout server 24d\n",
		 c->run_dir, c->group, c->connections_total + 64);
	for (unsigned i = 0; i < ARRAY_SIZE(edge_errors); i++)
		buf_addf(out,
			 "    http-error status %u content-type application/json string "
			 "'{\"errors\":[{\"message\":\"%s\",\"code\":\"%s\"}]}'%s\n",
			 edge_errors[i].status, edge_errors[i].message, edge_errors[i].code,
			 edge_errors[i].more);
	buf_addc(out, '\n');
	buf_addf(out,
		 "frontend api\n"
		 "    bind %s\n"
		 "    no log\n"
		 "    http-request deny deny_status 400 if { req.hdrs,length gt 15000 }\n"
		 "    http-request deny deny_status 400 if { req.hdr_cnt(content-length) gt 1 }\n"
		 "    http-request deny deny_status 400 if { req.hdr_cnt(host) gt 1 }\n"
		 "    http-request deny deny_status 400 if { req.hdrs -m reg "
		 "'[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]' }\n"
		 "    http-request del-header X-Forwarded-For\n"
		 "    option forwardfor\n"
		 "    acl exec path_reg '^/workspaces/[^/]+/sandboxes/[^/]+/exec$'\n"
		 "    acl watch path_reg '^/workspaces/[^/]+/sandboxes/[^/]+/watch(/|$)'\n"
		 "    acl waits url_param(wait) -m found\n"
		 "    acl waits url_param(follow) -m found\n"
		 "    acl kills req.body -m sub kill_on_disconnect\n"
		 "    http-request wait-for-body time 30s if METH_POST exec\n"
		 "    http-request set-header X-Skerry-Edge plain\n"
		 "    http-request set-header X-Skerry-Edge watched if METH_POST exec kills\n"
		 "    use_backend watched if METH_POST exec kills\n"
		 "    use_backend watched if METH_GET waits\n"
		 "    use_backend watched if METH_GET watch\n"
		 "    default_backend skerryd\n"
		 "\n",
		 c->listen);
	buf_addf(out,
		 "backend skerryd\n"
		 "    no option abortonclose\n"
		 "    server skerryd unix@%s/api.sock maxconn %u\n"
		 "\n"
		 "backend watched\n"
		 "    server skerryd unix@%s/api.sock maxconn %u\n",
		 c->run_dir, c->connections_total, c->run_dir, c->connections_total);
}

/* The range's address plus one: the gateway, which each sandbox asks for names. */
static void gateway(const struct config *c, char v4[INET_ADDRSTRLEN], char v6[INET6_ADDRSTRLEN])
{
	char text[INET6_ADDRSTRLEN + 4];
	struct in6_addr six = { 0 };
	struct in_addr four = { 0 };

	snprintf(text, sizeof(text), "%.*s", (int)strcspn(c->ipv4, "/"), c->ipv4);
	if (inet_pton(AF_INET, text, &four) == 1)
		four.s_addr = htonl(ntohl(four.s_addr) + 1);
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(c->ipv6, "/"), c->ipv6);
	if (inet_pton(AF_INET6, text, &six) == 1)
		six.s6_addr[15] = 1;
	inet_ntop(AF_INET, &four, v4, INET_ADDRSTRLEN);
	inet_ntop(AF_INET6, &six, v6, INET6_ADDRSTRLEN);
}

static void dnsmasq_conf(const struct config *c, struct buf *out)
{
	char v4[INET_ADDRSTRLEN], v6[INET6_ADDRSTRLEN];

	gateway(c, v4, v6);
	buf_addf(out,
		 "# forwards to the resolvers of the host's /etc/resolv.conf\n"
		 "bind-interfaces\n"
		 "listen-address=%s\n"
		 "listen-address=%s\n"
		 "no-hosts\n"
		 "cache-size=1000\n"
		 "dns-forward-max=1000\n"
		 "user=dnsmasq\n"
		 "pid-file=%s/dnsmasq.pid\n",
		 v4, v6, c->run_dir);
}

int config_render(const struct config *c, const char *path, struct err *e)
{
	_cleanup_close_ int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_buf_ struct buf keeper = BUF_INIT(TEXT_MAX);
	_cleanup_buf_ struct buf haproxy = BUF_INIT(TEXT_MAX);
	_cleanup_buf_ struct buf dnsmasq = BUF_INIT(TEXT_MAX);
	int r;

	if (dir < 0)
		return err_set(e, errno, "open '%s': %m", path);
	r = keeper_conf(c, &keeper, e);
	haproxy_cfg(c, &haproxy);
	dnsmasq_conf(c, &dnsmasq);
	if (!r)
		r = write_file(dir, "keeper.conf", &keeper, e);
	if (!r)
		r = write_file(dir, "haproxy.cfg", &haproxy, e);
	if (!r)
		r = write_file(dir, "dnsmasq.conf", &dnsmasq, e);
	return r;
}
