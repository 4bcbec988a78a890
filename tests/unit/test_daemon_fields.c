/* Field tables, untrusted JSON and YAML. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "api/field.h"
#include "config.h"
#include "unit.h"

struct thing {
	const char *name, *kind;
	uint32_t count;
	bool on;
	uint64_t wait_ms;
	json_t *list, *map;
};

static const char *const kinds[] = { "A", "B", NULL };
static const struct field fields[] = {
	FIELD_STR(struct thing, name, .required = true, .min = 1, .max = 3),
	FIELD_ENUM(struct thing, kind, kinds, 0),
	FIELD_U32(struct thing, count, .min = 2, .max = 9, .absent = 5),
	FIELD_BOOL(struct thing, on, .absent = true),
	FIELD_SECONDS(struct thing, wait_ms, "wait", .max = 10),
	FIELD_LIST(struct thing, list, .max = 2, .item_min = 1, .item_max = 2),
	FIELD_MAP(struct thing, map, .max = 1),
	FIELD_RESERVED("later"),
	{ 0 },
};

static int decode(const char *text, size_t len, struct thing *t, json_t **keep, struct err *e)
{
	int r = json_parse_object(text, len, keep, e);

	*t = (struct thing){ 0 };
	return r < 0 ? r : fields_decode(fields, *keep, t, e);
}

static void refused(const char *text, size_t len, const char *field, const char *reason)
{
	struct err e = ERR_INIT;
	json_t *keep = NULL;
	struct thing t;

	if (decode(text, len, &t, &keep, &e) >= 0)
		fail_msg("taken: %s", text);
	assert_string_equal(e.field, field);
	assert_string_equal(e.reason, reason);
	assert_int_equal(e.code, str_eq(reason, "not_available") ? ENOTSUP : EINVAL);
	json_decref(keep);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *text, *field, *reason;
	} rows[] = {
		{ "{}", "name", "invalid_field" },
		{ "[]", "body", "invalid_json" },
		{ "", "body", "invalid_json" },
		{ "{\"name\":1}", "name", "invalid_field" },
		{ "{\"name\":null}", "name", "invalid_field" },
		{ "{\"name\":\"\"}", "name", "invalid_field" },
		{ "{\"name\":\"abcd\"}", "name", "invalid_field" },
		{ "{\"name\":\"a\\u0000\"}", "name", "invalid_field" },
		{ "{\"name\":\"a\",\"kind\":\"C\"}", "kind", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":1}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":10}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":-1}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":3.0}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":1e18}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":\"5\"}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":true}", "count", "invalid_field" },
		{ "{\"name\":\"a\",\"count\":NaN}", "count", "invalid_json" },
		{ "{\"name\":\"a\",\"count\":99999999999999999999}", "count", "invalid_json" },
		{ "{\"name\":\"a\",\"wait\":0}", "wait", "invalid_field" },
		{ "{\"name\":\"a\",\"wait\":-0.5}", "wait", "invalid_field" },
		{ "{\"name\":\"a\",\"wait\":10.1}", "wait", "invalid_field" },
		{ "{\"name\":\"a\",\"wait\":1e999}", "wait", "invalid_json" },
		{ "{\"name\":\"a\",\"on\":1}", "on", "invalid_field" },
		{ "{\"name\":\"a\",\"list\":{}}", "list", "invalid_field" },
		{ "{\"name\":\"a\",\"list\":[\"a\",\"\"]}", "list[1]", "invalid_field" },
		{ "{\"name\":\"a\",\"list\":[\"a\",5]}", "list[1]", "invalid_field" },
		{ "{\"name\":\"a\",\"list\":[\"a\",\"b\",\"c\"]}", "list", "invalid_field" },
		{ "{\"name\":\"a\",\"map\":{\"k\":1}}", "map.k", "invalid_field" },
		{ "{\"name\":\"a\",\"map\":{\"k\":\"\",\"l\":\"\"}}", "map", "invalid_field" },
		{ "{\"name\":\"a\",\"other\":1}", "other", "unknown_field" },
		{ "{\"name\":\"a\",\"later\":1}", "later", "not_available" },
		{ "{\"name\":\"a\",\"name\":\"b\"}", "name", "invalid_json" },
		{ "{\"name\":\"\xff\"}", "name", "invalid_json" },
		{ "{\"name\":\"\\ud800\"}", "name", "invalid_json" },
		{ "{\"name\":\"a\"} x", "body", "invalid_json" },
		{ "{\"name\":\"a\"", "name", "invalid_json" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		refused(rows[i].text, strlen(rows[i].text), rows[i].field, rows[i].reason);
	refused("{\"name\":\"a\0b\"}", 14, "name", "invalid_json");
}

static void test_accepts(void **state)
{
	static const char text[] =
		"{\"name\":\"\xc3\xa9\xc3\xa9\xc3\xa9\",\"kind\":\"B\",\"count\":9,"
		"\"on\":false,\"wait\":0.0001,\"list\":[\"x\"],\"map\":{\"k\":\"v\"}}";
	struct err e = ERR_INIT;
	json_t *keep = NULL;
	struct thing t;

	(void)state;
	assert_int_equal(decode(text, strlen(text), &t, &keep, &e), 0);
	assert_string_equal(t.name, "\xc3\xa9\xc3\xa9\xc3\xa9");
	assert_string_equal(t.kind, "B");
	assert_int_equal(t.count, 9);
	assert_false(t.on);
	assert_int_equal(t.wait_ms, 1); /* above 0 stays above 0 */
	assert_int_equal(json_array_size(t.list), 1);
	json_decref(keep);

	assert_int_equal(decode("{\"name\":\"a\"}", 12, &t, &keep, &e), 0);
	assert_int_equal(t.count, 5);
	assert_true(t.on);
	assert_null(t.list);
	json_decref(keep);
}

/* A stack of 256 KiB parses this: the depth is bounded before anything recurses. */
static void test_deep(void **state)
{
	enum { DEEP = 500000 };
	char *text = malloc(DEEP + 16);
	struct err e = ERR_INIT;
	json_t *v = NULL;

	(void)state;
	memcpy(text, "{\"name\":", 8);
	memset(text + 8, '[', DEEP);
	assert_int_equal(json_parse_object(text, DEEP + 8, &v, &e), -EINVAL);
	assert_string_equal(e.field, "body");
	/* brackets in a string do not nest */
	text[8] = '"';
	text[DEEP + 8] = '"';
	text[DEEP + 9] = '}';
	assert_int_equal(json_parse_object(text, DEEP + 10, &v, &e), 0);
	json_decref(v);
	free(text);
}

static void test_any_string(void **state)
{
	json_t *v = json_any_string("a\xff\xe2\x82"
				    "b\xc3\xa9",
				    7);

	(void)state;
	assert_string_equal(json_string_value(v), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
						  "b\xc3\xa9");
	json_decref(v);
	v = json_any_string("a\0b", 3);
	assert_int_equal(json_string_length(v), 3);
	json_decref(v);
}

static void test_yaml(void **state)
{
	static const char good[] =
		"a: 1\nb: \"1\"\nc: [x, 'y', true]\nd: {e: 1.5}\nf: 10.0.0.0/8\n";
	static const char *const bad[] = { "a: 1\na: 2\n", "a: &x 1\nb: *x\n",  "- a\n",
					   "a: [\n",       "a: 1\n---\nb: 2\n", "{a: 1",
					   "\xff: 1\n" };
	struct err e = ERR_INIT;
	json_t *v = NULL, *want;

	(void)state;
	assert_int_equal(yaml_parse_object(good, strlen(good), &v, &e), 0);
	want = json_pack("{si ss s[ssb] s{sf} ss}", "a", 1, "b", "1", "c", "x", "y", 1, "d", "e",
			 1.5, "f", "10.0.0.0/8");
	assert_true(json_equal(v, want));
	json_decref(v);
	json_decref(want);
	assert_int_equal(yaml_parse_object("", 0, &v, &e), 0);
	assert_int_equal(json_object_size(v), 0);
	json_decref(v);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		if (yaml_parse_object(bad[i], strlen(bad[i]), &v, &e) >= 0)
			fail_msg("taken: %s", bad[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals), cmocka_unit_test(test_accepts),
		cmocka_unit_test(test_deep),     cmocka_unit_test(test_any_string),
		cmocka_unit_test(test_yaml),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
