/* The OpenAPI document, from the tables of routes, fields and shapes. */
#include <stdio.h>
#include <string.h>

#include "base/banned.h"

#include "api/routes.h"
#include "api/view.h"

enum { NAME_MAX_BYTES = 160 };

static json_t *reference(const char *name, size_t len)
{
	char text[NAME_MAX_BYTES];

	snprintf(text, sizeof(text), "#/components/schemas/%.*s", (int)len, name);
	return json_pack("{ss}", "$ref", text);
}

static json_t *value_list(const char *const *values)
{
	json_t *list = json_array();

	for (; *values; values++)
		json_array_append_new(list, json_string(*values));
	return list;
}

static json_t *string_schema(const struct field *f, uint64_t min, uint64_t max)
{
	json_t *o = json_pack("{ss}", "type", "string");

	if (min)
		put(&o, "minLength", json_integer((json_int_t)min));
	if (max)
		put(&o, "maxLength", json_integer((json_int_t)max));
	if (f->kind == FIELD_KIND_ENUM)
		put(&o, "enum", value_list(f->values));
	return o;
}

static json_t *field_schema(const struct field *f)
{
	json_t *o = NULL;

	switch (f->kind) {
	case FIELD_KIND_STR:
	case FIELD_KIND_ENUM:
		o = string_schema(f, f->min, f->max);
		break;
	case FIELD_KIND_U32:
		o = json_pack("{ss sI sI}", "type", "integer", "minimum", (json_int_t)f->min,
			      "maximum", (json_int_t)(f->max ? f->max : UINT32_MAX));
		break;
	case FIELD_KIND_U64:
		o = json_pack("{ss sI}", "type", "integer", "minimum", (json_int_t)f->min);
		break;
	case FIELD_KIND_BOOL:
		o = json_pack("{ss}", "type", "boolean");
		break;
	case FIELD_KIND_SECONDS:
		o = json_pack("{ss si sb sI}", "type", "number", "minimum", 0, "exclusiveMinimum",
			      1, "maximum", (json_int_t)f->max);
		break;
	case FIELD_KIND_LIST:
		o = json_pack("{ss sI sI so}", "type", "array", "minItems", (json_int_t)f->min,
			      "maxItems", (json_int_t)f->max, "items",
			      string_schema(f, f->item_min, f->item_max));
		break;
	case FIELD_KIND_MAP:
		o = json_pack("{ss sI so}", "type", "object", "maxProperties", (json_int_t)f->max,
			      "additionalProperties", string_schema(f, f->item_min, f->item_max));
		break;
	case FIELD_KIND_OBJECT:
		o = json_pack("{ss}", "type", "object");
		break;
	}
	if (f->about)
		put(&o, "description", json_string(f->about));
	return o;
}

static json_t *body_schema(const struct field *fields)
{
	json_t *members = json_object(), *required = json_array(), *o = json_object();

	for (const struct field *f = fields; f->name; f++) {
		if (f->reserved)
			continue;
		put(&members, f->name, field_schema(f));
		if (f->required)
			json_array_append_new(required, json_string(f->name));
	}
	put(&o, "type", json_string("object"));
	put(&o, "additionalProperties", json_false());
	put(&o, "properties", members);
	if (json_array_size(required))
		put(&o, "required", required);
	else
		json_decref(required);
	return o;
}

static json_t *member_schema(const struct shape_field *f)
{
	size_t len = strlen(f->type);
	json_t *o;

	if (*f->type == '[') {
		struct shape_field item = *f;
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)len - 2, f->type + 1);
		item.type = name;
		o = json_pack("{ss so}", "type", "array", "items", member_schema(&item));
	} else if (str_eq(f->type, "date")) {
		o = json_pack("{ss ss}", "type", "string", "format", "date-time");
	} else if (*f->type >= 'A' && *f->type <= 'Z') {
		o = reference(f->type, len);
	} else {
		o = json_pack("{ss}", "type", f->type);
	}
	if (f->values)
		put(&o, "enum", value_list(f->values));
	return o;
}

static json_t *shape_schema(const struct shape *s)
{
	json_t *members = json_object(), *required = json_array();

	for (const struct shape_field *f = s->fields; f->name; f++) {
		put(&members, f->name, member_schema(f));
		if (!f->optional)
			json_array_append_new(required, json_string(f->name));
	}
	return json_pack("{ss sb so so*}", "type", "object", "additionalProperties", 0,
			 "properties", members, "required",
			 json_array_size(required) ? required : (json_decref(required), NULL));
}

static json_t *parameters(const struct route *t)
{
	json_t *list = json_array();

	for (const char *p = strchr(t->pattern, '{'); p; p = strchr(p + 1, '{'))
		json_array_append_new(list, json_pack("{ss% ss sb s{ss}}", "name", p + 1,
						      strcspn(p + 1, "}"), "in", "path", "required",
						      1, "schema", "type", "string"));
	for (const struct field *f = t->query; f && f->name; f++) {
		if (!f->reserved)
			json_array_append_new(list,
					      json_pack("{ss ss sb so}", "name", f->name, "in",
							"query", "required", (int)f->required,
							"schema", field_schema(f)));
	}
	if (t->scope != SCOPE_NONE)
		json_array_append_new(list, json_pack("{ss ss sb s{ss}}", "name", "project_name",
						      "in", "query", "required", 0, "schema",
						      "type", "string"));
	if (t->once)
		json_array_append_new(list,
				      json_pack("{ss ss sb s{ss si}}", "name", "Idempotency-Key",
						"in", "header", "required", 0, "schema", "type",
						"string", "maxLength", 255));
	return list;
}

static json_t *content(const char *type, json_t *schema)
{
	return json_pack("{s{so}}", type, "schema", schema);
}

static json_t *answers(const struct route *t)
{
	json_t *good = json_pack("{ss}", "description", t->summary), *all = json_object();
	char status[8];

	if (t->shape)
		put(&good, "content",
		    content("application/json", reference(t->shape, strlen(t->shape))));
	else if (t->type)
		put(&good, "content", content(t->type, json_pack("{ss}", "type", "string")));
	else if (t->status != 204 && !t->socket)
		put(&good, "content",
		    content("application/json", json_pack("{ss}", "type", "object")));
	snprintf(status, sizeof(status), "%u", t->status);
	put(&all, status, good);
	put(&all, "default",
	    json_pack("{ss so}", "description", "it was refused, or it failed", "content",
		      content("application/json", reference("Errors", 6))));
	return all;
}

/* The bytes themselves, or a form that has them as its part `file`. */
static json_t *bytes_schema(const char *type)
{
	json_t *bytes = json_pack("{ss ss}", "type", "string", "format", "binary");

	if (!str_starts(type, "multipart/"))
		return bytes;
	return json_pack("{ss s{so} s[s]}", "type", "object", "properties", "file", bytes,
			 "required", "file");
}

static json_t *upload_content(const struct upload *u)
{
	json_t *o = content(u->type, bytes_schema(u->type));

	for (const char *const *t = u->also; t && *t; t++)
		put(&o, *t, json_pack("{so}", "schema", bytes_schema(*t)));
	return o;
}

static json_t *operation(const struct route *t)
{
	json_t *o = json_object();

	put(&o, "summary", json_string(t->summary));
	put(&o, "parameters", parameters(t));
	put(&o, "responses", answers(t));
	if (t->fields)
		put(&o, "requestBody",
		    json_pack("{so}", "content",
			      content("application/json", body_schema(t->fields))));
	if (t->upload)
		put(&o, "requestBody", json_pack("{so}", "content", upload_content(t->upload)));
	if (t->scope == SCOPE_NONE)
		put(&o, "security", json_array());
	return o;
}

static json_t *paths(void)
{
	json_t *all = json_object();

	for (const struct route *t = routes; t->method; t++) {
		json_t *item = json_object_get(all, t->pattern);
		char method[8];

		if (!route_available(t))
			continue;
		if (!item) {
			put(&all, t->pattern, json_object());
			item = json_object_get(all, t->pattern);
		}
		for (unsigned i = 0; i < sizeof(method); i++) {
			method[i] = (char)(t->method[i] | 0x20);
			if (!t->method[i]) {
				method[i] = '\0';
				break;
			}
		}
		json_object_set_new(item, method, operation(t));
	}
	return all;
}

json_t *openapi_document(const char *server_url)
{
	json_t *schemas = json_object();

	for (const struct shape *s = shapes; s->name; s++)
		put(&schemas, s->name, shape_schema(s));
	return json_pack("{ss s{ss ss} s[{ss}] s[{s[]}] so s{so s{s{ss ss}}}}", "openapi", "3.0.3",
			 "info", "title", "Skerry", "version", SKERRY_VERSION, "servers", "url",
			 server_url, "security", "token", "paths", paths(), "components", "schemas",
			 schemas, "securitySchemes", "token", "type", "http", "scheme", "bearer");
}
