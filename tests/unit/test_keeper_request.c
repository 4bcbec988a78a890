/*
 * Requests to the keeper: the whole one is taken, each part of it spoilt is refused.
 */
#include <string.h>

#include "keeper/request.h"
#include "unit.h"
enum { SLOTS = 64 };

struct message {
	struct keeper_head head;
	struct keeper_sandbox_start start;
};

static struct message good_start(void)
{
	struct message m = {
		.head = { .verb = KEEPER_SANDBOX_START, .size = sizeof(m.start), .seq = 7 },
		.start = {
			.id = "sbaaaaaaaaaaaaaaaaaaaa",
			.hostname = "a-name",
			.machine_id = "0123456789abcdef0123456789abcdef",
			.slot = SLOTS - 1,
			.cpu_milli = 1000,
			.pids = 100,
			.memory_bytes = 1 << 30,
			.layers_count = 2,
			.layers = { "lyaaaaaaaaaaaaaaaaaaaa", "lybbbbbbbbbbbbbbbbbbbb" },
		},
	};
	return m;
}

static bool parse(const struct message *m, size_t len, unsigned fds)
{
	struct request r;

	return request_parse(m, len, fds, SLOTS, &r);
}

static void takes_a_whole_start(void **state)
{
	struct message m = good_start();
	struct request r;

	(void)state;
	assert_true(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	assert_int_equal(r.verb, KEEPER_SANDBOX_START);
	assert_int_equal(r.seq, 7);
	assert_string_equal(r.body.start.hostname, "a-name");
}

static void refuses_every_cut_and_surplus(void **state)
{
	struct message m = good_start();
	char longer[sizeof(m) + 1] = { 0 };

	(void)state;
	for (size_t len = 0; len < sizeof(m); len++)
		assert_false(parse(&m, len, 0));
	memcpy(longer, &m, sizeof(m));
	assert_false(parse((struct message *)longer, sizeof(longer), 0));
	assert_false(parse(&m, sizeof(m), 1));
}

#define SPOIL(what)                                                                                \
	do {                                                                                       \
		struct message m = good_start();                                                   \
		what;                                                                              \
		assert_false(parse(&m, sizeof(m), 0));                                             \
	} while (0)

static void refuses_a_spoilt_head(void **state)
{
	(void)state;
	SPOIL(m.head.verb = 0);
	SPOIL(m.head.verb = KEEPER_VERB_END);
	SPOIL(m.head.verb = KEEPER_EVENT_EXIT);
	SPOIL(m.head.verb = UINT32_MAX);
	SPOIL(m.head.verb = KEEPER_SANDBOX_STOP);
	SPOIL(m.head.size--);
	SPOIL(m.head.size = UINT32_MAX);
	SPOIL(m.head.seq = 0);
	SPOIL(m.head.status = -1);
	SPOIL(m.head.unused = 1);
}

static void refuses_spoilt_fields(void **state)
{
	(void)state;
	SPOIL(memset(m.start.id, 'a', sizeof(m.start.id)));
	SPOIL(memcpy(m.start.id, "../../../etc/passwd\0\0\0", 23));
	SPOIL(m.start.id[0] = 'x');
	SPOIL(m.start.id[5] = '1');
	SPOIL(m.start.id[21] = '\0');
	SPOIL(memset(m.start.hostname, 'a', sizeof(m.start.hostname)));
	SPOIL(m.start.hostname[0] = '\0');
	SPOIL(m.start.hostname[0] = '-');
	SPOIL(m.start.hostname[5] = '-');
	SPOIL(m.start.hostname[2] = '/');
	SPOIL(m.start.hostname[2] = 'A');
	SPOIL(m.start.hostname[2] = '.');
	SPOIL(m.start.machine_id[31] = '\0');
	SPOIL(m.start.machine_id[32] = 'a');
	SPOIL(m.start.machine_id[3] = 'G');
	SPOIL(m.start.slot = SLOTS);
	SPOIL(m.start.slot = UINT32_MAX);
	SPOIL(m.start.cpu_milli = 0);
	SPOIL(m.start.pids = 0);
	SPOIL(m.start.memory_bytes = 0);
	SPOIL(m.start.layers_count = 0);
	SPOIL(m.start.layers_count = KEEPER_LAYERS_MAX + 1);
	SPOIL(m.start.layers_count = UINT32_MAX);
	SPOIL(m.start.layers_count = 3); /* the third is empty */
	SPOIL(m.start.layers[1][1] = 'b');
	SPOIL(memset(m.start.layers[1], 'a', sizeof(m.start.layers[1])));
}

static void wants_the_descriptor_of_a_layer(void **state)
{
	struct {
		struct keeper_head head;
		struct keeper_layer_create create;
	} m = {
		.head = { .verb = KEEPER_LAYER_CREATE, .size = sizeof(m.create), .seq = 1 },
		.create = { .layer = "lyaaaaaaaaaaaaaaaaaaaa", .timeout_ms = 1 },
	};
	const size_t len = sizeof(m.head) + sizeof(m.create); /* without the tail's padding */
	struct request r;

	(void)state;
	assert_true(request_parse(&m, len, 1, SLOTS, &r));
	assert_false(request_parse(&m, len, 0, SLOTS, &r));
	assert_false(request_parse(&m, len, 2, SLOTS, &r));
	m.create.timeout_ms = 0;
	assert_false(request_parse(&m, len, 1, SLOTS, &r));
}

static void refuses_limits_that_are_none(void **state)
{
	struct {
		struct keeper_head head;
		struct keeper_sandbox_limit limit;
	} good = {
		.head = { .verb = KEEPER_SANDBOX_LIMIT, .size = sizeof(good.limit), .seq = 1 },
		.limit = { .id = "sbaaaaaaaaaaaaaaaaaaaa",
			   .cpu_milli = 10,
			   .pids = 16,
			   .memory_bytes = 16 << 20 },
	};
	__typeof__(good) m = good;
	struct request r;

	(void)state;
	assert_true(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	m.limit.cpu_milli--;
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	m = good;
	m.limit.pids--;
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	m = good;
	m.limit.memory_bytes--;
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	m = good;
	m.limit.id[0] = 'l';
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
}

static void takes_a_disk_with_and_without_a_layer(void **state)
{
	struct {
		struct keeper_head head;
		struct keeper_sandbox_create create;
	} m = {
		.head = { .verb = KEEPER_SANDBOX_CREATE, .size = sizeof(m.create), .seq = 1 },
		.create = { .id = "sbaaaaaaaaaaaaaaaaaaaa" },
	};
	static const char *const refused[] = {
		"sbaaaaaaaaaaaaaaaaaaaa", "lyaaaaaaaaaaaaaaaaaaa",   "lyaaaaaaaaaaaaaaaaaaaA",
		"../../../../etc/passwd", "lyaaaaaaaaaaaaaaaaaaaaa", "ly/../aaaaaaaaaaaaaaaa",
	};
	struct request r;

	(void)state;
	assert_true(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	assert_string_equal(r.body.create.layer, "");
	memcpy(m.create.layer, "lyaaaaaaaaaaaaaaaaaaaa", ID_SIZE);
	assert_true(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	assert_string_equal(r.body.create.layer, "lyaaaaaaaaaaaaaaaaaaaa");
	for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		memset(m.create.layer, 0, sizeof(m.create.layer));
		memcpy(m.create.layer, refused[i], strlen(refused[i]));
		assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	}
	memset(m.create.layer, 'a', sizeof(m.create.layer)); /* has no end */
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
}

static void refuses_a_hello_of_another_build(void **state)
{
	struct {
		struct keeper_head head;
		struct keeper_hello hello;
	} m = {
		.head = { .verb = KEEPER_HELLO, .size = sizeof(m.hello), .seq = 1 },
		.hello = { .version = KEEPER_VERSION, .sizes = keeper_sizes() },
	};
	struct request r;

	(void)state;
	assert_true(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	m.hello.sizes++;
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
	m.hello.sizes--;
	m.hello.version++;
	assert_false(request_parse(&m, sizeof(m), 0, SLOTS, &r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_a_whole_start),
		cmocka_unit_test(refuses_every_cut_and_surplus),
		cmocka_unit_test(refuses_a_spoilt_head),
		cmocka_unit_test(refuses_spoilt_fields),
		cmocka_unit_test(wants_the_descriptor_of_a_layer),
		cmocka_unit_test(refuses_limits_that_are_none),
		cmocka_unit_test(takes_a_disk_with_and_without_a_layer),
		cmocka_unit_test(refuses_a_hello_of_another_build),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
