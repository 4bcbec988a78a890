/*
 * The keeper's settings file and the addresses that follow from it.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#include "keeper/conf.h"
#include "unit.h"
static const char whole[] = "# settings\n"
			    "instance=skt\nrun_dir=/run/x\npool_dir=/pool\ninit=/lib/init\n"
			    "uid=998\ngid=997\nid_base=1879048192\nslots_max=4000\n"
			    "ipv4=10.213.0.0/16\nipv6=fd12:3456:789a::/48\n";

static int load(const char *text, struct conf *c)
{
	char path[] = "/tmp/keeper-conf-XXXXXX";
	struct err e = ERR_INIT;
	int fd = mkstemp(path);
	int r;

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
	close(fd);
	r = conf_load(c, path, &e);
	unlink(path);
	if (r)
		assert_true(e.code && e.text[0]);
	return r;
}

/* Replaces the line that begins with `key` by `line` ("" drops it). */
static int load_with(const char *key, const char *line, struct conf *c)
{
	char text[2048] = "";
	const char *at = strstr(whole, key);

	assert_non_null(at);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - whole), whole, line, strchr(at, '\n'));
	return load(text, c);
}

static void reads_all(void **state)
{
	char text[INET6_ADDRSTRLEN];
	struct conf c;
	struct in_addr a4;
	struct in6_addr a6;

	(void)state;
	assert_int_equal(load(whole, &c), 0);
	assert_string_equal(c.instance, "skt");
	assert_int_equal(c.slots_max, 4000);
	assert_int_equal(conf_root_id(&c, 2), 1879048192u + 2 * 65536);
	a4 = conf_gateway4(&c);
	assert_string_equal(inet_ntop(AF_INET, &a4, text, sizeof(text)), "10.213.0.1");
	a4 = conf_addr4(&c, 0);
	assert_string_equal(inet_ntop(AF_INET, &a4, text, sizeof(text)), "10.213.0.16");
	a4 = conf_addr4(&c, 240);
	assert_string_equal(inet_ntop(AF_INET, &a4, text, sizeof(text)), "10.213.1.0");
	a6 = conf_addr6(&c, 240);
	assert_string_equal(inet_ntop(AF_INET6, &a6, text, sizeof(text)), "fd12:3456:789a::1:100");
}

static void every_slot_has_addresses_and_ids_of_its_own(void **state)
{
	struct conf c;
	struct in6_addr before = { 0 };

	(void)state;
	assert_int_equal(load_with("slots_max", "slots_max=65536", &c), 0);
	assert_true(c.slots_max > 10000);
	/* the last slot's ids, and the unpacker's behind them, end before 2^32 */
	assert_true((uint64_t)c.id_base + (c.slots_max + 1ull) * IDS_PER_SLOT <= UINT32_MAX);
	/* the last slot's address lies in the range, before the broadcast address */
	assert_true(ntohl(conf_addr4(&c, c.slots_max - 1).s_addr) <
		    ntohl(c.net4.s_addr) + (1u << 16) - 1);
	for (uint32_t n = 0; n < c.slots_max; n++) {
		struct in6_addr a = conf_addr6(&c, n);

		assert_true(memcmp(&before, &a, sizeof(a)) < 0);
		before = a;
	}
}

static void a_small_range_bounds_the_slots(void **state)
{
	struct conf c;

	(void)state;
	assert_int_equal(load_with("ipv4", "ipv4=10.9.8.0/26", &c), 0);
	assert_true(c.slots_max <= 64 - 16 - 1 && c.slots_max >= 40);
}

static void refuses_what_is_wrong_or_missing(void **state)
{
	static const char *const bad[][2] = {
		{ "instance", "" },
		{ "instance", "instance=" },
		{ "instance", "instance=Upper" },
		{ "instance", "instance=toolongname" },
		{ "instance", "instance=a-b" },
		{ "run_dir", "run_dir=relative" },
		{ "pool_dir", "" },
		{ "uid", "uid=-1" },
		{ "uid", "uid=x" },
		{ "uid", "uid= 5" },
		{ "id_base", "id_base=1879048193" },
		{ "id_base", "id_base=0" },
		{ "id_base", "id_base=4294967295" },
		{ "slots_max", "slots_max=0" },
		{ "slots_max", "slots_max=65537" },
		{ "ipv4", "ipv4=10.213.0.0" },
		{ "ipv4", "ipv4=10.213.0.1/16" },
		{ "ipv4", "ipv4=10.213.0.0/30" },
		{ "ipv4", "ipv4=256.0.0.0/16" },
		{ "ipv6", "ipv6=fd12::/64" },
		{ "ipv6", "ipv6=10.0.0.0/48" },
		{ "ipv6", "ipv6" },
		{ "gid", "gid=5\nunknown=1" },
	};
	struct conf c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (load_with(bad[i][0], bad[i][1], &c) == 0)
			fail_msg("taken: '%s' for %s", bad[i][1], bad[i][0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_all),
		cmocka_unit_test(every_slot_has_addresses_and_ids_of_its_own),
		cmocka_unit_test(a_small_range_bounds_the_slots),
		cmocka_unit_test(refuses_what_is_wrong_or_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
