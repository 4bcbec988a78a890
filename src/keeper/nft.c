#include "nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

enum { SCRIPT_MAX = 64 * 1024, COMPLAINT_SIZE = 160 };

/* Runs nft with the script as its input. Its first words of complaint become the error. */
static int nft_run(const struct buf *script, struct err *e)
{
	_cleanup_close_ int in_r = -1, in_w = -1, err_r = -1, err_w = -1;
	char complaint[COMPLAINT_SIZE] = "";
	int in[2], err[2], status;
	pid_t pid;
	ssize_t n;

	if (script->failed)
		return err_set(e, script->failed, "write the nft script: %m");
	if (pipe2(in, O_CLOEXEC) < 0)
		return err_set(e, errno, "pipe: %m");
	in_r = in[0];
	in_w = in[1];
	if (pipe2(err, O_CLOEXEC) < 0)
		return err_set(e, errno, "pipe: %m");
	err_r = err[0];
	err_w = err[1];
	pid = fork();
	if (pid < 0)
		return err_set(e, errno, "fork: %m");
	if (!pid) {
		static char *const envp[] = { (char *)"LC_ALL=C", NULL };

		if (dup2(in_r, 0) >= 0 && dup2(err_w, 1) >= 0 && dup2(err_w, 2) >= 0)
			execle("/usr/sbin/nft", "nft", "-f", "-", (char *)NULL, envp);
		_exit(127);
	}
	close_p(&in_r);
	close_p(&err_w);
	/* a pipe holds the whole script: it is shorter than a pipe's buffer */
	if (write_all(in_w, script->data, script->len) < 0)
		kill(pid, SIGKILL);
	close_p(&in_w);
	n = read_full(err_r, complaint, sizeof(complaint) - 1);
	complaint[n > 0 ? n : 0] = '\0';
	complaint[strcspn(complaint, "\n")] = '\0';
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return err_set(e, errno, "wait for nft: %m");
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		err_set(e, EIO, "nft failed: %s", complaint);
		return err_hint(e, "is the nftables package installed?");
	}
	return 0;
}

static const char private4[] =
	"0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, "
	"192.0.0.0/24, 192.0.2.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, "
	"203.0.113.0/24, 224.0.0.0/3";
static const char private6[] =
	"::/96, ::ffff:0:0/96, 64:ff9b::/96, 64:ff9b:1::/48, 100::/64, 2001:db8::/32, fc00::/7, "
	"fe80::/10, ff00::/8";

int nft_base(const struct conf *c, struct err *e)
{
	_cleanup_(buf_release)
	struct buf s = BUF_INIT(SCRIPT_MAX);
	char gw4[INET_ADDRSTRLEN], gw6[INET6_ADDRSTRLEN], net4[INET_ADDRSTRLEN],
		net6[INET6_ADDRSTRLEN];
	struct in_addr gateway4 = conf_gateway4(c);
	struct in6_addr gateway6 = conf_gateway6(c);
	const char *i = c->instance;

	inet_ntop(AF_INET, &gateway4, gw4, sizeof(gw4));
	inet_ntop(AF_INET6, &gateway6, gw6, sizeof(gw6));
	inet_ntop(AF_INET, &c->net4, net4, sizeof(net4));
	inet_ntop(AF_INET6, &c->net6, net6, sizeof(net6));
	/* the sets keep their elements over a restart: they belong to running sandboxes */
	buf_addf(&s,
		 "add table inet %s\n"
		 "add set inet %s source4 { type ifname . ipv4_addr; }\n"
		 "add set inet %s source6 { type ifname . ipv6_addr; }\n"
		 "add chain inet %s spoof { type filter hook prerouting priority raw; }\n"
		 "add chain inet %s to_host { type filter hook input priority filter - 5; }\n"
		 "add chain inet %s through { type filter hook forward priority filter - 5; }\n"
		 "add chain inet %s nat { type nat hook postrouting priority srcnat; }\n",
		 i, i, i, i, i, i, i);
	buf_addf(&s, "flush chain inet %s spoof\nflush chain inet %s to_host\n", i, i);
	/* TCP is refused by a reset: it is told at once, ICMP may be limited or come too early */
	buf_addf(&s, "add chain inet %s refuse\nflush chain inet %s refuse\n", i, i);
	buf_addf(&s, "add chain inet %s from_sandbox\nflush chain inet %s from_sandbox\n", i, i);
	buf_addf(&s, "flush chain inet %s through\nflush chain inet %s nat\n", i, i);
	buf_addf(&s,
		 "table inet %s {\n"
		 " chain spoof {\n"
		 "  iifname != \"%s-*\" accept\n"
		 "  meta nfproto ipv4 iifname . ip saddr @source4 accept\n"
		 "  meta nfproto ipv6 iifname . ip6 saddr @source6 accept\n"
		 "  drop\n"
		 " }\n"
		 " chain to_host {\n"
		 "  iifname != \"%s-*\" accept\n"
		 "  ct state established,related accept\n"
		 "  ip daddr %s udp dport 53 accept\n"
		 "  ip daddr %s tcp dport 53 accept\n"
		 "  ip6 daddr %s udp dport 53 accept\n"
		 "  ip6 daddr %s tcp dport 53 accept\n"
		 "  goto refuse\n"
		 " }\n"
		 " chain refuse {\n"
		 "  meta l4proto tcp reject with tcp reset\n"
		 "  reject with icmpx admin-prohibited\n"
		 " }\n",
		 i, i, i, gw4, gw4, gw6, gw6);
	buf_addf(&s,
		 " chain through {\n"
		 "  iifname \"%s-*\" jump from_sandbox\n"
		 "  oifname \"%s-*\" ct state established,related accept\n"
		 "  oifname \"%s-*\" drop\n"
		 " }\n"
		 " chain from_sandbox {\n"
		 "  ct state established,related accept\n"
		 "  oifname \"%s-*\" goto refuse\n"
		 "  ip daddr { %s } goto refuse\n"
		 "  ip6 daddr { %s } goto refuse\n"
		 "  accept\n"
		 " }\n"
		 " chain nat {\n"
		 "  oifname \"%s-*\" accept\n"
		 "  ip saddr %s/%u masquerade\n"
		 "  ip6 saddr %s/48 masquerade\n"
		 " }\n"
		 "}\n",
		 i, i, i, i, private4, private6, i, net4, c->bits4, net6);
	return nft_run(&s, e);
}

int nft_block(const struct conf *c, uint32_t block, struct err *e)
{
	_cleanup_(buf_release)
	struct buf s = BUF_INIT(SCRIPT_MAX);
	uint32_t first = block * NFT_BLOCK;

	for (int family = 4; family <= 6; family += 2) {
		buf_addf(&s, "add element inet %s source%d { ", c->instance, family);
		for (uint32_t n = first; n < first + NFT_BLOCK && n < c->slots_max; n++) {
			struct in_addr a4 = conf_addr4(c, n);
			struct in6_addr a6 = conf_addr6(c, n);
			char text[INET6_ADDRSTRLEN];

			inet_ntop(family == 4 ? AF_INET : AF_INET6,
				  family == 4 ? (void *)&a4 : (void *)&a6, text, sizeof(text));
			buf_addf(&s, "%s\"%s-%u\" . %s", n == first ? "" : ", ", c->instance, n,
				 text);
		}
		buf_adds(&s, " }\n");
	}
	return nft_run(&s, e);
}
