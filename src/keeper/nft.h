#pragma once
/*
 * The one nft table, as text to `nft -f -`. Sets and fixed chains only: nothing is added per
 * sandbox but elements, and those for whole blocks of slots.
 *
 * What it says: a sandbox sends from its own addresses only; of the host it reaches the resolver
 * (port 53 of the gateway's addresses) and nothing else; it reaches no sibling and no private,
 * link-local or metadata address; everything else is forwarded, with source translation. Nobody
 * outside opens a connection into a sandbox; the host may.
 */
#include "base/err.h"

#include "conf.h"

enum { NFT_BLOCK = 64 }; /* slots whose elements are added at once */

int nft_base(const struct conf *c, struct err *e);
int nft_block(const struct conf *c, uint32_t block, struct err *e);
