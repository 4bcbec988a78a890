/*
 * A small, strict subset of YAML as a JSON value: plain scalars become integers, numbers, booleans
 * or strings as in YAML's core schema, quoted ones are strings.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/banned.h"
#include "base/str.h"

#include "api/field.h"
#include "config.h"

enum { YAML_DEPTH_MAX = 32 };

static int fault(struct err *e, const yaml_mark_t *mark, const char *what)
{
	return err_reason(e, EINVAL, "invalid_yaml", "line %zu: %s", mark->line + 1, what);
}

static json_t *scalar(const yaml_event_t *ev)
{
	const char *s = (const char *)ev->data.scalar.value;
	size_t len = ev->data.scalar.length;
	json_t *number;

	if (ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return json_stringn(s, len);
	if (str_eq(s, "true") || str_eq(s, "false"))
		return json_boolean(*s == 't');
	if (!len || str_eq(s, "null") || str_eq(s, "~"))
		return json_null();
	number = json_loadb(s, len, JSON_DECODE_ANY, NULL);
	if (json_is_number(number))
		return number;
	json_decref(number);
	return json_stringn(s, len);
}

static int value(yaml_parser_t *p, yaml_event_t *ev, unsigned depth, json_t **ret, struct err *e);

static int next(yaml_parser_t *p, yaml_event_t *ev, struct err *e)
{
	if (yaml_parser_parse(p, ev))
		return 0;
	return fault(e, &p->problem_mark, p->problem ? p->problem : "not YAML");
}

static int sequence(yaml_parser_t *p, unsigned depth, json_t *into, struct err *e)
{
	for (;;) {
		yaml_event_t ev;
		json_t *item = NULL;
		int r = next(p, &ev, e);

		if (r < 0)
			return r;
		if (ev.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&ev);
			return 0;
		}
		r = value(p, &ev, depth, &item, e);
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
		if (json_array_append_new(into, item) < 0)
			return err_set(e, ENOMEM, "out of memory");
	}
}

static int member(yaml_parser_t *p, const yaml_event_t *key, unsigned depth, json_t *into,
		  struct err *e)
{
	const char *name = (const char *)key->data.scalar.value;
	json_t *item = NULL;
	yaml_event_t ev;
	int r;

	if (key->type != YAML_SCALAR_EVENT || strlen(name) != key->data.scalar.length)
		return fault(e, &key->start_mark, "a key must be a plain text");
	if (json_object_get(into, name)) {
		fault(e, &key->start_mark, "a key is given twice");
		return err_field(e, "%s", name);
	}
	r = next(p, &ev, e);
	if (r < 0)
		return r;
	r = value(p, &ev, depth, &item, e);
	yaml_event_delete(&ev);
	if (r < 0)
		return r;
	return json_object_set_new(into, name, item) < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
}

static int mapping(yaml_parser_t *p, unsigned depth, json_t *into, struct err *e)
{
	for (;;) {
		yaml_event_t ev;
		bool end;
		int r = next(p, &ev, e);

		if (r < 0)
			return r;
		end = ev.type == YAML_MAPPING_END_EVENT;
		if (!end)
			r = member(p, &ev, depth, into, e);
		yaml_event_delete(&ev);
		if (end || r < 0)
			return r;
	}
}

static int value(yaml_parser_t *p, yaml_event_t *ev, unsigned depth, json_t **ret, struct err *e)
{
	json_t *v;
	int r = 0;

	if (depth >= YAML_DEPTH_MAX)
		return fault(e, &ev->start_mark, "nested too deeply");
	if (ev->type == YAML_SCALAR_EVENT) {
		v = scalar(ev);
	} else if (ev->type == YAML_SEQUENCE_START_EVENT) {
		v = json_array();
		r = v ? sequence(p, depth + 1, v, e) : 0;
	} else if (ev->type == YAML_MAPPING_START_EVENT) {
		v = json_object();
		r = v ? mapping(p, depth + 1, v, e) : 0;
	} else {
		return fault(e, &ev->start_mark, "anchors and aliases are not allowed");
	}
	if (!v)
		return err_set(e, ENOMEM, "out of memory");
	if (r < 0) {
		json_decref(v);
		return r;
	}
	*ret = v;
	return 0;
}

static int document(yaml_parser_t *p, json_t **ret, struct err *e)
{
	for (;;) {
		yaml_event_t ev;
		yaml_event_type_t type;
		int r = next(p, &ev, e);

		if (r < 0)
			return r;
		type = ev.type;
		if (type == YAML_STREAM_END_EVENT) {
			yaml_event_delete(&ev);
			return 0;
		}
		if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
		    type != YAML_DOCUMENT_END_EVENT) {
			r = *ret ? fault(e, &ev.start_mark, "more than one document")
				 : value(p, &ev, 0, ret, e);
		}
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
	}
}

int yaml_parse_object(const char *text, size_t len, json_t **ret, struct err *e)
{
	yaml_parser_t p;
	json_t *v = NULL;
	int r;

	if (!yaml_parser_initialize(&p))
		return err_set(e, ENOMEM, "out of memory");
	yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
	r = document(&p, &v, e);
	yaml_parser_delete(&p);
	if (!r && (!v || json_is_null(v))) {
		json_decref(v);
		v = json_object();
	}
	if (!r && !json_is_object(v))
		r = err_reason(e, EINVAL, "invalid_yaml", "the document must be a mapping");
	if (r < 0) {
		json_decref(v);
		return r;
	}
	*ret = v;
	return 0;
}
