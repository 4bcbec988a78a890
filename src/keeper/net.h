#pragma once
/*
 * The network of slots: a routed veth each, made with its peer inside the slot's namespace.
 *
 * There is no bridge and no ARP: both ends have addresses of ours and permanent neighbour entries.
 * The gateway addresses lie on `lo`. One nft table holds the policy; links and addresses of a slot
 * follow from its number, so table elements are added for blocks of slots ahead of their use and
 * need not be removed. Called by workers (nft is a child that is waited for), except net_init.
 */
#include "base/err.h"

#include "conf.h"

/* Gateway addresses and the nft table; replaces an older table of the same name. */
int net_init(const struct conf *c, struct err *e);

/* Lets the block of slots that holds `slot` pass the table. */
int net_admit(const struct conf *c, uint32_t slot, struct err *e);
uint32_t net_block(uint32_t slot);

/* Makes the veth of `slot` with its peer in `netns`, configures both ends. The link goes with its
 * namespace. */
int net_link(const struct conf *c, uint32_t slot, int netns, struct err *e);
