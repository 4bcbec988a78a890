#pragma once
/*
 * Small helps around jansson: scopes, and reading fields that may be absent or of another type.
 */
#include <jansson.h>
#include <stdint.h>

#include "base/cleanup.h"

static inline void json_decref_p(json_t **j)
{
	json_decref(*j);
	*j = NULL;
}

#define _cleanup_json_ _cleanup_(json_decref_p)

/* The string at `key`, or NULL. Belongs to the object. */
static inline const char *json_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* The same, `other` where there is none. */
static inline const char *json_text_or(const json_t *object, const char *key, const char *other)
{
	const char *text = json_text(object, key);

	return text ? text : other;
}

static inline int64_t json_int_or(const json_t *object, const char *key, int64_t other)
{
	const json_t *v = json_object_get(object, key);

	return json_is_integer(v) ? (int64_t)json_integer_value(v) : other;
}
