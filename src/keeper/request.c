#include "request.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum { CPU_MILLI_MIN = 10, PIDS_MIN = 16, MEMORY_MIN = 16 * 1024 * 1024 };

static bool text_ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool is_id(const char *text, size_t size, const char *kind)
{
	return text_ends(text, size) && id_valid(text, kind);
}

static bool hello(const struct request *r, uint32_t slots_max)
{
	(void)slots_max;
	return r->body.hello.version == KEEPER_VERSION && r->body.hello.sizes == keeper_sizes();
}

static bool layer_create(const struct request *r, uint32_t slots_max)
{
	const struct keeper_layer_create *l = &r->body.layer_create;

	(void)slots_max;
	return is_id(l->layer, sizeof(l->layer), "ly") && l->timeout_ms;
}

static bool layer(const struct request *r, uint32_t slots_max)
{
	(void)slots_max;
	return is_id(r->body.layer.layer, sizeof(r->body.layer.layer), "ly");
}

/* The id is the first member of every sandbox verb's struct. */
static bool sandbox(const struct request *r, uint32_t slots_max)
{
	(void)slots_max;
	return is_id(r->body.sandbox.id, sizeof(r->body.sandbox.id), "sb");
}

static bool create(const struct request *r, uint32_t slots_max)
{
	const struct keeper_sandbox_create *c = &r->body.create;

	return sandbox(r, slots_max) && (!*c->layer || is_id(c->layer, sizeof(c->layer), "ly"));
}

static bool is_hostname(const char *name, size_t size)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	return text_ends(name, size) && *name && *name != '-' && !str_ends(name, "-") &&
	       name[strspn(name, allowed)] == '\0';
}

static bool is_machine_id(const char *id, size_t size)
{
	return text_ends(id, size) && strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32;
}

static bool are_limits(uint32_t cpu_milli, uint32_t pids, uint64_t memory_bytes)
{
	return cpu_milli >= CPU_MILLI_MIN && pids >= PIDS_MIN && memory_bytes >= MEMORY_MIN;
}

static bool limit(const struct request *r, uint32_t slots_max)
{
	const struct keeper_sandbox_limit *l = &r->body.limit;

	return sandbox(r, slots_max) && are_limits(l->cpu_milli, l->pids, l->memory_bytes);
}

static bool start(const struct request *r, uint32_t slots_max)
{
	const struct keeper_sandbox_start *s = &r->body.start;

	if (!sandbox(r, slots_max) || !is_hostname(s->hostname, sizeof(s->hostname)) ||
	    !is_machine_id(s->machine_id, sizeof(s->machine_id)) || s->slot >= slots_max ||
	    s->layers_count < 1 || s->layers_count > KEEPER_LAYERS_MAX)
		return false;
	if (!are_limits(s->cpu_milli, s->pids, s->memory_bytes))
		return false;
	for (unsigned i = 0; i < s->layers_count; i++) {
		if (!is_id(s->layers[i], sizeof(s->layers[i]), "ly"))
			return false;
	}
	return true;
}

static bool slot(const struct request *r, uint32_t slots_max)
{
	return r->body.slot.slot < slots_max;
}

#define BODY(member) sizeof(((struct request *)0)->body.member)

static const struct form {
	size_t size;  /* of the verb's struct */
	unsigned fds; /* descriptors that come along */
	bool (*valid)(const struct request *r, uint32_t slots_max);
} forms[KEEPER_VERB_END] = {
	[KEEPER_HELLO] = { BODY(hello), 0, hello },
	[KEEPER_POOL] = { 0 },
	[KEEPER_POOL_LIST] = { 0 },
	[KEEPER_LAYER_CREATE] = { BODY(layer_create), 1, layer_create },
	[KEEPER_LAYER_DELETE] = { BODY(layer), 0, layer },
	[KEEPER_SANDBOX_CREATE] = { BODY(create), 0, create },
	[KEEPER_SANDBOX_START] = { BODY(start), 0, start },
	[KEEPER_SANDBOX_STOP] = { BODY(stop), 0, sandbox },
	[KEEPER_SANDBOX_KILL] = { BODY(sandbox), 0, sandbox },
	[KEEPER_SANDBOX_DESTROY] = { BODY(sandbox), 0, sandbox },
	[KEEPER_SANDBOX_LIMIT] = { BODY(limit), 0, limit },
	[KEEPER_SANDBOX_STATS] = { BODY(sandbox), 0, sandbox },
	[KEEPER_SANDBOX_LIST] = { 0 },
	[KEEPER_SLOT_PREPARE] = { BODY(slot), 0, slot },
	[KEEPER_SLOT_DROP] = { BODY(slot), 0, slot },
};

bool request_parse(const void *message, size_t len, unsigned fds, uint32_t slots_max,
		   struct request *ret)
{
	struct request r = { 0 };
	struct keeper_head h;
	const struct form *f;

	if (len < sizeof(h))
		return false;
	memcpy(&h, message, sizeof(h));
	if (h.verb < KEEPER_HELLO || h.verb >= ARRAY_SIZE(forms))
		return false;
	f = &forms[h.verb];
	if (h.size != f->size || len != sizeof(h) + h.size || fds != f->fds || h.seq == 0 ||
	    h.status || h.unused)
		return false;
	r.verb = h.verb;
	r.seq = h.seq;
	memcpy(r.body.bytes, (const char *)message + sizeof(h), h.size);
	if (f->valid && !f->valid(&r, slots_max))
		return false;
	*ret = r;
	return true;
}
