#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#include "nft.h"

/* Names and addresses of one link. */
struct link {
	char name[IF_NAMESIZE];
	unsigned char host_mac[6], peer_mac[6];
	struct in_addr addr4, gateway4;
	struct in6_addr addr6, gateway6;
};

static const struct in6_addr link_local_gateway = { .s6_addr = { 0xfe, 0x80, [15] = 1 } };

/* One rtnetlink socket with a batch of requests that are answered in order. */
struct batch {
	struct mnl_socket *sock;
	char data[4096];
	size_t used;
	unsigned count;
};

static void batch_release(struct batch *b)
{
	if (b->sock)
		mnl_socket_close(b->sock);
	b->sock = NULL;
}

static int batch_open(struct batch *b, struct err *e)
{
	b->used = 0;
	b->count = 0;
	b->sock = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	if (!b->sock || mnl_socket_bind(b->sock, 0, MNL_SOCKET_AUTOPID) < 0)
		return err_set(e, errno, "open rtnetlink: %m");
	return 0;
}

static struct nlmsghdr *batch_add(struct batch *b, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(b->data + b->used);

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	h->nlmsg_seq = ++b->count;
	return h;
}

static void batch_end(struct batch *b, const struct nlmsghdr *h)
{
	b->used += MNL_ALIGN(h->nlmsg_len);
}

/* Sends the batch and takes one acknowledgement a request; the first failure counts. */
static int batch_run(struct batch *b, struct err *e)
{
	char answer[8192];
	unsigned acked = 0;
	int failed = 0;

	if (mnl_socket_sendto(b->sock, b->data, b->used) < 0)
		return err_set(e, errno, "send to rtnetlink: %m");
	while (acked < b->count) {
		ssize_t n = mnl_socket_recvfrom(b->sock, answer, sizeof(answer));
		int left = (int)n;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "receive from rtnetlink: %m");
		for (struct nlmsghdr *h = (void *)answer; mnl_nlmsg_ok(h, left);
		     h = mnl_nlmsg_next(h, &left)) {
			const struct nlmsgerr *x;

			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			x = mnl_nlmsg_get_payload(h);
			acked++;
			if (x->error && !failed)
				failed = err_set(e, x->error, "rtnetlink request %u: %m",
						 h->nlmsg_seq);
		}
	}
	b->used = 0;
	b->count = 0;
	return failed;
}

static void add_address(struct batch *b, int family, unsigned index, const void *addr, size_t len)
{
	struct nlmsghdr *h = batch_add(b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
	struct ifaddrmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));

	m->ifa_family = (uint8_t)family;
	m->ifa_prefixlen = (uint8_t)(len * 8);
	m->ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0;
	m->ifa_scope = RT_SCOPE_UNIVERSE;
	m->ifa_index = index;
	mnl_attr_put(h, IFA_LOCAL, len, addr);
	mnl_attr_put(h, IFA_ADDRESS, len, addr);
	batch_end(b, h);
}

/* A route to `to` (NULL: the default route) by `via` (NULL: directly on the link). */
static void add_route(struct batch *b, int family, unsigned index, const void *to, const void *via,
		      size_t len)
{
	struct nlmsghdr *h = batch_add(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
	struct rtmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));

	m->rtm_family = (uint8_t)family;
	m->rtm_dst_len = to ? (uint8_t)(len * 8) : 0;
	m->rtm_table = RT_TABLE_MAIN;
	m->rtm_protocol = RTPROT_BOOT;
	m->rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
	m->rtm_type = RTN_UNICAST;
	m->rtm_flags = via ? RTNH_F_ONLINK : 0;
	if (to)
		mnl_attr_put(h, RTA_DST, len, to);
	if (via)
		mnl_attr_put(h, RTA_GATEWAY, len, via);
	mnl_attr_put_u32(h, RTA_OIF, index);
	batch_end(b, h);
}

static void add_neighbour(struct batch *b, int family, unsigned index, const void *addr, size_t len,
			  const unsigned char mac[6])
{
	struct nlmsghdr *h = batch_add(b, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
	struct ndmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));

	m->ndm_family = (uint8_t)family;
	m->ndm_ifindex = (int)index;
	m->ndm_state = NUD_PERMANENT;
	mnl_attr_put(h, NDA_DST, len, addr);
	mnl_attr_put(h, NDA_LLADDR, 6, mac);
	batch_end(b, h);
}

static void set_up(struct batch *b, unsigned index)
{
	struct nlmsghdr *h = batch_add(b, RTM_NEWLINK, 0);
	struct ifinfomsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));

	m->ifi_index = (int)index;
	m->ifi_flags = IFF_UP;
	m->ifi_change = IFF_UP;
	batch_end(b, h);
}

static void add_veth(struct batch *b, const struct link *l, int netns)
{
	struct nlmsghdr *h = batch_add(b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
	struct ifinfomsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
	struct nlattr *info, *data, *peer;

	m->ifi_flags = IFF_UP;
	m->ifi_change = IFF_UP;
	mnl_attr_put_strz(h, IFLA_IFNAME, l->name);
	mnl_attr_put(h, IFLA_ADDRESS, 6, l->host_mac);
	info = mnl_attr_nest_start(h, IFLA_LINKINFO);
	mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
	data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
	peer = mnl_attr_nest_start(h, VETH_INFO_PEER);
	mnl_nlmsg_put_extra_header(
		h, sizeof(*m)); /* a peer cannot be up before it has its other end */
	mnl_attr_put_strz(h, IFLA_IFNAME, "eth0");
	mnl_attr_put(h, IFLA_ADDRESS, 6, l->peer_mac);
	mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)netns);
	mnl_attr_nest_end(h, peer);
	mnl_attr_nest_end(h, data);
	mnl_attr_nest_end(h, info);
	batch_end(b, h);
}

static int delete_link(unsigned index, struct err *e)
{
	_cleanup_(batch_release)
	struct batch b = { 0 };
	struct nlmsghdr *h;
	struct ifinfomsg *m;
	int r = batch_open(&b, e);

	if (r < 0)
		return r;
	h = batch_add(&b, RTM_DELLINK, 0);
	m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
	m->ifi_index = (int)index;
	batch_end(&b, h);
	r = batch_run(&b, e);
	return r == -ENODEV ? 0 : r; /* it went with its namespace meanwhile */
}

static void link_fill(const struct conf *c, uint32_t slot, struct link *l)
{
	const unsigned char mac[6] = { 0x02, 0x53, 0x6b, 0, (uint8_t)(slot >> 8), (uint8_t)slot };

	*l = (struct link){
		.addr4 = conf_addr4(c, slot),
		.addr6 = conf_addr6(c, slot),
		.gateway4 = conf_gateway4(c),
		.gateway6 = conf_gateway6(c),
	};
	snprintf(l->name, sizeof(l->name), "%s-%u", c->instance, slot);
	memcpy(l->host_mac, mac, 6);
	memcpy(l->peer_mac, mac, 6);
	l->host_mac[3] = 1;
	l->peer_mac[3] = 2;
}

static void set_sysctl(const char *family, const char *link, const char *name, const char *value)
{
	char path[128];
	int r;

	snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, link, name);
	r = write_text_at(AT_FDCWD, path, value);
	if (r && r != -ENOENT) /* no IPv6 on this host */
		log_warn("write '%s': %s", path, strerror(-r));
}

static int configure_host_end(const struct link *l, struct err *e)
{
	_cleanup_(batch_release)
	struct batch b = { 0 };
	unsigned index = if_nametoindex(l->name);
	int r = batch_open(&b, e);

	if (r < 0)
		return r;
	set_sysctl("ipv4", l->name, "rp_filter", "1");
	set_sysctl("ipv6", l->name, "accept_ra", "0");
	add_neighbour(&b, AF_INET, index, &l->addr4, 4, l->peer_mac);
	add_neighbour(&b, AF_INET6, index, &l->addr6, 16, l->peer_mac);
	add_route(&b, AF_INET, index, &l->addr4, NULL, 4);
	add_route(&b, AF_INET6, index, &l->addr6, NULL, 16);
	return batch_run(&b, e);
}

static int configure_peer_here(const struct link *l, struct err *e)
{
	_cleanup_(batch_release)
	struct batch b = { 0 };
	unsigned index = if_nametoindex("eth0");
	int r = batch_open(&b, e);

	if (r < 0)
		return r;
	/* no link-local address: packets from it would be dropped as spoofed, and so hang */
	set_sysctl("ipv6", "eth0", "addr_gen_mode", "1");
	set_up(&b, 1);
	set_up(&b, index);
	add_address(&b, AF_INET, index, &l->addr4, 4);
	add_address(&b, AF_INET6, index, &l->addr6, 16);
	add_neighbour(&b, AF_INET, index, &l->gateway4, 4, l->host_mac);
	add_neighbour(&b, AF_INET6, index, &link_local_gateway, 16, l->host_mac);
	add_neighbour(&b, AF_INET6, index, &l->gateway6, 16, l->host_mac);
	add_route(&b, AF_INET, index, &l->gateway4, NULL, 4);
	add_route(&b, AF_INET6, index, &l->gateway6, NULL, 16);
	add_route(&b, AF_INET, index, NULL, &l->gateway4, 4);
	add_route(&b, AF_INET6, index, NULL, &link_local_gateway, 16);
	return batch_run(&b, e);
}

int net_link(const struct conf *c, uint32_t slot, int netns, struct err *e)
{
	_cleanup_close_ int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	_cleanup_(batch_release)
	struct batch b = { 0 };
	struct link l;
	unsigned stale;
	int r;

	if (host < 0)
		return err_set(e, errno, "open '/proc/self/ns/net': %m");
	link_fill(c, slot, &l);
	stale = if_nametoindex(l.name);
	if (stale && delete_link(stale, e) < 0)
		return err_wrap(e, "remove stale link '%s'", l.name);
	r = batch_open(&b, e);
	if (r < 0)
		return r;
	add_veth(&b, &l, netns);
	r = batch_run(&b, e);
	if (r < 0)
		return err_wrap(e, "make link '%s'", l.name);
	r = configure_host_end(&l, e);
	if (r < 0)
		return err_wrap(e, "configure link '%s'", l.name);
	if (setns(netns, CLONE_NEWNET) < 0)
		return err_set(e, errno, "enter network namespace: %m");
	r = configure_peer_here(&l, e);
	if (setns(host, CLONE_NEWNET) < 0)
		return err_set(e, errno, "leave network namespace: %m");
	return r < 0 ? err_wrap(e, "configure the sandbox's end of '%s'", l.name) : 0;
}

int net_init(const struct conf *c, struct err *e)
{
	_cleanup_(batch_release)
	struct batch b = { 0 };
	struct in_addr gateway4 = conf_gateway4(c);
	struct in6_addr gateway6 = conf_gateway6(c);
	unsigned lo = if_nametoindex("lo");
	int r = batch_open(&b, e);

	if (r < 0)
		return r;
	add_address(&b, AF_INET, lo, &gateway4, 4);
	add_address(&b, AF_INET6, lo, &gateway6, 16);
	r = batch_run(&b, e);
	if (r < 0)
		return err_wrap(e, "put the gateway's addresses on lo");
	return nft_base(c, e);
}

uint32_t net_block(uint32_t slot)
{
	return slot / NFT_BLOCK;
}

int net_admit(const struct conf *c, uint32_t slot, struct err *e)
{
	return nft_block(c, net_block(slot), e);
}
