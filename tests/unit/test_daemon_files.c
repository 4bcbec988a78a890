/* Files over the API against agents that are honest, broken, silent and hostile: what answers with
 * JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "files_kit.h"
#include "unit.h"

static const char *text_of(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : "";
}

/* -- honest -------------------------------------------------------------------------------- */

static void lists(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	say_entry(&out, ENTRY_DIR, "a b", 0);
	say_entry(&out, ENTRY_LINK, "a b/caf\xe9", 7);
	say_entry(&out, ENTRY_FIFO, "z", 0);
	file_put_end(&out, FILE_MORE);
	say(c, &out);
	listen_on(c);
}

static void test_list(void **state)
{
	struct kit_answer a =
		meet(lists, .method = "GET", .path = "/content/x%2F/y%20?recursive=true&limit=3");
	json_t *all = json_object_get(a.json, "contents"), *one = json_array_get(all, 1);
	char path[256];

	(void)state;
	assert_int_equal(a.status, 200);
	assert_int_equal(json_array_size(all), 3);
	assert_string_equal(text_of(json_array_get(all, 0), "type"), "DIR");
	assert_string_equal(text_of(json_array_get(all, 2), "kind"), "FIFO");
	assert_string_equal(text_of(one, "type"), "FILE");
	assert_string_equal(text_of(one, "kind"), "LINK");
	assert_string_equal(text_of(one, "name"), "caf\xef\xbf\xbd");
	assert_string_equal(text_of(one, "name_base64"), "Y2Fm6Q==");
	assert_string_equal(text_of(one, "path"), "/x/y /a b/caf\xef\xbf\xbd");
	assert_string_equal(text_of(one, "mode"), "0644");
	assert_string_equal(text_of(one, "mtime"), "2023-11-14T22:13:20.123Z");
	assert_string_equal(text_of(one, "owner"), "skerry");
	assert_string_equal(text_of(one, "group"), "1000");
	assert_string_equal(text_of(one, "target"), "else");
	assert_non_null(strstr(text_of(one, "url"), "/content/x/y%20/a%20b/caf%E9"));
	assert_string_equal(asked.path, "/x/y ");
	assert_int_equal(asked.flags, FILE_RECURSIVE);
	assert_int_equal(asked.limit, 3);
	assert_string_equal(asked.default_user, "skerry");

	/* the cursor leads on behind the last one */
	snprintf(path, sizeof(path), "/content/x?cursor=%s", text_of(a.json, "next_cursor"));
	kit_free(&a);
	a = meet(lists, .method = "GET", .path = path);
	assert_int_equal(a.status, 200);
	assert_string_equal(asked.to, "z");
	kit_free(&a);
	refuse(lists, 400, "invalid_field", .method = "GET", .path = "/content/x?cursor=%21");
}

static void is_file(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	if (asked.op == FILE_LIST) {
		say_fail(&out, ENOTDIR, "file_failed", "list '/f': Not a directory");
	} else {
		say_entry(&out, ENTRY_FILE, "/f", 5);
		file_put_end(&out, 0);
	}
	say(c, &out);
	listen_on(c);
}

static void test_list_of_a_file(void **state)
{
	struct kit_answer a = meet(is_file, .method = "GET", .path = "/content/f");

	(void)state;
	assert_int_equal(a.status, 200);
	assert_string_equal(text_of(a.json, "type"), "FILE");
	assert_null(json_object_get(a.json, "contents"));
	kit_free(&a);
}

static void ends(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	if (asked.op != FILE_REMOVE)
		say_entry(&out, ENTRY_DIR, "/d", 0);
	file_put_end(&out, 0);
	say(c, &out);
	listen_on(c);
}

static void test_what_is_asked(void **state)
{
	static const struct {
		const char *method, *path, *body;
		unsigned status, op, flags, mode;
		const char *at, *to, *user, *owner;
	} rows[] = {
		{ "GET", "/stat", NULL, 200, FILE_STAT, 0, 0, "/", "", "", "" },
		{ "GET", "/stat/", NULL, 200, FILE_STAT, 0, 0, "/", "", "", "" },
		{ "GET", "/stat/a%2fb//c/", NULL, 200, FILE_STAT, 0, 0, "/a/b/c", "", "", "" },
		{ "POST", "/content/d?parents=true&userName=u&mode=1777", NULL, 201, FILE_MAKE,
		  FILE_PARENTS | FILE_HAS_MODE, 01777, "/d", "", "u", "" },
		{ "PATCH", "/content/d", "{\"mode\":\"0\",\"owner\":\"a:b\"}", 200, FILE_SET,
		  FILE_HAS_MODE, 0, "/d", "", "", "a:b" },
		{ "POST", "/move", "{\"from\":\"/a/\",\"to_base64\":\"L+n/\",\"overwrite\":true}",
		  200, FILE_MOVE, FILE_OVERWRITE, 0, "/a", "/\xe9\xff", "", "" },
		{ "DELETE", "/content/d", NULL, 204, FILE_REMOVE, 0, 0, "/d", "", "", "" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kit_answer a = meet(ends, .method = rows[i].method, .path = rows[i].path,
					   .body = rows[i].body);

		assert_int_equal(a.status, rows[i].status);
		assert_int_equal(asked.op, rows[i].op);
		assert_int_equal(asked.flags, rows[i].flags);
		assert_int_equal(asked.mode, rows[i].mode);
		assert_string_equal(asked.path, rows[i].at);
		assert_string_equal(asked.to, rows[i].to);
		assert_string_equal(asked.user, rows[i].user);
		assert_string_equal(asked.owner, rows[i].owner);
		kit_free(&a);
	}
}

static void finds(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	file_put_match(&out, &(struct agent_match){ .path = "/a", .text = "" });
	file_put_match(&out, &(struct agent_match){ "/b\xff", 3, "x\xff", 2 });
	file_put_end(&out, FILE_MORE);
	say(c, &out);
	listen_on(c);
}

static void test_search(void **state)
{
	struct kit_answer a =
		meet(finds, .method = "POST", .path = "/search",
		     .body = "{\"path\":\"/\",\"name\":\"*.c\",\"text_base64\":\"/w==\"}");
	json_t *all = json_object_get(a.json, "matches"), *second = json_array_get(all, 1);

	(void)state;
	assert_int_equal(a.status, 200);
	assert_true(json_is_true(json_object_get(a.json, "truncated")));
	assert_int_equal(json_array_size(all), 2);
	assert_null(json_object_get(json_array_get(all, 0), "line"));
	assert_int_equal(json_integer_value(json_object_get(second, "line")), 3);
	assert_string_equal(text_of(second, "text"), "x\xef\xbf\xbd");
	assert_string_equal(text_of(second, "text_base64"), "eP8=");
	assert_string_equal(text_of(second, "path_base64"), "L2L/");
	assert_string_equal(asked.name, "*.c");
	assert_string_equal(asked.text, "\xff");
	assert_int_equal(asked.limit, 1000);
	kit_free(&a);
}

/* -- paths --------------------------------------------------------------------------------- */

static void test_bad_paths(void **state)
{
	static const struct {
		const char *method, *path, *body, *code, *field;
	} rows[] = {
		{ "GET", "/stat/a/../b", NULL, "bad_path", "path" },
		{ "GET", "/stat/%2e", NULL, "bad_path", "path" },
		{ "GET", "/stat/a%2F..%2Fb", NULL, "bad_path", "path" },
		{ "GET", "/stat/a%00b", NULL, "bad_encoding", "path" },
		{ "GET", "/stat/a%2", NULL, "bad_encoding", "path" },
		{ "POST", "/move", "{\"from\":\"a\",\"to\":\"/b\"}", "bad_path", "from" },
		{ "POST", "/move", "{\"from\":\"/a\",\"to\":\"/b/..\"}", "bad_path", "to" },
		{ "POST", "/move", "{\"from\":\"/a\"}", "invalid_field", "to" },
		{ "POST", "/move", "{\"from_base64\":\"!\",\"to\":\"/b\"}", "invalid_field",
		  "from_base64" },
		{ "POST", "/move", "{\"from_base64\":\"LwA=\",\"to\":\"/b\"}", "invalid_field",
		  "from_base64" },
		{ "POST", "/move", "{\"from\":\"/a\",\"from_base64\":\"L2E=\",\"to\":\"/b\"}",
		  "invalid_field", "from_base64" },
		{ "POST", "/search", "{\"name\":\"x\"}", "invalid_field", "path" },
		{ "PATCH", "/content/a", "{}", "invalid_field", "mode" },
		{ "PATCH", "/content/a", "{\"mode\":\"0999\"}", "invalid_field", "mode" },
		{ "PATCH", "/content/a", "{\"mode\":\"17777\"}", "invalid_field", "mode" },
		{ "POST", "/content/a", "{\"x\":1}", "unknown_field", "x" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kit_answer a = meet(ends, .method = rows[i].method, .path = rows[i].path,
					   .body = rows[i].body);

		if (a.status != 400 || strcmp(kit_code(a.json), rows[i].code) != 0 ||
		    strcmp(kit_field(a.json), rows[i].field) != 0)
			fail_msg("%s: %u %s %s", rows[i].path, a.status, kit_code(a.json),
				 kit_field(a.json));
		kit_free(&a);
	}
}

static void test_long_paths(void **state)
{
	static char deep[3 * FILE_PATH_MAX], name[300];
	size_t at;

	(void)state;
	/* 2,047 parts and 4,094 bytes are a path; one part more is not */
	at = (size_t)snprintf(deep, sizeof(deep), "/stat");
	for (unsigned i = 0; i < FILE_PATH_MAX / 2; i++, at += 2)
		memcpy(deep + at, "/d", 3);
	refuse(ends, 200, "", .method = "GET", .path = deep);
	assert_int_equal(strlen(asked.path), FILE_PATH_MAX - 1);
	memcpy(deep + at, "/d", 3);
	refuse(ends, 400, "bad_path", .method = "GET", .path = deep);

	memset(name, 'n', sizeof(name));
	memcpy(name, "/stat/", 6);
	name[6 + FILE_NAME_MAX] = '\0';
	refuse(ends, 200, "", .method = "GET", .path = name);
	name[6 + FILE_NAME_MAX] = 'n';
	name[7 + FILE_NAME_MAX] = '\0';
	refuse(ends, 400, "bad_path", .method = "GET", .path = name);
}

static void test_scopes(void **state)
{
	static const struct {
		const char *method, *path, *body;
		unsigned reader, writer;
	} rows[] = {
		{ "GET", "/content/d", NULL, 503, 503 }, /* a list without entries or end */
		{ "GET", "/stat/d", NULL, 200, 200 },
		{ "GET", "/download/d", NULL, 200, 200 },
		{ "GET", "/watch/d", NULL, 503, 503 },
		{ "POST", "/search", "{\"path\":\"/\"}", 503, 503 },
		{ "POST", "/content/d", NULL, 403, 201 },
		{ "POST", "/content/upload/d", NULL, 403, 503 },
		{ "PATCH", "/content/d", "{\"mode\":\"0\"}", 403, 200 },
		{ "POST", "/move", "{\"from\":\"/a\",\"to\":\"/b\"}", 403, 200 },
		{ "DELETE", "/content/d", NULL, 403, 204 },
	};
	char reader[TOKEN_SIZE], writer[TOKEN_SIZE];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(token_create("default", "r", SCOPE_READ, &actor_system, reader, &e), 0);
	assert_int_equal(
		token_create("default", "w", SCOPE_READ | SCOPE_WRITE, &actor_system, writer, &e),
		0);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kit_answer a = meet(ends, .method = rows[i].method, .path = rows[i].path,
					   .body = rows[i].body, .token = reader);
		struct kit_answer b = meet(ends, .method = rows[i].method, .path = rows[i].path,
					   .body = rows[i].body, .token = writer);

		if (a.status != rows[i].reader || b.status != rows[i].writer)
			fail_msg("%s %s: %u, %u", rows[i].method, rows[i].path, a.status, b.status);
		kit_free(&a);
		kit_free(&b);
	}
}

/* -- refused ------------------------------------------------------------------------------- */

static uint32_t fail_code;
static const char *fail_reason;

static void fails(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	say_fail(&out, fail_code, fail_reason, "it \xff\n failed");
	say(c, &out);
	listen_on(c);
}

static void test_errors(void **state)
{
	static const struct {
		int from;
		const char *reason;
		unsigned status;
		const char *code, *name;
	} rows[] = {
		{ ENOENT, "file_failed", 404, "file_not_found", "ENOENT" },
		{ EEXIST, "file_failed", 409, "file_exists", "EEXIST" },
		{ ENOTDIR, "file_failed", 409, "not_a_directory", "ENOTDIR" },
		{ EISDIR, "file_failed", 409, "is_a_directory", "EISDIR" },
		{ EXDEV, "file_failed", 409, "cross_device", "EXDEV" },
		{ EACCES, "file_failed", 403, "permission_denied", "EACCES" },
		{ EPERM, "file_failed", 403, "permission_denied", "EPERM" },
		{ EROFS, "file_failed", 403, "read_only", "EROFS" },
		{ ELOOP, "file_failed", 400, "too_many_links", "ELOOP" },
		{ ENAMETOOLONG, "file_failed", 400, "name_too_long", "ENAMETOOLONG" },
		{ EFBIG, "file_failed", 413, "file_too_large", "EFBIG" },
		{ ENOSPC, "file_failed", 507, "disk_full", "ENOSPC" },
		{ EDQUOT, "file_failed", 507, "disk_full", "EDQUOT" },
		{ EIO, "file_failed", 409, "file_failed", "EIO" },
		{ ENOMEM, "file_failed", 409, "file_failed", "ENOMEM" },
		{ EHOSTDOWN, "file_failed", 409, "file_failed", "EHOSTDOWN" },
		{ ECONNABORTED, "file_failed", 409, "file_failed", "ECONNABORTED" },
		{ 4095, "a_word_of_its_own", 409, "file_failed", "" },
		{ EAGAIN, "too_many_file_calls", 429, "too_many_file_calls", "EAGAIN" },
		{ EINVAL, "bad_archive", 400, "bad_archive", "EINVAL" },
		{ EINVAL, "user_not_found", 400, "user_not_found", "EINVAL" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kit_answer a;

		fail_code = (uint32_t)rows[i].from;
		fail_reason = rows[i].reason;
		a = meet(fails, .method = "DELETE", .path = "/content/x");
		if (a.status != rows[i].status || strcmp(kit_code(a.json), rows[i].code) != 0)
			fail_msg("%d: %u %s", rows[i].from, a.status, kit_code(a.json));
		assert_string_equal(
			text_of(json_array_get(json_object_get(a.json, "errors"), 0), "errno"),
			rows[i].name);
		assert_int_equal(a.retry_after != 0, a.status == 429);
		kit_free(&a);
	}
}

static void test_not_running(void **state)
{
	(void)state;
	json_decref(kit_want(200, "POST", "/sandboxes/box/stop", NULL));
	refuse(ends, 409, "sandbox_stopped", .method = "GET", .path = "/stat/x");
	refuse(ends, 409, "sandbox_stopped", .method = "POST", .path = "/content/upload/x",
	       .bytes = "x", .len = 1);
	refuse(ends, 409, "sandbox_stopped", .method = "GET", .path = "/download/x");
}

/* -- hostile ------------------------------------------------------------------------------- */

static void hangs_up(struct fake_conn *c)
{
	(void)c;
}

static void babbles(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	for (int i = 0; i < 1000; i++)
		buf_adds(&out, "\xff\xff\xff\x7f garbage");
	say(c, &out);
	listen_on(c);
}

/* One after the other: a message that does not belong there. */
static unsigned odd;
static void says_odd(struct fake_conn *c)
{
	struct buf out = BUF_INIT(1024 * 1024);
	static char big[FRAME_MAX];

	switch (odd) {
	case 0: /* the end, and nothing before it */
		file_put_end(&out, 0);
		break;
	case 1:
		file_put_match(&out, &(struct agent_match){ .path = "/a", .text = "" });
		break;
	case 2: /* where a path is absolute, it is not */
		say_entry(&out, ENTRY_FILE, "relative", 1);
		break;
	case 3:
		frame_put(&out, AGENT_ENTRY, "\1\2\3", 3);
		break;
	case 4:
		file_put_data(&out, big, sizeof(big));
		break;
	case 5:
		fake_hello(&out);
		break;
	case 6: /* a message longer than any honest one */
		for (int i = 0; i < 4; i++)
			frame_put(&out, FRAME_MORE, big, sizeof(big));
		break;
	case 7:
		frame_put(&out, AGENT_FAIL, "", 0);
		break;
	case 8: /* two entries */
		say_entry(&out, ENTRY_FILE, "/a", 1);
		say_entry(&out, ENTRY_FILE, "/a", 1);
		break;
	case 9:
		say_entry(&out, ENTRY_FILE, "/a", 1);
		frame_put(&out, AGENT_END, "\xff\xff\xff\xff", 4);
		break;
	default:
		agent_put_empty(&out, AGENT_READY);
	}
	say(c, &out);
	listen_on(c);
}

static void test_hostile(void **state)
{
	(void)state;
	refuse(hangs_up, 503, "agent_lost", .method = "GET", .path = "/stat/x");
	refuse(babbles, 503, "agent_garbage", .method = "GET", .path = "/stat/x");
	for (odd = 0; odd <= 10; odd++)
		refuse(says_odd, 503, "agent_garbage", .method = "GET", .path = "/stat/x");
	for (odd = 1; odd <= 7; odd++) {
		if (odd == 2)
			continue; /* it is what a list has */
		refuse(says_odd, 503, "agent_garbage", .method = "GET", .path = "/content/x");
	}
	odd = 8; /* absolute, in a list */
	refuse(says_odd, 503, "agent_garbage", .method = "GET", .path = "/content/x");
	odd = 2;
	refuse(says_odd, 503, "agent_garbage", .method = "DELETE", .path = "/content/x");
	refuse(says_odd, 503, "agent_garbage", .method = "POST", .path = "/search",
	       .body = "{\"path\":\"/\"}");
}

static void test_silent(void **state)
{
	struct kit_answer a;

	(void)state;
	files_set_silence(100);
	a = meet(listen_on, .method = "GET", .path = "/stat/x");
	assert_int_equal(a.status, 503);
	assert_string_equal(kit_code(a.json), "file_system_silent");
	assert_string_equal(text_of(json_array_get(json_object_get(a.json, "errors"), 0), "errno"),
			    "ETIMEDOUT");
	assert_true(a.retry_after > 0);
	kit_free(&a);
}

static void speaks_2(struct fake_conn *c)
{
	struct buf out = BUF_INIT(1024);
	static const unsigned char hello[] = { 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };

	frame_put(&out, AGENT_HELLO, hello, sizeof(hello));
	fake_send(c, &out);
}

static void test_old(void **state)
{
	char path[96];
	json_t *a;

	(void)state;
	fake_play(speaks_2, NULL, true);
	snprintf(path, sizeof(path), "%s/stat/x", files_box);
	a = kit_want(409, "GET", path, NULL);
	assert_string_equal(kit_code(a), "agent_version");
	json_decref(a);
	fake_reset();
}

/* Entries without end, as long as they can be: a page ends at the limit, or at its ceiling. */
static size_t name_len;
static void lists_for_ever(struct fake_conn *c)
{
	static char name[FILE_PATH_MAX + 1];
	bool there = true;

	memset(name, '\xff', name_len);
	name[name_len] = '\0';
	while (there) {
		struct buf out = BUF_INIT(1024 * 1024);

		for (int i = 0; i < 16; i++)
			say_entry(&out, ENTRY_FILE, name, 1);
		there = send(c->fd, out.data, out.len, MSG_NOSIGNAL) > 0;
		buf_release(&out);
	}
}

static void test_endless(void **state)
{
	struct kit_answer a;
	size_t n;

	(void)state;
	name_len = 1;
	a = meet(lists_for_ever, .method = "GET", .path = "/content/x?limit=100");
	assert_int_equal(a.status, 200);
	assert_int_equal(json_array_size(json_object_get(a.json, "contents")), 100);
	assert_string_equal(text_of(a.json, "next_cursor"), "_w");
	kit_free(&a);

	name_len = FILE_PATH_MAX;
	a = meet(lists_for_ever, .method = "GET", .path = "/content/x");
	n = json_array_size(json_object_get(a.json, "contents"));
	assert_int_equal(a.status, 200);
	assert_in_range(n, 50, 5000);
	assert_true(*text_of(a.json, "next_cursor"));
	kit_free(&a);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, files_setup, files_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_list),    TEST(test_list_of_a_file), TEST(test_what_is_asked),
		TEST(test_search),  TEST(test_bad_paths),      TEST(test_long_paths),
		TEST(test_scopes),  TEST(test_errors),         TEST(test_not_running),
		TEST(test_hostile), TEST(test_silent),         TEST(test_old),
		TEST(test_endless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
