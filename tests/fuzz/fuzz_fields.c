/*
 * Requests as JSON and the configuration as YAML: parsed, decoded by a table with every kind of
 * field, and whatever was taken is within the table's limits.
 */
#include <assert.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "api/field.h"
#include "config.h"
#include "fuzz.h"

static const char *const colours[] = { "red", "green", NULL };

struct taken {
	const char *name, *colour;
	uint32_t count;
	bool flag;
	uint64_t timeout_ms;
	json_t *tags, *env;
	uint32_t inner;
};

static const struct field inner_fields[] = {
	FIELD_U32(struct taken, inner, .min = 1, .max = 9, .absent = 5),
	{ 0 },
};

static const struct field fields[] = {
	FIELD_STR(struct taken, name, .required = true, .min = 1, .max = 20),
	FIELD_ENUM(struct taken, colour, colours),
	FIELD_U32(struct taken, count, .min = 2, .max = 1000, .absent = 7),
	FIELD_BOOL(struct taken, flag, .absent = 1),
	FIELD_SECONDS(struct taken, timeout_ms, "timeout", .max = 31536000),
	FIELD_LIST(struct taken, tags, .max = 4, .item_min = 1, .item_max = 10),
	FIELD_MAP(struct taken, env, .max = 4, .item_max = 10),
	FIELD_OBJECT("nested", inner_fields),
	FIELD_RESERVED("later"),
	{ 0 },
};

static void check(const json_t *object)
{
	struct taken t = { 0 };
	struct err e = ERR_INIT;
	size_t i;
	json_t *item;

	if (fields_decode(fields, object, &t, &e) < 0) {
		assert(e.code && e.text[0] && e.field[0]);
		return;
	}
	assert(t.name && *t.name && utf8_valid(t.name, strlen(t.name)));
	assert(!t.colour || str_eq(t.colour, "red") || str_eq(t.colour, "green"));
	assert(t.count >= 2 && t.count <= 1000 && t.inner >= 1 && t.inner <= 9);
	assert(t.timeout_ms <= 31536000000ull);
	assert(!t.tags || json_array_size(t.tags) <= 4);
	json_array_foreach(t.tags, i, item)
		assert(json_is_string(item) && *json_string_value(item));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int (*const parsers[])(const char *, size_t, json_t **, struct err *) = {
		json_parse_object,
		yaml_parse_object,
	};

	for (size_t i = 0; i < ARRAY_SIZE(parsers); i++) {
		struct err e = ERR_INIT;
		json_t *object = NULL;

		if (parsers[i]((const char *)data, size, &object, &e) < 0) {
			assert(e.code && e.text[0] && !object);
			continue;
		}
		assert(json_is_object(object));
		check(object);
		json_decref(object);
	}
	return 0;
}
