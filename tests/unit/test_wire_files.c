/*
 * The messages of file operations: each comes back as it went out; cut at any byte, or a byte
 * longer, it is refused; so are values no honest peer sends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/bytes.h"
#include "wire/files.h"

#include "failing_alloc.h"
#include "unit.h"

static const struct agent_file a_request = {
	.op = FILE_SEARCH,
	.flags = FILE_RECURSIVE | FILE_HAS_MODE,
	.mode = 07777,
	.limit = FILE_LIMIT_MAX,
	.path = "/a/\xff\n",
	.to = "cursor",
	.user = "me",
	.default_user = "skerry",
	.owner = "a:b",
	.name = "*.c",
	.text = "needle",
};

static const struct agent_entry an_entry = {
	.kind = ENTRY_LINK,
	.leads_to = ENTRY_DIR,
	.mode = 04755,
	.uid = 0xfffffffe,
	.gid = 7,
	.size = 1ull << 40,
	.mtime_ns = -1,
	.path = "x",
	.owner = "root",
	.group = "",
	.target = "..",
};

static void put_request(struct buf *b)
{
	file_put_request(b, &a_request);
}

static int get_request(const struct message *m, bool check)
{
	struct agent_file f;
	int r = file_get_request(m, &f);

	if (!r && check) {
		assert_int_equal(f.op, a_request.op);
		assert_int_equal(f.flags, a_request.flags);
		assert_int_equal(f.mode, a_request.mode);
		assert_int_equal(f.limit, a_request.limit);
		assert_string_equal(f.path, a_request.path);
		assert_string_equal(f.to, a_request.to);
		assert_string_equal(f.user, a_request.user);
		assert_string_equal(f.default_user, a_request.default_user);
		assert_string_equal(f.owner, a_request.owner);
		assert_string_equal(f.name, a_request.name);
		assert_string_equal(f.text, a_request.text);
	}
	return r;
}

static void put_go(struct buf *b)
{
	file_put_go(b, &(struct agent_go){ INT64_MAX, 5 });
}

static int get_go(const struct message *m, bool check)
{
	struct agent_go g;
	int r = file_get_go(m, &g);

	if (!r && check)
		assert_true(g.offset == INT64_MAX && g.length == 5);
	return r;
}

static void put_entry(struct buf *b)
{
	file_put_entry(b, &an_entry);
}

static int get_entry(const struct message *m, bool check)
{
	struct agent_entry n;
	int r = file_get_entry(m, &n);

	if (!r && check) {
		assert_true(n.kind == an_entry.kind && n.leads_to == an_entry.leads_to);
		assert_true(n.mode == an_entry.mode && n.uid == an_entry.uid);
		assert_true(n.gid == an_entry.gid && n.size == an_entry.size);
		assert_true(n.mtime_ns == an_entry.mtime_ns);
		assert_string_equal(n.path, an_entry.path);
		assert_string_equal(n.owner, an_entry.owner);
		assert_string_equal(n.group, an_entry.group);
		assert_string_equal(n.target, an_entry.target);
	}
	return r;
}

static void put_match(struct buf *b)
{
	file_put_match(b, &(struct agent_match){ "/a", 3, "b\0c", 3 });
}

static int get_match(const struct message *m, bool check)
{
	struct agent_match got;
	int r = file_get_match(m, &got);

	if (!r && check) {
		assert_string_equal(got.path, "/a");
		assert_true(got.line == 3 && got.text_len == 3);
		assert_memory_equal(got.text, "b\0c", 3);
	}
	return r;
}

static void put_event(struct buf *b)
{
	file_put_event(b, &(struct agent_event){ CHANGE_MOVED, 1, "/new", "/old" });
}

static int get_event(const struct message *m, bool check)
{
	struct agent_event v;
	int r = file_get_event(m, &v);

	if (!r && check) {
		assert_true(v.change == CHANGE_MOVED && v.dir == 1);
		assert_string_equal(v.path, "/new");
		assert_string_equal(v.from, "/old");
	}
	return r;
}

static void put_end(struct buf *b)
{
	file_put_end(b, FILE_MORE);
}

static int get_end(const struct message *m, bool check)
{
	uint32_t flags;
	int r = file_get_end(m, &flags);

	if (!r && check)
		assert_int_equal(flags, FILE_MORE);
	return r;
}

static const struct row {
	const char *name;
	uint8_t type;
	void (*put)(struct buf *b);
	int (*get)(const struct message *m, bool check);
	size_t open_after; /* from so many bytes on it is whole wherever it ends; 0: nowhere */
} rows[] = {
	{ "request", AGENT_FILE, put_request, get_request, 0 },
	{ "go", AGENT_GO, put_go, get_go, 0 },
	{ "entry", AGENT_ENTRY, put_entry, get_entry, 0 },
	{ "match", AGENT_MATCH, put_match, get_match, 4 + sizeof("/a") + 8 },
	{ "event", AGENT_EVENT, put_event, get_event, 0 },
	{ "end", AGENT_END, put_end, get_end, 0 },
};

/* A copy of what is to be read, in memory of its own: a sanitizer sees a byte too far. */
static int get_copy(const struct row *row, const void *data, size_t len, bool check)
{
	void *copy = malloc(len ? len : 1);
	int r;

	assert_non_null(copy);
	if (len)
		memcpy(copy, data, len);
	r = row->get(&(struct message){ row->type, copy, len }, check);
	free(copy);
	return r;
}

/* The message's body. */
static struct buf body_of(const struct row *row)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct buf body = BUF_INIT(1 << 20);
	struct frame_reader r;
	struct message m;

	row->put(&out);
	assert_int_equal(out.failed, 0);
	frame_reader_init(&r, 1 << 20);
	assert_int_equal(frame_reader_feed(&r, out.data, out.len), 0);
	assert_int_equal(frame_reader_next(&r, &m), 1);
	assert_int_equal(m.type, row->type);
	buf_add(&body, m.data, m.len);
	assert_int_equal(frame_reader_next(&r, &m), 0);
	frame_reader_release(&r);
	return body;
}

static void test_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf b = body_of(&rows[i]);

		assert_int_equal(get_copy(&rows[i], b.data, b.len, true), 0);
	}
}

static void test_cut_and_trailing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		_cleanup_buf_ struct buf b = body_of(row);

		for (size_t len = 0; len < b.len; len++) {
			bool whole = row->open_after && len >= row->open_after;

			if (get_copy(row, b.data, len, false) != (whole ? 0 : -EPROTO))
				fail_msg("%s cut at %zu", row->name, len);
		}
		buf_add(&b, "", 1);
		assert_int_equal(get_copy(row, b.data, b.len, false),
				 row->open_after ? 0 : -EPROTO);
	}
}

/* Whatever becomes of a byte: an answer, and no byte read beyond the message. */
static void test_damaged(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf b = body_of(&rows[i]);

		for (size_t at = 0; at < b.len; at++) {
			char *byte = (char *)b.data + at, was = *byte;

			for (int bit = 0; bit < 8; bit++) {
				int r;

				*byte = (char)(was ^ 1 << bit);
				r = get_copy(&rows[i], b.data, b.len, false);
				assert_true(r == 0 || r == -EPROTO);
			}
			*byte = was;
		}
	}
}

static void test_no_memory(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (int after = 0;; after++) {
			_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
			bool hit;

			failing_alloc_after(after);
			rows[i].put(&out);
			hit = failing_alloc_hit();
			failing_alloc_after(-1);
			assert_int_equal(out.failed != 0, hit);
			if (!hit)
				break;
		}
	}
}

static int request_result(const struct agent_file *f)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct frame_reader r;
	struct agent_file got;
	struct message m;
	int n;

	file_put_request(&out, f);
	assert_int_equal(out.failed, 0);
	frame_reader_init(&r, 1 << 20);
	assert_int_equal(frame_reader_feed(&r, out.data, out.len), 0);
	assert_int_equal(frame_reader_next(&r, &m), 1);
	n = file_get_request(&m, &got);
	frame_reader_release(&r);
	return n;
}

static struct agent_file plain(uint8_t op)
{
	return (struct agent_file){
		.op = op,
		.limit = op == FILE_LIST || op == FILE_SEARCH ? 1 : 0,
		.path = "/",
		.to = op == FILE_MOVE ? "/x" : "",
		.user = "",
		.default_user = "",
		.owner = "",
		.name = "",
		.text = "",
	};
}

#define REFUSED(op, member, value)                                                                 \
	do {                                                                                       \
		struct agent_file f_ = plain(op);                                                  \
		assert_int_equal(request_result(&f_), 0);                                          \
		f_.member = (value);                                                               \
		assert_int_equal(request_result(&f_), -EPROTO);                                    \
	} while (0)

static void test_requests_refused(void **state)
{
	(void)state;
	for (int op = FILE_LIST; op < FILE_OPS_END; op++)
		REFUSED((uint8_t)op, path, "relative");
	REFUSED(FILE_STAT, op, 0);
	REFUSED(FILE_STAT, op, FILE_OPS_END);
	REFUSED(FILE_STAT, path, "");
	REFUSED(FILE_STAT, flags, 1u << 4);
	REFUSED(FILE_SET, mode, 010000);
	REFUSED(FILE_MOVE, to, "relative");
	REFUSED(FILE_MOVE, to, "");
	REFUSED(FILE_LIST, limit, 0);
	REFUSED(FILE_LIST, limit, FILE_LIMIT_MAX + 1);
	REFUSED(FILE_SEARCH, limit, 0);
	REFUSED(FILE_STAT, limit, 1);
}

/* Each string at its longest passes; one byte more does not. */
static void test_request_strings(void **state)
{
	static const struct {
		size_t at, most;
	} strings[] = {
		{ offsetof(struct agent_file, path), FILE_PATH_MAX },
		{ offsetof(struct agent_file, to), FILE_PATH_MAX },
		{ offsetof(struct agent_file, user), 255 },
		{ offsetof(struct agent_file, default_user), 255 },
		{ offsetof(struct agent_file, owner), 511 },
		{ offsetof(struct agent_file, name), FILE_NAME_MAX },
		{ offsetof(struct agent_file, text), FILE_TEXT_MAX },
	};
	static char text[FILE_PATH_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		struct agent_file f = plain(FILE_LIST);
		const char **member = (const char **)((char *)&f + strings[i].at);

		memset(text, '/', sizeof(text));
		*member = text;
		text[strings[i].most] = '\0';
		assert_int_equal(request_result(&f), 0);
		text[strings[i].most] = '/';
		text[strings[i].most + 1] = '\0';
		assert_int_equal(request_result(&f), -EPROTO);
	}
}

static int entry_result(const struct agent_entry *n)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct agent_entry got;

	file_put_entry(&out, n);
	assert_int_equal(out.failed, 0);
	return file_get_entry(
		&(struct message){ AGENT_ENTRY, out.data + FRAME_HEAD, out.len - FRAME_HEAD },
		&got);
}

#define ENTRY_REFUSED(member, value)                                                               \
	do {                                                                                       \
		struct agent_entry n_ = an_entry;                                                  \
		assert_int_equal(entry_result(&n_), 0);                                            \
		n_.member = (value);                                                               \
		assert_int_equal(entry_result(&n_), -EPROTO);                                      \
	} while (0)

static void test_entries_refused(void **state)
{
	static char text[FILE_PATH_MAX + 2];

	(void)state;
	memset(text, 'x', FILE_PATH_MAX + 1);
	ENTRY_REFUSED(kind, 0);
	ENTRY_REFUSED(kind, ENTRY_BLOCK + 1);
	ENTRY_REFUSED(kind, ENTRY_FILE); /* which leads to itself */
	ENTRY_REFUSED(leads_to, 0);
	ENTRY_REFUSED(leads_to, ENTRY_LINK);
	ENTRY_REFUSED(mode, 010000);
	ENTRY_REFUSED(size, 1ull << 63);
	ENTRY_REFUSED(path, "");
	ENTRY_REFUSED(path, text);
	ENTRY_REFUSED(target, text);
	text[256] = '\0';
	ENTRY_REFUSED(owner, text);
	ENTRY_REFUSED(group, text);
}

static int match_result(const char *path, uint64_t line, size_t text_len)
{
	static const char text[FILE_TEXT_MAX + 1];
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct agent_match got;

	file_put_match(&out, &(struct agent_match){ path, line, text, text_len });
	return file_get_match(
		&(struct message){ AGENT_MATCH, out.data + FRAME_HEAD, out.len - FRAME_HEAD },
		&got);
}

static int event_result(uint8_t change, uint8_t dir, const char *path, const char *from)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct agent_event got;

	file_put_event(&out, &(struct agent_event){ change, dir, path, from });
	return file_get_event(
		&(struct message){ AGENT_EVENT, out.data + FRAME_HEAD, out.len - FRAME_HEAD },
		&got);
}

static void test_answers_refused(void **state)
{
	(void)state;
	assert_int_equal(match_result("/", 0, 0), 0);
	assert_int_equal(match_result("/", 1, FILE_TEXT_MAX), 0);
	assert_int_equal(match_result("/", 1, FILE_TEXT_MAX + 1), -EPROTO);
	assert_int_equal(match_result("/", 0, 1), -EPROTO);
	assert_int_equal(match_result("/", 1ull << 63, 1), -EPROTO);
	assert_int_equal(match_result("x", 1, 1), -EPROTO);

	assert_int_equal(event_result(CHANGE_CREATED, 0, "/a", ""), 0);
	assert_int_equal(event_result(CHANGE_OVERFLOW, 0, "", ""), 0);
	assert_int_equal(event_result(0, 0, "/a", ""), -EPROTO);
	assert_int_equal(event_result(CHANGE_OVERFLOW + 1, 0, "/a", ""), -EPROTO);
	assert_int_equal(event_result(CHANGE_CREATED, 2, "/a", ""), -EPROTO);
	assert_int_equal(event_result(CHANGE_CREATED, 0, "a", ""), -EPROTO);
	assert_int_equal(event_result(CHANGE_CREATED, 0, "/a", "/b"), -EPROTO);
	assert_int_equal(event_result(CHANGE_MOVED, 0, "/a", ""), -EPROTO);
	assert_int_equal(event_result(CHANGE_OVERFLOW, 0, "/a", ""), -EPROTO);
	assert_int_equal(event_result(CHANGE_OVERFLOW, 1, "", ""), -EPROTO);
}

static void test_numbers_refused(void **state)
{
	const struct row *go = &rows[1], *end = &rows[5];
	_cleanup_buf_ struct buf b = BUF_INIT(100);

	(void)state;
	enc_u64(&b, 1ull << 63);
	enc_u64(&b, 0);
	assert_int_equal(get_copy(go, b.data, b.len, false), -EPROTO);
	buf_clear(&b);
	enc_u64(&b, 0);
	enc_u64(&b, 1ull << 63);
	assert_int_equal(get_copy(go, b.data, b.len, false), -EPROTO);
	buf_clear(&b);
	enc_u32(&b, FILE_MORE << 1);
	assert_int_equal(get_copy(end, b.data, b.len, false), -EPROTO);
}

static void test_data(void **state)
{
	static const char data[FILE_DATA_MAX + 1];
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

	(void)state;
	file_put_data(&out, data, FILE_DATA_MAX);
	assert_int_equal(out.failed, 0);
	assert_int_equal(out.len, FRAME_HEAD + FILE_DATA_MAX); /* one frame */
	file_put_data(&out, data, FILE_DATA_MAX + 1);
	assert_int_equal(out.failed, -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_cut_and_trailing),
		cmocka_unit_test(test_damaged),          cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_requests_refused), cmocka_unit_test(test_request_strings),
		cmocka_unit_test(test_entries_refused),  cmocka_unit_test(test_answers_refused),
		cmocka_unit_test(test_numbers_refused),  cmocka_unit_test(test_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
