/* Routes, scopes, idempotency, and the OpenAPI document against what is really answered. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "api/routes.h"
#include "daemon_kit.h"
#include "unit.h"

static int setup(void **state)
{
	(void)state;
	kit_open();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kit_close();
	return 0;
}

/* -- drift --------------------------------------------------------------------------------- */

static void check_shape(const char *name, const json_t *v);

static void check_member(const struct shape_field *f, const char *type, const json_t *v)
{
	static const struct {
		const char *type;
		int is, or ;
	} types[] = {
		{ "string", JSON_STRING, JSON_STRING },    { "date", JSON_STRING, JSON_STRING },
		{ "integer", JSON_INTEGER, JSON_INTEGER }, { "number", JSON_REAL, JSON_INTEGER },
		{ "boolean", JSON_TRUE, JSON_FALSE },
	};

	if (*type == '[') {
		char item[64];
		const json_t *one;
		size_t i;

		assert_true(json_is_array(v));
		snprintf(item, sizeof(item), "%.*s", (int)strlen(type) - 2, type + 1);
		json_array_foreach((json_t *)v, i, one) check_member(f, item, one);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
		if (!str_eq(types[i].type, type))
			continue;
		if (json_typeof(v) != (json_type)types[i].is &&
			    json_typeof(v) != (json_type)types[i].or)
			fail_msg("'%s' is not of type %s", f->name, type);
		if (f->values) {
			const char *const *value = f->values;

			while (*value && !str_eq(*value, json_string_value(v)))
				value++;
			if (!*value)
				fail_msg("'%s' is '%s'", f->name, json_string_value(v));
		}
		return;
	}
	check_shape(type, v);
}

static const struct shape_field *member(const struct shape *s, const char *name)
{
	for (const struct shape_field *f = s->fields; f->name; f++) {
		if (str_eq(f->name, name))
			return f;
	}
	return NULL;
}

static void check_shape(const char *name, const json_t *v)
{
	const struct shape *s = shape_find(name);
	const char *key;
	json_t *value;

	if (!s) {
		fail_msg("there is no shape '%s'", name);
		return;
	}
	json_object_foreach((json_t *)v, key, value)
	{
		const struct shape_field *f = member(s, key);

		if (!f) {
			fail_msg("%s has a member '%s' that the document does not know", name, key);
			continue;
		}
		check_member(f, f->type, value);
	}
	for (const struct shape_field *f = s->fields; f->name; f++) {
		if (!f->optional && !json_object_get(v, f->name))
			fail_msg("%s lacks '%s'", name, f->name);
	}
}

static json_t *shaped(const char *name, unsigned status, const char *method, const char *path,
		      const char *body)
{
	json_t *a = kit_want(status, method, path, body);

	check_shape(name, a);
	return a;
}

static void test_answers(void **state)
{
	char path[128];
	json_t *a;

	(void)state;
	json_decref(shaped("Health", 200, "GET", "//healthz", NULL));
	json_decref(shaped("Version", 200, "GET", "//version", NULL));
	json_decref(
		shaped("Sandbox", 201, "POST", "/sandboxes",
		       "{\"name\":\"a\",\"tags\":[\"t\"],\"scope\":\"s\",\"environment\":\"e\"}"));
	json_decref(shaped("Sandbox", 201, "POST", "/sandboxes", "{\"name\":\"b\",\"cpus\":3}"));
	json_decref(shaped("Sandbox", 200, "GET", "/sandboxes/a", NULL));
	a = shaped("SandboxList", 200, "GET", "/sandboxes?limit=1", NULL);
	assert_non_null(json_object_get(a, "next_cursor"));
	json_decref(a);
	json_decref(shaped("Exec", 200, "POST", "/sandboxes/a/exec", "{\"command\":\"echo hi\"}"));
	a = shaped("Command", 201, "POST", "/sandboxes/a/commands", "{\"args\":[\"true\"]}");
	snprintf(path, sizeof(path), "/sandboxes/a/commands/%s?wait=30",
		 json_string_value(json_object_get(a, "id")));
	json_decref(a);
	a = shaped("Command", 200, "GET", path, NULL);
	assert_string_equal(json_string_value(json_object_get(a, "status")), "SUCCESSFUL");
	json_decref(a);
	json_decref(shaped("CommandList", 200, "GET", "/sandboxes/a/commands", NULL));
	json_decref(shaped("ImageList", 200, "GET", "/images", NULL));
	json_decref(
		shaped("Identifiers", 200, "GET", "/identifiers?project=default&sandbox=a", NULL));
	json_decref(shaped("Errors", 404, "GET", "/sandboxes/none", NULL));
	json_decref(shaped("Sandbox", 200, "POST", "/sandboxes/a/stop", NULL));
}

/* Every reference of the document leads somewhere, and every row that works is in it. */
static void check_references(const json_t *root, const json_t *v)
{
	const char *key;
	const json_t *value;
	size_t i;

	json_array_foreach((json_t *)v, i, value) check_references(root, value);
	json_object_foreach((json_t *)v, key, value)
	{
		const char *prefix = "#/components/schemas/";

		if (str_eq(key, "$ref")) {
			const json_t *all =
				json_object_get(json_object_get(root, "components"), "schemas");

			assert_non_null(
				json_object_get(all, json_string_value(value) + strlen(prefix)));
		}
		check_references(root, value);
	}
}

static void test_document(void **state)
{
	json_t *doc = openapi_document("http://x"), *paths, *served;
	size_t operations = 0;
	const char *path, *method;
	json_t *item, *operation;

	(void)state;
	assert_non_null(doc);
	check_references(doc, doc);
	paths = json_object_get(doc, "paths");
	json_object_foreach(paths, path, item)
	{
		json_object_foreach(item, method, operation) operations++;
	}
	for (const struct route *t = routes; t->method; t++) {
		if (!route_available(t))
			continue;
		operations--;
		assert_non_null(json_object_get(paths, t->pattern));
		assert_true(t->status == 204 || t->socket || t->shape || t->type ||
			    str_eq(t->pattern, "/openapi.json"));
		assert_true(!t->shape || shape_find(t->shape));
	}
	assert_int_equal(operations, 0);
	json_decref(doc);
	served = kit_want(200, "GET", "//openapi.json", NULL);
	assert_non_null(json_object_get(served, "paths"));
	json_decref(served);
}

/* -- paths --------------------------------------------------------------------------------- */

static void test_paths(void **state)
{
	static const struct {
		const char *method, *path;
		unsigned status;
		const char *code, *field;
	} rows[] = {
		{ "GET", "/sandboxes/..", 400, "invalid_field", "sandbox_id" },
		{ "GET", "/sandboxes/%2e%2e", 400, "invalid_field", "sandbox_id" },
		{ "GET", "/sandboxes/a%2Fb", 400, "invalid_field", "sandbox_id" },
		{ "GET", "/sandboxes/a%00", 400, "bad_encoding", "path" },
		{ "GET", "/sandboxes/%", 400, "bad_encoding", "path" },
		{ "GET", "/sandboxes/%4", 400, "bad_encoding", "path" },
		{ "GET", "/sandboxes/%zz", 400, "bad_encoding", "path" },
		{ "GET", "/sandboxes/%252e", 400, "invalid_field", "sandbox_id" },
		{ "GET", "/sandboxes/../../etc", 400, "bad_path", "path" },
		{ "GET", "/sandboxes/a/commands/..", 400, "invalid_field", "command_id" },
		{ "GET", "/sandboxes/a/commands/cmaaaaaaaaaaaaaaaaaaaa", 404, "sandbox_not_found",
		  "" },
		{ "GET", "/nothing", 404, "path_not_found", "" },
		{ "PUT", "/sandboxes", 405, "method_not_allowed", "" },
		{ "GET", "/sandboxes?x=1", 400, "unknown_field", "x" },
		{ "GET", "/sandboxes?limit=0", 400, "invalid_field", "limit" },
		{ "GET", "/sandboxes?limit=1&limit=2", 400, "duplicate_field", "limit" },
		{ "GET", "/sandboxes?tag=%ff", 400, "bad_encoding", "query" },
		{ "GET", "/sandboxes?project=none", 404, "project_not_found", "project" },
		{ "POST", "/sandboxes/a/start?x=1", 400, "unknown_field", "x" },
		{ "GET", "/sandboxes/a/apps/web", 400, "not_available", "apps" },
		{ "GET", "/sandboxes/snapshots/sn1", 400, "not_available", "snapshots" },
		{ "GET", "//workspaces/other/sandboxes", 404, "workspace_not_found", "" },
		{ "GET", "//workspaces/%2e%2e/sandboxes", 400, "invalid_field", "workspace" },
		{ "DELETE", "/images/..", 400, "invalid_field", "image" },
		{ "GET", "//", 404, "path_not_found", "" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		json_t *a = kit_want(rows[i].status, rows[i].method, rows[i].path, NULL);

		assert_string_equal(kit_code(a), rows[i].code);
		assert_string_equal(kit_field(a), rows[i].field);
		json_decref(a);
	}
}

static void test_tokens(void **state)
{
	static const char *const bad[] = { "", "x", "skry_",
					   "skry_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	char reader[TOKEN_SIZE];
	struct err e = ERR_INIT;
	struct kit_answer a;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		a = kit_api(.method = "GET", .path = "/sandboxes", .token = bad[i]);
		assert_int_equal(a.status, 401);
		kit_free(&a);
	}
	assert_int_equal(token_create("default", "r", SCOPE_READ, &actor_system, reader, &e), 0);
	a = kit_api(.method = "GET", .path = "/sandboxes", .token = reader);
	assert_int_equal(a.status, 200);
	kit_free(&a);
	a = kit_api(.method = "POST", .path = "/sandboxes", .token = reader,
		    .body = "{\"name\":\"x\"}");
	assert_int_equal(a.status, 403);
	assert_string_equal(kit_code(a.json), "scope");
	kit_free(&a);
}

/* -- identifiers --------------------------------------------------------------------------- */

static void test_handles(void **state)
{
	json_t *a, *b;

	(void)state;
	a = kit_want(201, "POST", "/sandboxes", "{\"name\":\"n\",\"identifier\":\"My-Box\"}");
	b = kit_want(200, "GET", "/sandboxes/my-box", NULL);
	assert_string_equal(json_string_value(json_object_get(a, "id")),
			    json_string_value(json_object_get(b, "id")));
	json_decref(b);
	b = kit_want(409, "POST", "/sandboxes", "{\"name\":\"n\",\"identifier\":\"MY-BOX\"}");
	assert_string_equal(kit_field(b), "identifier");
	json_decref(a);
	json_decref(b);
	a = kit_want(201, "POST", "/sandboxes", "{\"name\":\"My Box\"}");
	assert_string_equal(json_string_value(json_object_get(a, "identifier")), "My-Box-2");
	json_decref(a);
	a = kit_want(201, "POST", "/sandboxes", "{\"name\":\"\xe6\x97\xa5\"}");
	assert_true(str_starts(json_string_value(json_object_get(a, "identifier")), "sandbox-"));
	json_decref(a);
}

/* -- idempotency --------------------------------------------------------------------------- */

static struct kit_answer once(const char *key, const char *body)
{
	return kit_api(.method = "POST", .path = "/sandboxes", .key = key, .body = body);
}

static void *create_k(void *arg)
{
	struct kit_answer a = once("k", "{\"name\":\"k\"}");

	assert_int_equal(a.status, 201);
	snprintf(arg, ID_SIZE, "%s", json_string_value(json_object_get(a.json, "id")));
	kit_free(&a);
	return NULL;
}

static void test_once(void **state)
{
	char id[8][ID_SIZE];
	pthread_t threads[8];
	struct kit_answer a;

	(void)state;
	kit.start_ms = 100; /* the first runs while the others come */
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, create_k, id[i]), 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 1; i < 8; i++)
		assert_string_equal(id[i], id[0]);
	assert_int_equal(kit.creates, 1);
	a = once("k", "{\"name\":\"other\"}");
	assert_int_equal(a.status, 422);
	kit_free(&a);
	kit.fail_create = EIO; /* a failure may be tried again */
	a = once("f", "{\"name\":\"f\"}");
	assert_int_equal(a.status, 503);
	kit_free(&a);
	kit.fail_create = 0;
	a = once("f", "{\"name\":\"f\"}");
	assert_int_equal(a.status, 201);
	kit_free(&a);
}

/* The daemon ended between what was made and its answer: the repeat gets what was made. */
static void test_once_cut(void **state)
{
	struct kit_answer a = once("c", "{\"name\":\"c\"}"), b;
	struct err e = ERR_INIT;
	struct tx t;

	(void)state;
	assert_int_equal(a.status, 201);
	assert_int_equal(tx_begin(&t, STORE_DURABLE, &e), 0);
	assert_int_equal(tx_run(&t, &e,
				"UPDATE idempotency SET status = 0, answer = NULL"
				" WHERE path = ? AND key = ?",
				"ss", "/workspaces/default/sandboxes", "c"),
			 1);
	assert_int_equal(tx_commit(&t, &e), 0);
	kit_restart();
	b = once("c", "{\"name\":\"c\"}");
	assert_int_equal(b.status, 201);
	assert_string_equal(json_string_value(json_object_get(a.json, "id")),
			    json_string_value(json_object_get(b.json, "id")));
	assert_int_equal(kit.creates, 1);
	kit_free(&a);
	kit_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_document, setup, teardown),
		cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_handles, setup, teardown),
		cmocka_unit_test_setup_teardown(test_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_once_cut, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
