/*
 * The messages of the agent protocol: each comes back as it went out; cut at any byte, or a byte
 * longer, it is refused; so are values no honest peer sends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/agent.h"
#include "wire/bytes.h"

#include "failing_alloc.h"
#include "unit.h"

#define ID "cmabcdefghijklmnop2345"
_Static_assert(sizeof(ID) == ID_SIZE, "an id");

static const struct agent_exit end_row = {
	.reason = REASON_SIGNALED,
	.code = 137,
	.signal = 9,
	.duration_us = 1ull << 40,
	.total = { 1ull << 33, 7 },
	.dropped = { 1ull << 32, 7 },
	.oom = 1,
};

static void same_exit(const struct agent_exit *x)
{
	assert_int_equal(x->reason, end_row.reason);
	assert_int_equal(x->code, end_row.code);
	assert_int_equal(x->signal, end_row.signal);
	assert_int_equal(x->duration_us, end_row.duration_us);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(x->total[i], end_row.total[i]);
		assert_int_equal(x->dropped[i], end_row.dropped[i]);
	}
	assert_int_equal(x->oom, end_row.oom);
}

/* One message of each kind: how it is written, how it is read, what it then says. */
static void put_hello(struct buf *b)
{
	agent_put_hello(b, 0x123456789abcdef0);
}

static int get_hello(const struct message *m, bool check)
{
	struct agent_hello h;
	int r = agent_get_hello(m, &h);

	if (!r && check) {
		assert_int_equal(h.version, AGENT_VERSION);
		assert_int_equal(h.oldest, AGENT_OLDEST);
		assert_int_equal(h.features, 0x123456789abcdef0);
		assert_int_equal(agent_hello_check(&h), 0);
	}
	return r;
}

static void put_run(struct buf *b)
{
	const char *argv[] = { "printf", "", "a\nb \xff", NULL }, *env[] = { "A=1", "B=", NULL };
	const struct agent_run run = {
		.id = ID,
		.runtime = RUNTIME_ARGS,
		.flags = RUN_STDIN,
		.timeout_ms = 1ull << 40,
		.keep = 4096,
		.cwd = "/tmp",
		.default_cwd = "/workspace",
		.user = "",
		.default_user = "skerry",
		.argv = (char **)argv,
		.env = (char **)env,
	};

	agent_put_run(b, &run);
}

static int get_run(const struct message *m, bool check)
{
	struct agent_run run;
	int r = agent_get_run(m, &run);

	if (r)
		return r;
	if (check) {
		assert_string_equal(run.id, ID);
		assert_int_equal(run.runtime, RUNTIME_ARGS);
		assert_int_equal(run.flags, RUN_STDIN);
		assert_int_equal(run.timeout_ms, 1ull << 40);
		assert_int_equal(run.keep, 4096);
		assert_string_equal(run.cwd, "/tmp");
		assert_string_equal(run.default_cwd, "/workspace");
		assert_string_equal(run.user, "");
		assert_string_equal(run.default_user, "skerry");
		assert_string_equal(run.argv[0], "printf");
		assert_string_equal(run.argv[1], "");
		assert_string_equal(run.argv[2], "a\nb \xff");
		assert_null(run.argv[3]);
		assert_string_equal(run.env[1], "B=");
		assert_null(run.env[2]);
	}
	agent_run_release(&run);
	assert_null(run.argv);
	return 0;
}

static void put_attach(struct buf *b)
{
	agent_put_attach(b, &(struct agent_attach){ ID, { 5, UINT64_MAX } });
}

static int get_attach(const struct message *m, bool check)
{
	struct agent_attach a;
	int r = agent_get_attach(m, &a);

	if (!r && check) {
		assert_string_equal(a.id, ID);
		assert_int_equal(a.offset[0], 5);
		assert_int_equal(a.offset[1], UINT64_MAX);
	}
	return r;
}

static void put_signal(struct buf *b)
{
	agent_put_signal(b, AGENT_TERMINATE, &(struct agent_signal){ ID, 15, 10000 });
}

static int get_signal(const struct message *m, bool check)
{
	struct agent_signal s;
	int r = agent_get_signal(m, &s);

	if (!r && check) {
		assert_string_equal(s.id, ID);
		assert_int_equal(s.signal, 15);
		assert_int_equal(s.grace_ms, 10000);
	}
	return r;
}

static void put_ack(struct buf *b)
{
	agent_put_ack(b, &(struct agent_ack){ { 1, 2 } });
}

static int get_ack(const struct message *m, bool check)
{
	struct agent_ack a;
	int r = agent_get_ack(m, &a);

	if (!r && check)
		assert_true(a.offset[0] == 1 && a.offset[1] == 2);
	return r;
}

static void put_stdin_ack(struct buf *b)
{
	agent_put_stdin_ack(b, 1ull << 40);
}

static int get_stdin_ack(const struct message *m, bool check)
{
	uint64_t taken;
	int r = agent_get_stdin_ack(m, 0, UINT64_MAX, &taken);

	if (!r && check)
		assert_int_equal(taken, 1ull << 40);
	return r;
}

static void put_stop(struct buf *b)
{
	agent_put_stop(b, 12345);
}

static int get_stop(const struct message *m, bool check)
{
	uint32_t grace;
	int r = agent_get_stop(m, &grace);

	if (!r && check)
		assert_int_equal(grace, 12345);
	return r;
}

static void put_forget(struct buf *b)
{
	agent_put_id(b, AGENT_FORGET, ID);
}

static int get_forget(const struct message *m, bool check)
{
	const char *id;
	int r = agent_get_id(m, &id);

	if (!r && check)
		assert_string_equal(id, ID);
	return r;
}

static void put_started(struct buf *b)
{
	agent_put_started(b, &(struct agent_started){ 77, 5000, "/workspace", "skerry", "no" });
}

static int get_started(const struct message *m, bool check)
{
	struct agent_started s;
	int r = agent_get_started(m, &s);

	if (!r && check) {
		assert_int_equal(s.pid, 77);
		assert_int_equal(s.age_us, 5000);
		assert_string_equal(s.cwd, "/workspace");
		assert_string_equal(s.user, "skerry");
		assert_string_equal(s.warning, "no");
	}
	return r;
}

static void put_exit(struct buf *b)
{
	agent_put_exit(b, &end_row);
}

static int get_exit(const struct message *m, bool check)
{
	struct agent_exit x;
	int r = agent_get_exit(m, &x);

	if (!r && check)
		same_exit(&x);
	return r;
}

static void put_fail(struct buf *b)
{
	agent_put_fail(b, &(struct agent_fail){ 2, "command_not_found", "command", "no such" });
}

static int get_fail(const struct message *m, bool check)
{
	struct agent_fail f;
	int r = agent_get_fail(m, &f);

	if (!r && check) {
		assert_int_equal(f.code, 2);
		assert_string_equal(f.reason, "command_not_found");
		assert_string_equal(f.field, "command");
		assert_string_equal(f.text, "no such");
	}
	return r;
}

static void put_command(struct buf *b)
{
	agent_put_command(b, &(struct agent_command){ ID, 77, 1, 1, end_row });
}

static int get_command(const struct message *m, bool check)
{
	struct agent_command c;
	int r = agent_get_command(m, &c);

	if (!r && check) {
		assert_string_equal(c.id, ID);
		assert_int_equal(c.pid, 77);
		assert_true(c.ended == 1 && c.left == 1);
		same_exit(&c.exit);
	}
	return r;
}

static const struct row {
	const char *name;
	uint8_t type;
	void (*put)(struct buf *b);
	int (*get)(const struct message *m, bool check);
	bool open_ended; /* a newer peer may say more */
} rows[] = {
	{ "hello", AGENT_HELLO, put_hello, get_hello, true },
	{ "run", AGENT_RUN, put_run, get_run, false },
	{ "attach", AGENT_ATTACH, put_attach, get_attach, false },
	{ "terminate", AGENT_TERMINATE, put_signal, get_signal, false },
	{ "ack", AGENT_ACK, put_ack, get_ack, false },
	{ "stdin_ack", AGENT_STDIN_ACK, put_stdin_ack, get_stdin_ack, false },
	{ "stop", AGENT_STOP, put_stop, get_stop, false },
	{ "forget", AGENT_FORGET, put_forget, get_forget, false },
	{ "started", AGENT_STARTED, put_started, get_started, false },
	{ "exit", AGENT_EXIT, put_exit, get_exit, false },
	{ "fail", AGENT_FAIL, put_fail, get_fail, false },
	{ "command", AGENT_COMMAND, put_command, get_command, false },
};

/* The message alone in memory of its own, so that a sanitizer sees a byte too far. */
static struct message alone(const struct row *row)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct message m, copy = { 0 };
	struct frame_reader r;
	void *data;

	row->put(&out);
	assert_int_equal(out.failed, 0);
	frame_reader_init(&r, 1 << 20);
	assert_int_equal(frame_reader_feed(&r, out.data, out.len), 0);
	assert_int_equal(frame_reader_next(&r, &m), 1);
	data = malloc(m.len);
	assert_non_null(data);
	memcpy(data, m.data, m.len);
	copy = (struct message){ m.type, data, m.len };
	assert_int_equal(frame_reader_next(&r, &m), 0);
	frame_reader_release(&r);
	return copy;
}

static void test_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message m = alone(&rows[i]);

		assert_int_equal(m.type, rows[i].type);
		assert_int_equal(rows[i].get(&m, true), 0);
		free((void *)m.data);
	}
}

static void test_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message m = alone(&rows[i]);

		for (size_t len = 0; len < m.len; len++) {
			struct message cut = { m.type, malloc(len ? len : 1), len };

			memcpy((void *)cut.data, m.data, len);
			if (rows[i].get(&cut, false) != -EPROTO)
				fail_msg("%s cut at %zu", rows[i].name, len);
			free((void *)cut.data);
		}
		free((void *)m.data);
	}
}

static void test_trailing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message m = alone(&rows[i]);
		char *more = calloc(1, m.len + 1);

		memcpy(more, m.data, m.len);
		free((void *)m.data);
		m.data = more;
		m.len++;
		assert_int_equal(rows[i].get(&m, false), rows[i].open_ended ? 0 : -EPROTO);
		free(more);
	}
}

/* Each byte set to each of some values: refused or not, never a read beyond the message. */
static void test_damaged(void **state)
{
	static const unsigned char values[] = { 0, 1, 0x7f, 0x80, 0xff };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message m = alone(&rows[i]);
		unsigned char *data = (unsigned char *)m.data;

		for (size_t at = 0; at < m.len; at++) {
			unsigned char was = data[at];

			for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
				int r;

				data[at] = values[v];
				r = rows[i].get(&m, false);
				assert_true(r == 0 || r == -EPROTO);
			}
			data[at] = was;
		}
		free(data);
	}
}

static void test_no_memory(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message m = alone(&rows[i]);

		for (long n = 0;; n++) {
			_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

			failing_alloc_after(n);
			rows[i].put(&out);
			if (!failing_alloc_hit()) {
				failing_alloc_after(-1);
				assert_int_equal(out.failed, 0);
				break;
			}
			failing_alloc_after(-1);
			assert_int_equal(out.failed, -ENOMEM);
		}
		for (long n = 0;; n++) {
			int r;

			failing_alloc_after(n);
			r = rows[i].get(&m, false);
			if (!failing_alloc_hit()) {
				failing_alloc_after(-1);
				assert_int_equal(r, 0);
				break;
			}
			failing_alloc_after(-1);
			assert_int_equal(r, -ENOMEM); /* not the peer's fault */
		}
		free((void *)m.data);
	}
}

static void test_output(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	static char data[FRAME_MAX];
	struct agent_output o = { .stream = 2, .offset = 77, .data = data, .len = FRAME_MAX - 9 };
	struct frame_reader r;
	struct message m;

	(void)state;
	memset(data, 'o', sizeof(data));
	agent_put_output(&out, &o);
	o.len = 0;
	agent_put_output(&out, &o);
	assert_int_equal(out.failed, 0);
	frame_reader_init(&r, FRAME_MAX);
	assert_int_equal(frame_reader_feed(&r, out.data, out.len), 0);
	assert_int_equal(frame_reader_next(&r, &m), 1);
	assert_int_equal(m.type, AGENT_OUTPUT);
	memset(&o, 0, sizeof(o));
	assert_int_equal(agent_get_output(&m, &o), 0);
	assert_int_equal(o.stream, 2);
	assert_int_equal(o.offset, 77);
	assert_int_equal(o.len, FRAME_MAX - 9);
	assert_memory_equal(o.data, data, o.len);
	for (size_t len = 0; len < 9; len++) {
		struct message cut = { m.type, m.data, len };

		assert_int_equal(agent_get_output(&cut, &o), -EPROTO);
	}
	assert_int_equal(frame_reader_next(&r, &m), 1);
	assert_int_equal(agent_get_output(&m, &o), 0);
	assert_int_equal(o.len, 0);
	frame_reader_release(&r);
	o.len = FRAME_MAX - 8;
	agent_put_output(&out, &o);
	assert_int_equal(out.failed, -EMSGSIZE);
}

static void test_output_refused(void **state)
{
	static const struct {
		uint8_t stream;
		uint64_t offset;
		int code;
	} bad[] = {
		{ 0, 0, -EPROTO },
		{ 3, 0, -EPROTO },
		{ 1, UINT64_MAX, -EPROTO }, /* its end would wrap */
		{ 1, UINT64_MAX - 4, -EPROTO },
		{ 1, UINT64_MAX - 5, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_buf_ struct buf body = BUF_INIT(100);
		struct agent_output o;

		enc_u8(&body, bad[i].stream);
		enc_u64(&body, bad[i].offset);
		buf_adds(&body, "bytes");
		assert_int_equal(
			agent_get_output(&(struct message){ AGENT_OUTPUT, body.data, body.len },
					 &o),
			bad[i].code);
	}
}

/* Writes it with agent_put_exit or agent_put_command and reads it back. */
static int exit_result(const struct agent_exit *x, int in_command, uint8_t ended)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1000);
	struct agent_command c;
	struct message m;
	struct agent_exit got;

	if (in_command)
		agent_put_command(&out, &(struct agent_command){ ID, 1, ended, 0, *x });
	else
		agent_put_exit(&out, x);
	m = (struct message){ 0, out.data + FRAME_HEAD, out.len - FRAME_HEAD };
	return in_command ? agent_get_command(&m, &c) : agent_get_exit(&m, &got);
}

static void test_exit_refused(void **state)
{
	struct agent_exit bad[] = { end_row, end_row, end_row, end_row, end_row, end_row, end_row };

	(void)state;
	bad[0].reason = 0;
	bad[1].reason = REASON_LOST; /* the host says that, never an agent */
	bad[2].code = 256;
	bad[3].signal = 65;
	bad[4].dropped[0] = bad[4].total[0] + 1;
	bad[5].dropped[1] = bad[5].total[1] + 1;
	bad[6].oom = 2;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(exit_result(&bad[i], 0, 0), -EPROTO);
		assert_int_equal(exit_result(&bad[i], 1, 1), -EPROTO);
	}
	/* of a running command the totals hold, and nothing else is said yet */
	assert_int_equal(exit_result(&bad[0], 1, 0), 0);
	assert_int_equal(exit_result(&bad[4], 1, 0), -EPROTO);
	assert_int_equal(exit_result(&bad[6], 1, 0), -EPROTO);
	assert_int_equal(exit_result(&end_row, 1, 2), -EPROTO);
}

static void test_stdin_ack_order(void **state)
{
	static const struct {
		uint64_t taken, acked, sent;
		int code;
	} acks[] = {
		{ 5, 4, 6, 0 }, { 4, 4, 6, 0 }, /* says nothing new */
		{ 6, 4, 6, 0 }, { 3, 4, 6, -EPROTO }, { 7, 4, 6, -EPROTO },
		{ 0, 0, 0, 0 }, { 1, 0, 0, -EPROTO }, { UINT64_MAX, 0, UINT64_MAX - 1, -EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(acks); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(100);
		struct message m;
		uint64_t got = 77;

		agent_put_stdin_ack(&out, acks[i].taken);
		m = (struct message){ AGENT_STDIN_ACK, out.data + FRAME_HEAD,
				      out.len - FRAME_HEAD };
		assert_int_equal(agent_get_stdin_ack(&m, acks[i].acked, acks[i].sent, &got),
				 acks[i].code);
		assert_int_equal(got, acks[i].code ? 77 : acks[i].taken);
	}
}

static int run_result(const struct agent_run *run)
{
	_cleanup_buf_ struct buf out = BUF_INIT(AGENT_MESSAGE_MAX + FRAME_MAX);
	struct frame_reader r;
	struct agent_run got;
	struct message m;
	size_t at = 0;
	int n;

	agent_put_run(&out, run);
	assert_int_equal(out.failed, 0);
	frame_reader_init(&r, AGENT_MESSAGE_MAX);
	while ((n = frame_reader_next(&r, &m)) == 0) {
		size_t len = out.len - at < FRAME_MAX ? out.len - at : FRAME_MAX;

		assert_true(len > 0);
		assert_int_equal(frame_reader_feed(&r, out.data + at, len), 0);
		at += len;
	}
	assert_int_equal(n, 1);
	n = agent_get_run(&m, &got);
	if (!n)
		agent_run_release(&got);
	frame_reader_release(&r);
	return n;
}

static void test_run_refused(void **state)
{
	const char *none[] = { NULL }, *one[] = { "true", NULL }, *two[] = { "a", "b", NULL };
	char *script = malloc(AGENT_STRING_MAX + 2), *large[] = { script, NULL };
	struct agent_run run = { .id = ID, .argv = (char **)one };

	(void)state;
	assert_int_equal(run_result(&run), 0);
	run.argv = (char **)none;
	assert_int_equal(run_result(&run), -EPROTO);
	run.argv = (char **)two;
	assert_int_equal(run_result(&run), 0);
	run.runtime = RUNTIME_BASH; /* one script */
	assert_int_equal(run_result(&run), -EPROTO);
	run.argv = (char **)one;
	run.runtime = RUNTIME_SHELL + 1;
	assert_int_equal(run_result(&run), -EPROTO);
	run.runtime = RUNTIME_BASH;
	run.id = "cm";
	assert_int_equal(run_result(&run), -EPROTO);
	run.id = ID "a";
	assert_int_equal(run_result(&run), -EPROTO);
	run.id = ID;
	/* a script of 1 MiB passes, one byte more does not */
	memset(script, 'x', AGENT_STRING_MAX + 1);
	script[AGENT_STRING_MAX] = '\0';
	run.argv = large;
	assert_int_equal(run_result(&run), 0);
	script[AGENT_STRING_MAX] = 'x';
	script[AGENT_STRING_MAX + 1] = '\0';
	assert_int_equal(run_result(&run), -EPROTO);
	script[4096] = '\0';
	run.argv = (char **)one;
	run.cwd = script;
	assert_int_equal(run_result(&run), -EPROTO);
	free(script);
}

/* A count that the rest of the message cannot hold is refused before memory is asked for. */
static void test_false_counts(void **state)
{
	static const uint32_t counts[] = { 2, 3, 100, 65535, 65536, 65537, 0x7fffffff, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(100);
		struct dec d;

		enc_u32(&b, counts[i]);
		enc_str(&b, "only");
		dec_init(&d, b.data, b.len);
		failing_alloc_after(0);
		assert_null(dec_strv(&d, UINT32_MAX, 100));
		assert_false(failing_alloc_hit());
		failing_alloc_after(-1);
		assert_true(d.bad);
	}
}

static void test_strings(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *want; /* NULL: refused */
	} texts[] = {
		{ "\4\0\0\0abc", 8, "abc" },     { "\1\0\0\0", 5, "" },
		{ "\5\0\0\0abcd", 9, NULL }, /* above the limit of three */
		{ "\0\0\0\0", 5, NULL },     /* not even a NUL */
		{ "\4\0\0\0abcd", 8, NULL }, /* not terminated */
		{ "\4\0\0\0a\0c", 8, NULL }, /* terminated twice */
		{ "\4\0\0\0ab", 6, NULL },   /* cut */
		{ "\xff\xff\xff\xff", 5, NULL }, { "\4\0\0", 3, NULL },
	};
	struct dec d;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const char *s;

		dec_init(&d, texts[i].bytes, texts[i].len);
		s = dec_str(&d, 3);
		assert_string_equal(s, texts[i].want ? texts[i].want : "");
		assert_int_equal(d.bad, !texts[i].want);
		assert_int_equal(dec_done(&d), texts[i].want != NULL);
		/* once bad, all is zero */
		if (!texts[i].want)
			assert_true(!dec_u8(&d) && !dec_u32(&d) && !dec_u64(&d) && d.bad);
	}
	dec_init(&d, NULL, 0);
	assert_true(dec_done(&d));
	assert_int_equal(dec_u8(&d), 0);
	assert_true(d.bad);
}

static void test_hello_check(void **state)
{
	static const struct {
		uint32_t version, oldest;
		int code;
	} peers[] = {
		{ AGENT_VERSION, AGENT_OLDEST, 0 },
		{ AGENT_VERSION + 5, AGENT_VERSION, 0 },
		{ AGENT_VERSION + 5, AGENT_VERSION + 1, -EPROTONOSUPPORT },
		{ AGENT_OLDEST - 1, 0, -EPROTONOSUPPORT },
	};
	_cleanup_buf_ struct buf body = BUF_INIT(100);
	struct agent_hello h;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
		h = (struct agent_hello){ peers[i].version, peers[i].oldest, 0 };
		assert_int_equal(agent_hello_check(&h), peers[i].code);
	}
	enc_u32(&body, 1);
	enc_u32(&body, 2); /* understands nothing it speaks */
	enc_u64(&body, 0);
	assert_int_equal(agent_get_hello(&(struct message){ AGENT_HELLO, body.data, body.len }, &h),
			 -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_cut),
		cmocka_unit_test(test_trailing),        cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_no_memory),       cmocka_unit_test(test_output),
		cmocka_unit_test(test_output_refused),  cmocka_unit_test(test_exit_refused),
		cmocka_unit_test(test_run_refused),     cmocka_unit_test(test_false_counts),
		cmocka_unit_test(test_strings),         cmocka_unit_test(test_hello_check),
		cmocka_unit_test(test_stdin_ack_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
