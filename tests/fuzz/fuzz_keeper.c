/*
 * Requests to the keeper: what is let through has the form its verb promises.
 */
#include <assert.h>
#include <string.h>

#include "fuzz.h"
#include "keeper/request.h"

enum { SLOTS = 1000 };

/* The input's first byte is a verb; a head that fits is made around the rest, or the input is taken
 * as it is. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keeper_head h = { .seq = 1 };
	unsigned char message[KEEPER_MESSAGE_MAX];
	struct request r;

	request_parse(data, size, 0, SLOTS, &r);
	if (size < 2 || size - 1 > sizeof(message) - sizeof(h))
		return 0;
	h.verb = data[0];
	h.size = (uint32_t)(size - 1);
	memcpy(message, &h, sizeof(h));
	memcpy(message + sizeof(h), data + 1, size - 1);
	if (!request_parse(message, sizeof(h) + size - 1, h.verb == KEEPER_LAYER_CREATE, SLOTS, &r))
		return 0;
	assert(r.verb == h.verb && r.seq == 1);
	switch (r.verb) {
	case KEEPER_SANDBOX_START:
		assert(id_valid(r.body.start.id, "sb") && r.body.start.slot < SLOTS);
		assert(r.body.start.layers_count >= 1 &&
		       r.body.start.layers_count <= KEEPER_LAYERS_MAX);
		assert(!strpbrk(r.body.start.hostname, "/.") && r.body.start.hostname[0]);
		for (unsigned i = 0; i < r.body.start.layers_count; i++)
			assert(id_valid(r.body.start.layers[i], "ly"));
		break;
	case KEEPER_LAYER_CREATE:
	case KEEPER_LAYER_DELETE:
		assert(id_valid(r.body.layer.layer, "ly"));
		break;
	case KEEPER_SLOT_PREPARE:
	case KEEPER_SLOT_DROP:
		assert(r.body.slot.slot < SLOTS);
		break;
	case KEEPER_SANDBOX_CREATE:
		assert(id_valid(r.body.create.id, "sb"));
		assert(!*r.body.create.layer || id_valid(r.body.create.layer, "ly"));
		break;
	case KEEPER_SANDBOX_STOP:
	case KEEPER_SANDBOX_KILL:
	case KEEPER_SANDBOX_DESTROY:
	case KEEPER_SANDBOX_STATS:
		assert(id_valid(r.body.sandbox.id, "sb"));
		break;
	default:
		break;
	}
	return 0;
}
