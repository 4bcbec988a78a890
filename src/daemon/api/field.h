#pragma once
/*
 * A request is a table.
 *
 * A `struct field` row says the name, type, limits and place of one field; decoding, the texts of
 * the refusals, the OpenAPI document and the configuration file all come from the rows. Decoded
 * strings and lists point into the JSON value, which the caller keeps alive as long as the struct.
 * Nothing here knows HTTP or the database.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum field_kind {
	FIELD_KIND_STR = 1, /* const char *, NULL when absent */
	FIELD_KIND_ENUM,    /* const char *, one of `values` */
	FIELD_KIND_U32,     /* uint32_t, `absent` when absent */
	FIELD_KIND_U64,     /* uint64_t, at most INT64_MAX; `absent` when absent */
	FIELD_KIND_BOOL,    /* bool, `absent` when absent */
	FIELD_KIND_SECONDS, /* uint64_t milliseconds; a number above 0, fractions allowed */
	FIELD_KIND_LIST,    /* json_t *, an array of strings */
	FIELD_KIND_MAP,     /* json_t *, an object of strings */
	FIELD_KIND_OBJECT,  /* its fields are `sub`, with places in the same struct */
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset;
	bool required;
	bool reserved; /* of the contract, and not there yet: refused as not_available */
	uint64_t min;  /* characters, value, seconds, or number of items */
	uint64_t max;
	uint64_t item_min; /* characters of one item of a list, or value of a map */
	uint64_t item_max;
	uint64_t absent;
	const char *const *values;
	const struct field *sub;
	/* A rule beyond the limits; sets the error's text, without the field. */
	int (*check)(const char *value, struct err *e);
	const char *about;
};

#define FIELD_AT(type, member, want)                                                               \
	(offsetof(type, member) +                                                                  \
	 0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((type *)0)->member), want)       \
				 ? 1                                                               \
				 : -1]))

#define FIELD_STR(type, member, ...)                                                               \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_STR,                                           \
		.offset = FIELD_AT(type, member, const char *), __VA_ARGS__                        \
	}
#define FIELD_ENUM(type, member, list, ...)                                                        \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_ENUM,                                          \
		.offset = FIELD_AT(type, member, const char *), .values = (list), __VA_ARGS__      \
	}
#define FIELD_U32(type, member, ...)                                                               \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_U32,                                           \
		.offset = FIELD_AT(type, member, uint32_t), __VA_ARGS__                            \
	}
#define FIELD_U64(type, member, ...)                                                               \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_U64,                                           \
		.offset = FIELD_AT(type, member, uint64_t), __VA_ARGS__                            \
	}
#define FIELD_BOOL(type, member, ...)                                                              \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_BOOL, .offset = FIELD_AT(type, member, bool),  \
		__VA_ARGS__                                                                        \
	}
#define FIELD_SECONDS(type, member, field_name, ...)                                               \
	{                                                                                          \
		.name = (field_name), .kind = FIELD_KIND_SECONDS,                                  \
		.offset = FIELD_AT(type, member, uint64_t), __VA_ARGS__                            \
	}
#define FIELD_LIST(type, member, ...)                                                              \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_LIST,                                          \
		.offset = FIELD_AT(type, member, json_t *), __VA_ARGS__                            \
	}
#define FIELD_MAP(type, member, ...)                                                               \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_MAP,                                           \
		.offset = FIELD_AT(type, member, json_t *), __VA_ARGS__                            \
	}
#define FIELD_OBJECT(field_name, fields)                                                           \
	{                                                                                          \
		.name = (field_name), .kind = FIELD_KIND_OBJECT, .sub = (fields)                   \
	}
#define FIELD_RESERVED(field_name)                                                                 \
	{                                                                                          \
		.name = (field_name), .reserved = true                                             \
	}

/* Decodes `object` into `out` (zeroed by the caller). The first fault ends it: -EINVAL, or
 * -ENOTSUP for a reserved field, with the field's path in the error. */
int fields_decode(const struct field *fields, const json_t *object, void *out, struct err *e);

/* Gives the text of a query parameter the type its row has; NULL when memory is short. A text that
 * does not fit stays a string, which decoding then refuses. */
json_t *field_from_text(const struct field *f, const char *text);

const struct field *field_find(const struct field *fields, const char *name);

/* One JSON object from untrusted bytes: nesting bounded, duplicate keys and bad UTF-8 refused, the
 * member at fault named where it is known. */
int json_parse_object(const char *text, size_t len, json_t **ret, struct err *e);

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD. */
json_t *json_any_string(const char *s, size_t len);
