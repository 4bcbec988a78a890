/* Bytes of files over the API, both ways, against agents that are honest, broken, silent and
 * hostile. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <zlib.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "files_kit.h"
#include "unit.h"

enum { BIG = 3 * 1024 * 1024 + 7, OUT = 1024 * 1024 };

static char big[BIG];
static struct buf taken = BUF_INIT(2 * BIG); /* by the agent, of an upload */
static bool whole;                           /* DATA_END came */

static int setup(void **state)
{
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 2654435761u >> 13);
	buf_clear(&taken);
	whole = false;
	return files_setup(state);
}

static int teardown(void **state)
{
	buf_release(&taken);
	return files_teardown(state);
}

/* -- up ------------------------------------------------------------------------------------ */

/* Takes at most `most` bytes. */
static void take(struct fake_conn *c, size_t most)
{
	struct buf out = BUF_INIT(OUT);

	agent_put_empty(&out, AGENT_READY);
	say(c, &out);
	while (!whole && taken.len < most && fake_next(c)) {
		if (c->m.type == AGENT_DATA)
			buf_add(&taken, c->m.data, c->m.len);
		else if (c->m.type == AGENT_DATA_END)
			whole = true;
		else
			abort();
	}
}

static void takes(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	take(c, SIZE_MAX);
	if (whole) {
		say_entry(&out, ENTRY_FILE, asked.path, taken.len);
		file_put_end(&out, 0);
		say(c, &out);
	}
	listen_on(c);
}

static void check_taken(const void *data, size_t len)
{
	assert_true(whole);
	assert_int_equal(taken.len, len);
	assert_memory_equal(buf_str(&taken), data, len);
	buf_clear(&taken);
	whole = false;
}

static void test_up(void **state)
{
	static const size_t pieces[] = { 0, 1000, 16 * 1024, 30000, 65536, 100000 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++) {
		struct kit_answer a =
			meet(takes, .method = "POST",
			     .path = "/content/upload/a/b%20c?userName=u&mode=755", .bytes = big,
			     .len = BIG, .piece = pieces[i], .type = "application/octet-stream");

		assert_int_equal(a.status, 201);
		assert_string_equal(json_string_value(json_object_get(a.json, "path")), "/a/b c");
		kit_free(&a);
		assert_int_equal(asked.op, FILE_WRITE);
		assert_int_equal(asked.flags, FILE_PARENTS | FILE_HAS_MODE);
		assert_int_equal(asked.mode, 0755);
		assert_string_equal(asked.user, "u");
		check_taken(big, BIG);
	}
	refuse(takes, 201, "", .method = "POST", .path = "/content/upload/empty", .bytes = "");
	check_taken("", 0);
}

/* A body that was cut is no file. */
static void test_up_cut(void **state)
{
	struct kit_answer a = meet(takes, .method = "POST", .path = "/content/upload/a",
				   .bytes = big, .len = BIG, .cut = true);

	(void)state;
	kit_free(&a);
	assert_false(whole);
}

static void test_up_types(void **state)
{
	(void)state;
	refuse(takes, 415, "unsupported_media_type", .method = "POST", .path = "/content/upload/a",
	       .bytes = "x", .len = 1, .type = "application/x-www-form-urlencoded");
	refuse(takes, 400, "bad_form", .method = "POST", .path = "/content/upload/a", .bytes = "x",
	       .len = 1, .type = "multipart/form-data");
	refuse(takes, 400, "invalid_field", .method = "POST", .path = "/content/upload/a?mode=644",
	       .bytes = "x", .len = 1, .type = "application/x-tar");
	kit.pool_free = 1 << 20;
	refuse(takes, 507, "pool_full", .method = "POST", .path = "/content/upload/a", .bytes = "x",
	       .len = 1);
}

/* -- archives up --------------------------------------------------------------------------- */

static size_t pack(const char *data, size_t len, char *out, size_t max)
{
	z_stream z = { 0 };

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (unsigned char *)data;
	z.avail_in = (unsigned)len;
	z.next_out = (unsigned char *)out;
	z.avail_out = (unsigned)max;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return max - z.avail_out;
}

static void up_archive(const char *type, const char *data, size_t len, size_t piece)
{
	struct kit_answer a = meet(takes, .method = "POST", .path = "/content/upload/d",
				   .bytes = data, .len = len, .piece = piece, .type = type);

	assert_int_equal(a.status, 201);
	assert_int_equal(asked.op, FILE_UNPACK);
	kit_free(&a);
}

static void test_up_archive(void **state)
{
	static char packed[2 * BIG];
	size_t half = BIG / 2, n = pack(big, half, packed, sizeof(packed));

	(void)state;
	up_archive("application/x-tar", big, BIG, 5000);
	check_taken(big, BIG);
	up_archive("application/x-tar", "x", 1, 1);
	check_taken("x", 1);
	/* two members, and zeros behind */
	n += pack(big + half, BIG - half, packed + n, sizeof(packed) - n);
	up_archive("application/gzip", packed, n, 0);
	check_taken(big, BIG);
	up_archive("application/x-tar; charset=binary", packed, n, 1);
	check_taken(big, BIG);
	memset(packed + n, 0, 512);
	up_archive("Application/X-GZip", packed, n + 512, 777);
	check_taken(big, BIG);
}

/* A few bytes that become many: nothing is kept of them. */
static void test_up_bomb(void **state)
{
	static char zeros[BIG], packed[64 * 1024];
	size_t n = pack(zeros, BIG, packed, sizeof(packed));

	(void)state;
	up_archive("application/gzip", packed, n, 0);
	check_taken(zeros, BIG);
}

static void test_up_bad_archive(void **state)
{
	static char packed[2 * BIG];
	size_t n = pack(big, BIG, packed, sizeof(packed));
	static const struct {
		const char *type;
		size_t off, at, len;
	} rows[] = {
		{ "application/gzip", 1, 0, 0 },    /* without its end */
		{ "application/gzip", 0, 5000, 0 }, /* damaged */
		{ "application/gzip", 0, 0, 1 },    /* something behind it */
		{ "application/x-tar", 1, 0, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		packed[n] = 'x';
		packed[rows[i].at] ^= rows[i].at ? 0x55 : 0;
		refuse(takes, 400, "bad_archive", .method = "POST", .path = "/content/upload/d",
		       .bytes = packed, .len = n - rows[i].off + rows[i].len, .piece = 4000,
		       .type = rows[i].type);
		packed[rows[i].at] ^= rows[i].at ? 0x55 : 0;
		assert_false(whole);
		buf_clear(&taken);
	}
	refuse(takes, 400, "bad_archive", .method = "POST", .path = "/content/upload/d",
	       .bytes = "plain text", .len = 10, .type = "application/gzip");
	refuse(takes, 400, "bad_archive", .method = "POST", .path = "/content/upload/d",
	       .bytes = "", .type = "application/gzip");
}

/* -- agents that do not take it ------------------------------------------------------------ */

static void refuses_first(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	say_fail(&out, EISDIR, "file_failed", "it is one");
	say(c, &out);
	listen_on(c);
}

static void refuses_midway(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	take(c, 500000);
	say_fail(&out, ENOSPC, "file_failed", "full");
	say(c, &out);
	listen_on(c);
}

static void leaves_midway(struct fake_conn *c)
{
	take(c, 500000);
}

static void babbles_midway(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	take(c, 500000);
	agent_put_empty(&out, AGENT_READY);
	say(c, &out);
	listen_on(c);
}

static void stops_taking(struct fake_conn *c)
{
	struct pollfd p = { .fd = c->fd };

	take(c, 500000);
	poll(&p, 1, -1); /* until the daemon has given up */
}

static void never_done(struct fake_conn *c)
{
	take(c, SIZE_MAX);
	listen_on(c);
}

static void done_too_soon(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	say_entry(&out, ENTRY_FILE, "/a", 1);
	file_put_end(&out, 0);
	say(c, &out);
	listen_on(c);
}

static void test_up_refused(void **state)
{
	static const struct {
		fake_agent agent;
		unsigned status;
		const char *code;
	} rows[] = {
		{ refuses_first, 409, "is_a_directory" },
		{ refuses_midway, 507, "disk_full" },
		{ leaves_midway, 503, "agent_lost" },
		{ babbles_midway, 503, "agent_garbage" },
		{ stops_taking, 503, "file_system_silent" },
		{ never_done, 503, "file_system_silent" },
		{ done_too_soon, 503, "agent_garbage" },
		{ listen_on, 503, "file_system_silent" },
	};

	(void)state;
	files_set_silence(200);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		buf_clear(&taken);
		whole = false;
		refuse(rows[i].agent, rows[i].status, rows[i].code, .method = "POST",
		       .path = "/content/upload/a", .bytes = big, .len = BIG, .piece = 30000);
	}
}

/* -- down ---------------------------------------------------------------------------------- */

static size_t file_size, sends, frame_size;
static void (*at_end)(struct buf *out);

static void good_end(struct buf *out)
{
	file_put_end(out, 0);
}

static void bad_end(struct buf *out)
{
	say_fail(out, EIO, "file_failed", "a bad block");
}

static void babble_end(struct buf *out)
{
	buf_adds(out, "\xff\xff\xff\xff\xff\xff");
}

static void no_end(struct buf *out)
{
	(void)out;
}

/* A file of `file_size`, of which `sends` bytes come from where it was asked. */
static void gives(struct fake_conn *c)
{
	struct buf out = BUF_INIT(4 * BIG);

	say_entry(&out, ENTRY_FILE, asked.path, file_size);
	say(c, &out);
	if (!fake_next(c))
		return;
	if (c->m.type != AGENT_GO || file_get_go(&c->m, &went) < 0)
		abort();
	for (size_t at = 0; at < sends; at += frame_size)
		file_put_data(&out, big + went.offset + at,
			      sends - at < frame_size ? sends - at : frame_size);
	at_end(&out);
	say(c, &out);
	if (at_end != no_end)
		listen_on(c);
}

static struct kit_answer down(size_t size, size_t n, size_t frame, void (*end)(struct buf *),
			      const char *range)
{
	file_size = size;
	sends = n;
	frame_size = frame;
	at_end = end;
	went = (struct agent_go){ 0 };
	return meet(gives, .method = "GET", .path = "/download/d%C3%A9/f%22.txt", .range = range);
}

static void test_down(void **state)
{
	static const size_t frames[] = { 1, 3, 1000, 65536, 65531 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(frames); i++) {
		size_t size = i < 2 ? 20000 : BIG;
		struct kit_answer a = down(size, size, frames[i], good_end, NULL);

		assert_int_equal(a.status, 200);
		assert_true(a.sized && !a.cut);
		assert_int_equal(a.len, size);
		assert_memory_equal(a.bytes, big, size);
		assert_non_null(strstr(a.head, "Content-Disposition: attachment; "
					       "filename=\"f_.txt\"; filename*=UTF-8''f%22.txt\n"));
		assert_non_null(strstr(a.head, "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\n"));
		assert_non_null(strstr(a.head, "Accept-Ranges: bytes\n"));
		assert_int_equal(went.offset, 0);
		assert_int_equal(went.length, size);
		kit_free(&a);
	}
}

static void test_down_sizes(void **state)
{
	struct kit_answer a = down(0, 0, 1, good_end, NULL);

	(void)state;
	assert_true(a.sized && a.size == 0 && !a.cut);
	kit_free(&a);
	/* files of the kernel's are as large as what is read of them */
	a = down(0, 200000, 1000, good_end, NULL);
	assert_true(!a.sized && !a.cut);
	assert_int_equal(a.len, 200000);
	assert_memory_equal(a.bytes, big, 200000);
	kit_free(&a);
	a = meet(gives, .method = "HEAD", .path = "/download/f");
	assert_int_equal(a.status, 200);
	kit_free(&a);
}

/* An answer that cannot be finished is never ended as if it were. */
static void test_down_cut(void **state)
{
	static void (*const endings[])(struct buf *) = { good_end, bad_end, babble_end, no_end };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(endings); i++) {
		struct kit_answer a = down(BIG, BIG - 1, 65536, endings[i], NULL);

		assert_int_equal(a.status, 200);
		assert_true(a.cut);
		assert_int_equal(a.len, BIG - 1);
		kit_free(&a);
		if (i == 0)
			continue;
		a = down(0, 100000, 65536, endings[i], NULL);
		assert_true(!a.sized && a.cut);
		kit_free(&a);
	}
}

/* More than was asked for goes nowhere. */
static void test_down_beyond(void **state)
{
	struct kit_answer a = down(1000, 100000, 777, good_end, NULL);

	(void)state;
	assert_int_equal(a.len, 1000);
	assert_memory_equal(a.bytes, big, 1000);
	kit_free(&a);
}

static void stalls(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	say_entry(&out, ENTRY_FILE, asked.path, 1000);
	file_put_data(&out, big, 10);
	say(c, &out);
	listen_on(c);
}

static void test_down_silent(void **state)
{
	struct kit_answer a;

	(void)state;
	files_set_silence(100);
	a = meet(stalls, .method = "GET", .path = "/download/f");
	assert_int_equal(a.status, 200);
	assert_true(a.cut);
	assert_int_equal(a.len, 10);
	kit_free(&a);
}

static void test_range(void **state)
{
	static const struct {
		const char *range;
		unsigned status;
		size_t from, len;
		const char *content;
	} rows[] = {
		{ "bytes=0-0", 206, 0, 1, "bytes 0-0/1000" },
		{ "bytes=10-19", 206, 10, 10, "bytes 10-19/1000" },
		{ "bytes=990-", 206, 990, 10, "bytes 990-999/1000" },
		{ "bytes=990-5000", 206, 990, 10, "bytes 990-999/1000" },
		{ "bytes=-1", 206, 999, 1, "bytes 999-999/1000" },
		{ "bytes=-5000", 206, 0, 1000, "bytes 0-999/1000" },
		{ "bytes=1000-", 416, 0, 0, "bytes */1000" },
		{ "bytes=-0", 416, 0, 0, "bytes */1000" },
		{ "bytes=0-1,5-6", 200, 0, 1000, NULL },
		{ "bytes=9-8", 200, 0, 1000, NULL },
		{ "bytes=-", 200, 0, 1000, NULL },
		{ "bytes=99999999999999999999-", 200, 0, 1000, NULL },
		{ "lines=0-1", 200, 0, 1000, NULL },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kit_answer a = down(1000, rows[i].len, 65536, good_end, rows[i].range);
		const char *content = strstr(a.head, "Content-Range: ");

		if (a.status != rows[i].status)
			fail_msg("%s: %u", rows[i].range, a.status);
		assert_int_equal(went.offset, rows[i].from);
		assert_int_equal(went.length, rows[i].len);
		assert_int_equal(content != NULL, rows[i].content != NULL);
		if (content)
			assert_true(str_starts(content + 15, rows[i].content));
		if (a.status != 416)
			assert_memory_equal(a.bytes, big + rows[i].from, rows[i].len);
		kit_free(&a);
	}
}

static void test_if_range(void **state)
{
	struct kit_answer a = down(1000, 1000, 65536, good_end, NULL);
	const char *etag = strstr(a.head, "ETag: ");
	char tag[64];

	(void)state;
	assert_non_null(etag);
	snprintf(tag, sizeof(tag), "%.*s", (int)strcspn(etag + 6, "\n"), etag + 6);
	kit_free(&a);
	sends = 1;
	a = meet(gives, .method = "GET", .path = "/download/f", .range = "bytes=5-5",
		 .if_range = tag);
	assert_int_equal(a.status, 206);
	kit_free(&a);
	sends = 1000;
	a = meet(gives, .method = "GET", .path = "/download/f", .range = "bytes=5-5",
		 .if_range = "\"other\"");
	assert_int_equal(a.status, 200);
	kit_free(&a);
}

static void gives_directory(struct fake_conn *c)
{
	struct buf out = BUF_INIT(2 * BIG);

	say_entry(&out, ENTRY_DIR, asked.path, 0);
	say(c, &out);
	if (!fake_next(c))
		return;
	for (size_t at = 0; at < BIG; at += FILE_DATA_MAX)
		file_put_data(&out, big + at, BIG - at < FILE_DATA_MAX ? BIG - at : FILE_DATA_MAX);
	at_end(&out);
	say(c, &out);
	if (at_end != no_end)
		listen_on(c);
}

static size_t unpack(const char *data, size_t len, char *out, size_t max)
{
	z_stream z = { .next_in = (unsigned char *)data, .avail_in = (unsigned)len };

	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	z.next_out = (unsigned char *)out;
	z.avail_out = (unsigned)max;
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	inflateEnd(&z);
	return max - z.avail_out;
}

static void test_down_directory(void **state)
{
	static char plain[2 * BIG];
	struct kit_answer a;

	(void)state;
	at_end = good_end;
	a = meet(gives_directory, .method = "GET", .path = "/download/d?archive=tar");
	assert_true(!a.sized && !a.cut);
	assert_int_equal(a.len, BIG);
	assert_memory_equal(a.bytes, big, BIG);
	assert_non_null(strstr(a.head, "filename=\"d.tar\""));
	kit_free(&a);
	a = meet(gives_directory, .method = "GET", .path = "/download/");
	assert_true(!a.cut);
	assert_int_equal(unpack(a.bytes, a.len, plain, sizeof(plain)), BIG);
	assert_memory_equal(plain, big, BIG);
	assert_non_null(strstr(a.head, "filename=\"box.tar.gz\""));
	kit_free(&a);
	at_end = bad_end;
	a = meet(gives_directory, .method = "GET", .path = "/download/d");
	assert_true(a.cut);
	kit_free(&a);
	at_end = no_end;
	a = meet(gives_directory, .method = "GET", .path = "/download/d?archive=tar");
	assert_true(a.cut);
	kit_free(&a);
	refuse(gives, 400, "invalid_field", .method = "GET", .path = "/download/f?archive=tar");
}

/* -- watch --------------------------------------------------------------------------------- */

static void watches(struct fake_conn *c)
{
	struct buf out = BUF_INIT(OUT);

	agent_put_empty(&out, AGENT_READY);
	file_put_event(&out, &(struct agent_event){ CHANGE_CREATED, 1, "/w/\xff", "" });
	file_put_event(&out, &(struct agent_event){ CHANGE_MOVED, 0, "/w/b", "/w/a" });
	file_put_event(&out, &(struct agent_event){ CHANGE_OVERFLOW, 0, "", "" });
	at_end(&out);
	say(c, &out);
	if (at_end != no_end)
		listen_on(c);
}

static void test_watch(void **state)
{
	static const char lines[] =
		"{\"type\":\"READY\"}\n"
		"{\"type\":\"CREATED\",\"path\":\"/w/\xef\xbf\xbd\",\"path_base64\":\"L3cv/w==\","
		"\"dir\":true}\n"
		"{\"type\":\"MOVED\",\"path\":\"/w/b\",\"from\":\"/w/a\",\"dir\":false}\n"
		"{\"type\":\"OVERFLOW\"}\n";
	struct kit_answer a;

	(void)state;
	at_end = good_end;
	a = meet(watches, .method = "GET", .path = "/watch/w");
	assert_int_equal(a.status, 200);
	assert_false(a.cut);
	assert_true(str_starts(a.bytes, lines));
	assert_string_equal(a.bytes + strlen(lines), "{\"type\":\"END\"}\n");
	kit_free(&a);
	at_end = no_end;
	a = meet(watches, .method = "GET", .path = "/watch/w");
	assert_true(a.cut);
	assert_string_equal(a.bytes, lines);
	kit_free(&a);
	refuse(refuses_first, 409, "is_a_directory", .method = "GET", .path = "/watch/w");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_up),         TEST(test_up_cut),      TEST(test_up_types),
		TEST(test_up_archive), TEST(test_up_bomb),     TEST(test_up_bad_archive),
		TEST(test_up_refused), TEST(test_down),        TEST(test_down_sizes),
		TEST(test_down_cut),   TEST(test_down_beyond), TEST(test_down_silent),
		TEST(test_range),      TEST(test_if_range),    TEST(test_down_directory),
		TEST(test_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
