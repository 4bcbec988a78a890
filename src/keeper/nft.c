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

/* The table, for nft; `~` stands for the instance's name, the rest are nft's own defines. The sets
 * keep their elements over a restart of the keeper: they belong to running sandboxes. */
static const char base[] =
	"define private4 = { 0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, "
	"172.16.0.0/12, 192.0.0.0/24, 192.0.2.0/24, 192.168.0.0/16, 198.18.0.0/15, "
	"198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/3 }\n"
	"define private6 = { ::/96, ::ffff:0:0/96, 64:ff9b::/96, 64:ff9b:1::/48, 100::/64, "
	"2001:db8::/32, fc00::/7, fe80::/10, ff00::/8 }\n"
	"add table inet ~\n"
	"add set inet ~ source4 { type ifname . ipv4_addr; }\n"
	"add set inet ~ source6 { type ifname . ipv6_addr; }\n"
	"add set inet ~ count4 { type ipv4_addr; size 65536; flags dynamic; }\n"
	"add set inet ~ count6 { type ipv6_addr; size 65536; flags dynamic; }\n"
	"add chain inet ~ spoof { type filter hook prerouting priority raw; }\n"
	"add chain inet ~ answers { type filter hook output priority raw; }\n"
	"add chain inet ~ to_host { type filter hook input priority filter - 5; }\n"
	"add chain inet ~ through { type filter hook forward priority filter - 5; }\n"
	"add chain inet ~ nat { type nat hook postrouting priority srcnat; }\n"
	"add chain inet ~ refuse\n"
	"add chain inet ~ bounded\n"
	"add chain inet ~ from_sandbox\n"
	"flush chain inet ~ spoof\n"
	"flush chain inet ~ answers\n"
	"flush chain inet ~ to_host\n"
	"flush chain inet ~ through\n"
	"flush chain inet ~ nat\n"
	"flush chain inet ~ refuse\n"
	"flush chain inet ~ bounded\n"
	"flush chain inet ~ from_sandbox\n"
	"table inet ~ {\n"
	" chain spoof {\n"
	"  iifname != \"~-*\" accept\n"
	"  iifname . ip saddr @source4 ip daddr $gateway4 udp dport 53 notrack accept\n"
	"  iifname . ip saddr @source4 accept\n"
	"  iifname . ip6 saddr @source6 ip6 daddr $gateway6 udp dport 53 notrack accept\n"
	"  iifname . ip6 saddr @source6 accept\n"
	"  drop\n"
	" }\n"
	/* questions to the resolver make no entries in the host's table of connections */
	" chain answers {\n"
	"  oifname \"~-*\" udp sport 53 notrack\n"
	" }\n"
	" chain to_host {\n"
	"  iifname != \"~-*\" accept\n"
	"  ct state established,related accept\n"
	"  ip daddr $gateway4 udp dport 53 accept\n"
	"  ip6 daddr $gateway6 udp dport 53 accept\n"
	"  ip daddr $gateway4 tcp dport 53 jump bounded\n"
	"  ip daddr $gateway4 tcp dport 53 accept\n"
	"  ip6 daddr $gateway6 tcp dport 53 jump bounded\n"
	"  ip6 daddr $gateway6 tcp dport 53 accept\n"
	"  goto refuse\n"
	" }\n"
	/* TCP is refused by a reset: it is told at once, ICMP may be limited or come too early */
	" chain refuse {\n"
	"  meta l4proto tcp reject with tcp reset\n"
	"  reject with icmpx admin-prohibited\n"
	" }\n"
	/* the host's table of connections is shared: a sandbox has so many of them at once */
	" chain bounded {\n"
	"  meta nfproto ipv4 add @count4 { ip saddr ct count over 4096 } goto refuse\n"
	"  meta nfproto ipv6 add @count6 { ip6 saddr ct count over 4096 } goto refuse\n"
	" }\n"
	" chain through {\n"
	"  iifname \"~-*\" jump from_sandbox\n"
	"  oifname \"~-*\" ct state established,related accept\n"
	"  oifname \"~-*\" drop\n"
	" }\n"
	" chain from_sandbox {\n"
	"  ct state established,related accept\n"
	"  oifname \"~-*\" goto refuse\n"
	"  ip daddr $private4 goto refuse\n"
	"  ip6 daddr $private6 goto refuse\n"
	"  jump bounded\n"
	"  accept\n"
	" }\n"
	" chain nat {\n"
	"  oifname \"~-*\" accept\n"
	"  ip saddr $net4 masquerade\n"
	"  ip6 saddr $net6 masquerade\n"
	" }\n"
	"}\n";

int nft_base(const struct conf *c, struct err *e)
{
	_cleanup_(buf_release)
	struct buf s = BUF_INIT(SCRIPT_MAX);
	char gw4[INET_ADDRSTRLEN], gw6[INET6_ADDRSTRLEN], net4[INET_ADDRSTRLEN],
		net6[INET6_ADDRSTRLEN];
	struct in_addr gateway4 = conf_gateway4(c);
	struct in6_addr gateway6 = conf_gateway6(c);

	inet_ntop(AF_INET, &gateway4, gw4, sizeof(gw4));
	inet_ntop(AF_INET6, &gateway6, gw6, sizeof(gw6));
	inet_ntop(AF_INET, &c->net4, net4, sizeof(net4));
	inet_ntop(AF_INET6, &c->net6, net6, sizeof(net6));
	buf_addf(&s, "define gateway4 = %s\ndefine gateway6 = %s\n", gw4, gw6);
	buf_addf(&s, "define net4 = %s/%u\ndefine net6 = %s/48\n", net4, c->bits4, net6);
	for (const char *p = base; *p; p++) {
		if (*p == '~')
			buf_adds(&s, c->instance);
		else
			buf_addc(&s, *p);
	}
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
