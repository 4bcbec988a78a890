#include "ready.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

#include "net.h"

struct ready {
	struct slot_ns ns;
	const void *owner;
};

static struct {
	const struct conf *conf;
	struct ready *ready; /* by slot number */
	uint8_t *admitted;   /* by block of slots: its addresses pass the nft table */
} table;

int ready_init(const struct conf *c, struct err *e)
{
	table.conf = c;
	table.ready = malloc(c->slots_max * sizeof(*table.ready));
	table.admitted = calloc(net_block(c->slots_max) + 1, 1);
	if (!table.ready || !table.admitted)
		return err_set(e, ENOMEM, "make the table of slots: %m");
	for (uint32_t i = 0; i < c->slots_max; i++)
		table.ready[i] = (struct ready){ .ns = SLOT_NS_INIT };
	return 0;
}

void ready_admitted(uint32_t slot)
{
	table.admitted[net_block(slot)] = 1;
}

bool ready_has(uint32_t slot)
{
	return table.ready[slot].ns.userns >= 0;
}

void ready_put(uint32_t slot, struct slot_ns *ns, const void *owner)
{
	slot_ns_close(&table.ready[slot].ns);
	table.ready[slot] = (struct ready){ .ns = *ns, .owner = owner };
	*ns = (struct slot_ns)SLOT_NS_INIT;
	ready_admitted(slot);
}

bool ready_take(uint32_t slot, struct slot_ns *ret)
{
	if (!ready_has(slot))
		return false;
	*ret = table.ready[slot].ns;
	table.ready[slot] = (struct ready){ .ns = SLOT_NS_INIT };
	return true;
}

void ready_drop(uint32_t slot)
{
	slot_ns_close(&table.ready[slot].ns);
}

void ready_drop_all(const void *owner)
{
	for (uint32_t i = 0; i < table.conf->slots_max; i++) {
		if (ready_has(i) && table.ready[i].owner == owner)
			ready_drop(i);
	}
}

int ready_make(uint32_t slot, struct worker_result *r, struct err *e)
{
	struct slot_ns ns;
	int status = table.admitted[net_block(slot)] ? 0 : net_admit(table.conf, slot, e);

	if (!status)
		status = slot_make(table.conf, slot, &ns, e);
	if (status)
		return status;
	r->fds[0] = ns.userns;
	r->fds[1] = ns.netns;
	r->fds_count = 2;
	return 0;
}
