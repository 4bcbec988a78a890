/* Commands against fake agents: honest, broken, slow and hostile ones. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include "command_agent.h"
#include "daemon/sandbox/command.h"
#include "unit.h"

#define KEEP ((uint64_t)COMMAND_KEEP)

static const char sandbox[] = "sbaaaaaaaaaaaaaaaaaaaa";
static const char id[] = "cmaaaaaaaaaaaaaaaaaaaa";
static char dir[] = "/tmp/skerry-command-XXXXXX";

static struct command_spec spec_of(const char *cm)
{
	static char *argv[] = { (char *)"true", NULL };
	static char *env[] = { NULL };

	return (struct command_spec){
		.sandbox = sandbox,
		.run = { .id = cm,
			 .cwd = "",
			 .default_cwd = "/",
			 .user = "",
			 .default_user = "",
			 .argv = argv,
			 .env = env },
	};
}

static struct command *start(void)
{
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c = NULL;
	struct err e = ERR_INIT;

	if (command_start(&spec, &c, &started, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(started.cwd, "/workspace");
	assert_string_equal(started.user, "skerry");
	return c;
}

static struct command_result run_to_end(struct command *c)
{
	struct command_result result;
	/* far above what any of these takes */
	uint64_t deadline = clock_mono_ns() + 60 * NS_PER_SEC;

	assert_int_equal(command_pump(c, deadline, -1, &result), COMMAND_ENDED);
	command_free(c);
	return result;
}

static void check_output(int stream, const char *want)
{
	char data[1000];
	struct err e = ERR_INIT;
	ssize_t n = output_read(sandbox, id, stream, 0, data, sizeof(data), &e);

	assert_int_equal(n, strlen(want));
	assert_memory_equal(data, want, strlen(want));
}

static void put_begin(struct buf *b)
{
	fake_hello(b);
	fake_started(b);
}

/* --- honest ones --- */

static uint64_t last_ack[2];

static void read_acks(struct fake_conn *c)
{
	struct agent_ack a;

	while (fake_next(c)) {
		if (c->m.type != AGENT_ACK || agent_get_ack(&c->m, &a) < 0)
			abort();
		last_ack[0] = a.offset[0];
		last_ack[1] = a.offset[1];
	}
}

static void play_hello(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	if (c->m.type != AGENT_RUN)
		abort();
	put_begin(&b);
	fake_output(&b, 1, 0, "hello ", 6);
	fake_output(&b, 2, 0, "oops\n", 5);
	fake_output(&b, 1, 6, "world\n", 6);
	fake_exit(&b, 7, 12, 5);
	fake_send(c, &b);
	read_acks(c);
}

static void test_runs(void **state)
{
	struct command_result r;

	(void)state;
	fake_play(play_hello, NULL, true);
	r = run_to_end(start());
	assert_true(r.exit_known);
	assert_int_equal(r.exit.code, 7);
	assert_int_equal(r.exit.reason, REASON_EXITED);
	check_output(1, "hello world\n");
	check_output(2, "oops\n");
	fake_reset();
	assert_int_equal(last_ack[0], 12);
	assert_int_equal(last_ack[1], 5);
}

/* Everything one byte at a time. */
static void play_drip(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_output(&b, 1, 0, "drop", 4);
	fake_exit(&b, 0, 4, 0);
	for (size_t i = 0; i < b.len; i++)
		if (send(c->fd, b.data + i, 1, MSG_NOSIGNAL) != 1)
			abort();
	buf_release(&b);
	read_acks(c);
}

static void test_drip(void **state)
{
	(void)state;
	fake_play(play_drip, NULL, true);
	assert_true(run_to_end(start()).exit_known);
	check_output(1, "drop");
	fake_reset();
}

static bool wait_ack(struct fake_conn *c, uint64_t offset)
{
	struct agent_ack a = { 0 };

	while (a.offset[0] < offset)
		if (!fake_next(c) || agent_get_ack(&c->m, &a) < 0)
			return false;
	return true;
}

/* Sends only as much as the window allows, then a little, and waits for each ACK. */
static void play_window(struct fake_conn *c)
{
	static char data[32 * 1024];
	struct buf b = BUF_INIT(1 << 20);
	uint64_t at = 0;

	put_begin(&b);
	fake_send(c, &b);
	while (at < 20 * KEEP) {
		for (int i = 0; i < AGENT_WINDOW / (int)sizeof(data); i++, at += sizeof(data))
			fake_output(&b, 1, at, data, sizeof(data));
		fake_send(c, &b);
		if (!wait_ack(c, at - AGENT_WINDOW / 2))
			abort();
	}
	for (int i = 0; i < 3; i++) {
		fake_output(&b, 1, at, data, 100);
		at += 100;
		fake_send(c, &b);
		if (!wait_ack(c, at)) /* sent because the output pauses */
			abort();
	}
	fake_exit(&b, 0, at, 0);
	fake_send(c, &b);
}

static void test_acknowledges(void **state)
{
	struct command_result r;
	struct output_view v;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_window, NULL, true);
	r = run_to_end(start());
	fake_reset();
	assert_true(r.exit_known);
	assert_int_equal(output_stat(sandbox, id, 1, &v, &e), 0);
	assert_int_equal(v.total, 20 * KEEP + 300);
	assert_int_equal(v.tail_at, v.total - KEEP);
}

/* Reads a piece of stdin, sends it back and acknowledges it, and so on. */
static void play_echo(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);
	uint64_t at = 0;

	put_begin(&b);
	fake_send(c, &b);
	while (fake_next(c) && c->m.type != AGENT_STDIN_EOF) {
		if (c->m.type != AGENT_STDIN)
			continue;
		fake_stdin_ack(&b, at + c->m.len);
		for (size_t done = 0; done < c->m.len; done += 30000) {
			size_t n = c->m.len - done < 30000 ? c->m.len - done : 30000;

			fake_output(&b, 1, at, (const char *)c->m.data + done, n);
			at += n;
		}
		fake_send(c, &b);
	}
	fake_exit(&b, 0, at, 0);
	fake_send(c, &b);
	read_acks(c);
}

static void echo(size_t len)
{
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command_result r;
	struct command *c;
	struct err e = ERR_INIT;
	unsigned char *data = malloc(len ? len : 1), got[4096];
	size_t from = len < sizeof(got) ? 0 : len - sizeof(got);

	for (size_t i = 0; i < len; i++)
		data[i] = (unsigned char)(i * 2654435761u >> 24);
	spec.stdin_data = data;
	spec.stdin_len = len;
	spec.run.flags = RUN_STDIN;
	assert_int_equal(command_start(&spec, &c, &started, &e), 0);
	r = run_to_end(c);
	fake_reset();
	assert_true(r.exit_known);
	assert_int_equal(r.exit.total[0], len);
	assert_int_equal(output_read(sandbox, id, 1, from, got, sizeof(got), &e), len - from);
	assert_memory_equal(got, data + from, len - from);
	free(data);
	assert_int_equal(output_remove(sandbox, id, &e), 0);
}

static void test_stdin(void **state)
{
	(void)state;
	fake_play(play_echo, NULL, true);
	echo(0);
	echo(1);
	echo(FRAME_MAX);
	echo(FRAME_MAX + 1);
	echo(64 * KEEP);
}

/* Says each byte of stdin as many times as told, keeps to its window, and takes stdin only while its
 * output moves: an agent with exactly the room that it must have. */
static void play_more(struct fake_conn *c)
{
	enum { PIECE = 4 * 1024, MOST = 20 };
	static const char data[MOST * PIECE];
	const size_t times = *(const size_t *)c->arg;
	uint64_t at = 0, acked = 0, taken = 0;
	struct buf b = BUF_INIT(1 << 20);
	struct agent_ack a;
	size_t ahead = 0;
	bool eof = false;

	put_begin(&b);
	fake_send(c, &b);
	while (!eof || ahead) {
		size_t n = ahead < PIECE ? ahead : PIECE, len = times * n;

		if (n && at - acked + len <= AGENT_WINDOW) {
			for (size_t done = 0; done < len; done += FRAME_MAX / 2)
				fake_output(&b, 1, at + done, data,
					    len - done < FRAME_MAX / 2 ? len - done
								       : FRAME_MAX / 2);
			at += len;
			ahead -= n;
			taken += n;
			fake_stdin_ack(&b, taken);
			fake_send(c, &b);
			continue;
		}
		if (!fake_next(c))
			abort();
		if (c->m.type == AGENT_ACK && agent_get_ack(&c->m, &a) == 0)
			acked = a.offset[0];
		else if (c->m.type == AGENT_STDIN_EOF)
			eof = true;
		else
			ahead += c->m.len;
		if (ahead > AGENT_STDIN_WINDOW)
			abort();
	}
	fake_exit(&b, 0, at, 0);
	fake_send(c, &b);
	while (fake_next(c))
		;
}

static struct command *start_with_stdin(size_t len)
{
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c = NULL;
	struct err e = ERR_INIT;

	spec.stdin_len = len;
	spec.stdin_data = calloc(1, len);
	if (command_start(&spec, &c, &started, &e) < 0)
		fail_msg("%s", e.text);
	free((void *)spec.stdin_data);
	return c;
}

static void test_stdin_and_output(void **state)
{
	static const struct {
		size_t times, len;
	} cases[] = { { 1, 64 * KEEP }, { 2, 20 * KEEP + 5 }, { 20, 16 * KEEP } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct command_result r;

		fake_play(play_more, (void *)&cases[i].times, true);
		r = run_to_end(start_with_stdin(cases[i].len));
		fake_reset();
		assert_true(r.exit_known);
		assert_int_equal(r.exit.total[0], cases[i].times * cases[i].len);
	}
}

/* Acknowledges nothing until a window has come, looks whether more comes, then goes on in steps. */
static void play_measure(struct fake_conn *c)
{
	enum { STEP = 50000 };
	struct buf b = BUF_INIT(1 << 20);
	uint64_t came = 0, acked = 0;
	char byte;

	put_begin(&b);
	fake_send(c, &b);
	while (fake_next(c) && c->m.type == AGENT_STDIN) {
		came += c->m.len;
		if (came - acked > AGENT_STDIN_WINDOW)
			abort();
		if (came - acked < AGENT_STDIN_WINDOW)
			continue;
		usleep(20000);
		if (recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
			abort();
		acked += STEP;
		fake_stdin_ack(&b, acked);
		fake_stdin_ack(&b, acked);
		fake_send(c, &b);
	}
	fake_exit(&b, c->m.type == AGENT_STDIN_EOF ? 0 : 1, 0, 0);
	fake_send(c, &b);
	*(uint64_t *)c->arg = came;
	while (fake_next(c))
		;
}

static void test_stdin_window(void **state)
{
	struct command_result r;
	uint64_t came = 0;

	(void)state;
	fake_play(play_measure, &came, true);
	r = run_to_end(start_with_stdin(KEEP + 7));
	fake_reset();
	assert_int_equal(came, KEEP + 7);
	assert_int_equal(r.exit.code, 0);
}

/* False ones, each after 100 bytes of stdin and a true one of 60. */
static void play_false_ack(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_stdin_ack(&b, 60);
	fake_stdin_ack(&b, *(const uint64_t *)c->arg);
	fake_exit(&b, 0, 0, 0);
	fake_send(c, &b);
	while (fake_next(c))
		;
}

static void test_false_stdin_ack(void **state)
{
	static const struct {
		uint64_t taken;
		bool known;
	} acks[] = { { 60, true }, { 61, true },   { 100, true },        { 59, false },
		     { 0, false }, { 101, false }, { UINT64_MAX, false } };

	(void)state;
	for (size_t i = 0; i < sizeof(acks) / sizeof(acks[0]); i++) {
		struct command_result r;

		fake_play(play_false_ack, (void *)&acks[i].taken, true);
		r = run_to_end(start_with_stdin(100));
		fake_reset();
		assert_int_equal(r.exit_known, acks[i].known);
	}
}

/* The window was used up on the first connection; the second counts from 0, with no stdin. */
static void play_stdin_break(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	if (c->number == 0) {
		fake_stdin_ack(&b, 1000);
		fake_send(c, &b);
		for (size_t came = 0; came < AGENT_STDIN_WINDOW;) {
			if (!fake_next(c))
				abort();
			came += c->m.len;
		}
		return;
	}
	if (c->number == 2)
		fake_stdin_ack(&b, 1);
	else
		fake_stdin_ack(&b, 0);
	if (c->number == 2)
		fake_exit(&b, 0, 0, 0);
	fake_send(c, &b);
}

static void test_stdin_attaches_again(void **state)
{
	(void)state;
	fake_play(play_stdin_break, NULL, true);
	assert_false(run_to_end(start_with_stdin(KEEP)).exit_known);
	assert_int_equal(fake_connections(), 3);
	fake_reset();
}

/* Ends without reading stdin. */
static void play_no_stdin(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_exit(&b, 0, 0, 0);
	fake_send(c, &b);
}

static void test_stdin_unread(void **state)
{
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_no_stdin, NULL, true);
	spec.stdin_len = 8 * KEEP;
	spec.stdin_data = calloc(1, spec.stdin_len);
	assert_int_equal(command_start(&spec, &c, &started, &e), 0);
	free((void *)spec.stdin_data);
	assert_true(run_to_end(c).exit_known);
	fake_reset();
}

/* --- refusals --- */

static void play_refuse(struct fake_conn *c)
{
	const struct agent_fail *f = c->arg;
	struct buf b = BUF_INIT(1 << 20);

	fake_hello(&b);
	agent_put_fail(&b, f);
	fake_send(c, &b);
}

static void test_refused(void **state)
{
	const struct agent_fail honest = { ENOENT, "command_not_found", "command",
					   "'nope' is not there" };
	const struct agent_fail foreign = { EIO, "evil word", "x\ny", "bad \xff text\n" };
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_refuse, (void *)&honest, true);
	assert_int_equal(command_start(&spec, &c, &started, &e), -ENOENT);
	assert_string_equal(e.reason, "command_not_found");
	assert_string_equal(e.field, "command");
	assert_string_equal(e.text, "'nope' is not there");
	fake_play(play_refuse, (void *)&foreign, true);
	assert_int_equal(command_start(&spec, &c, &started, &e), -EIO);
	assert_string_equal(e.reason, "agent_refused");
	assert_string_equal(e.field, "x?y");
	assert_string_equal(e.text, "bad ? text?");
	assert_null(c);
	fake_reset();
}

static void test_unreachable(void **state)
{
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_hello, NULL, true);
	fake_refuse(ECONNREFUSED, 1);
	assert_int_equal(command_start(&spec, &c, &started, &e), -ECONNREFUSED);
	fake_refuse(EAGAIN, 5); /* its queue is full for a while */
	assert_true(run_to_end(start()).exit_known);
	fake_reset();
}

static void play_silence(struct fake_conn *c)
{
	while (fake_next(c))
		;
}

static void test_silent(void **state)
{
	uint64_t from = clock_mono_ns();
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_silence, NULL, false);
	assert_int_equal(command_start(&spec, &c, &started, &e), -ETIMEDOUT);
	assert_string_equal(e.reason, "agent_silent");
	assert_true(clock_mono_ns() - from < 20 * NS_PER_SEC); /* promised: 10 s */
	fake_reset();
}

/* --- broken connections --- */

static uint64_t attached_at[2];

static void play_break(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);
	struct agent_attach a;

	put_begin(&b);
	if (c->number == 0) {
		fake_output(&b, 1, 0, "0123456789", 10);
		fake_send(c, &b);
		return;
	}
	if (c->number < 4) { /* a connection that says nothing more */
		buf_release(&b);
		return;
	}
	if (c->m.type != AGENT_ATTACH || agent_get_attach(&c->m, &a) < 0 || strcmp(a.id, id))
		abort();
	attached_at[0] = a.offset[0];
	attached_at[1] = a.offset[1];
	fake_output(&b, 1, 5, "56789abcde", 10);
	fake_output(&b, 2, 3, "late", 4); /* the first three were dropped */
	fake_exit(&b, 0, 15, 7);
	fake_send(c, &b);
	read_acks(c);
}

static void check_broken(const struct command_result *r)
{
	struct output_view v;
	struct err e = ERR_INIT;
	char data[10];

	assert_true(r->exit_known);
	assert_int_equal(attached_at[0], 10);
	assert_int_equal(attached_at[1], 0);
	check_output(1, "0123456789abcde");
	assert_int_equal(output_stat(sandbox, id, 2, &v, &e), 0);
	assert_int_equal(v.total, 7);
	assert_int_equal(v.head, 0);
	assert_int_equal(v.tail_at, 3);
	assert_int_equal(output_read(sandbox, id, 2, 3, data, sizeof(data), &e), 4);
	assert_memory_equal(data, "late", 4);
}

static void test_attaches_again(void **state)
{
	struct command_result r;

	(void)state;
	fake_play(play_break, NULL, true);
	r = run_to_end(start());
	check_broken(&r);
	fake_reset();
}

static void play_started_only(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_output(&b, 1, 0, "abc", 3);
	fake_send(c, &b);
}

static void test_machine_gone(void **state)
{
	struct command_result r;
	struct command *c;

	(void)state;
	fake_play(play_started_only, NULL, true);
	c = start();
	fake_refuse(ECONNREFUSED, 1);
	r = run_to_end(c);
	assert_false(r.exit_known);
	assert_int_equal(r.exit.reason, REASON_LOST);
	assert_int_equal(r.exit.total[0], 3);
	check_output(1, "abc");
	fake_reset();
}

static void play_forgot(struct fake_conn *c)
{
	static const struct agent_fail unknown = { ESRCH, "command_unknown", "", "unknown" };
	static const struct agent_fail full = { EMFILE, "limit_descriptors", "", "full" };

	c->arg = (void *)(c->number == 1 ? &full : &unknown);
	if (c->number == 0)
		play_started_only(c);
	else
		play_refuse(c);
}

static void test_agent_forgot(void **state)
{
	struct command *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_forgot, NULL, true);
	assert_false(run_to_end(start()).exit_known);
	assert_int_equal(fake_connections(), 3); /* what may pass is asked again */
	assert_int_equal(command_attach(sandbox, id, &c, &e), -ESRCH);
	assert_null(c);
	fake_reset();
}

static void play_rest(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);
	struct agent_attach a;

	if (c->m.type != AGENT_ATTACH || agent_get_attach(&c->m, &a) < 0 || a.offset[0] != 3)
		abort();
	put_begin(&b);
	fake_output(&b, 1, 3, "def", 3);
	fake_exit(&b, 0, 6, 0);
	fake_send(c, &b);
	read_acks(c);
}

/* As after a restart of the daemon: nothing of the command is in memory. */
static void test_attach_later(void **state)
{
	struct command_result r;
	struct command *c;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_started_only, NULL, true);
	c = start();
	command_pump(c, clock_mono_ns() + NS_PER_SEC / 50, -1, &r);
	command_free(c);
	fake_play(play_rest, NULL, true);
	assert_int_equal(command_attach(sandbox, id, &c, &e), 0);
	assert_true(run_to_end(c).exit_known);
	check_output(1, "abcdef");
	fake_reset();
}

/* --- hostile ones --- */

struct hostile {
	const char *what;
	void (*put)(struct buf *b);
	bool known; /* its outcome is believed all the same */
};

static void put_junk(struct buf *b)
{
	for (int i = 0; i < 5000; i++)
		buf_addc(b, (char)(i * 37 + 11));
}

static void put_long_frame(struct buf *b)
{
	buf_add(b, "\xff\xff\xff\xff\x41", 5);
}

static void put_type_zero(struct buf *b)
{
	buf_add(b, "\0\0\0\0\0", 5);
}

static void put_endless_message(struct buf *b)
{
	char piece[FRAME_MAX] = { 0 };

	for (int i = 0; i < 8; i++) {
		buf_add(b, "\0\0\1\0\x7f", 5);
		buf_add(b, piece, sizeof(piece));
	}
}

static void put_stream_three(struct buf *b)
{
	fake_output(b, 3, 0, "x", 1);
}

static void put_jump(struct buf *b)
{
	fake_output(b, 1, 1ull << 63, "x", 1);
}

static void put_edge(struct buf *b)
{
	fake_output(b, 1, UINT64_MAX - 1, "x", 1);
}

static void put_started_twice(struct buf *b)
{
	fake_started(b);
}

static void put_fail_late(struct buf *b)
{
	agent_put_fail(b, &(struct agent_fail){ EIO, "x", "", "late" });
}

static void put_short_total(struct buf *b)
{
	fake_output(b, 1, 0, "xxxx", 4);
	fake_exit(b, 0, 3, 0);
}

static void put_huge_total(struct buf *b)
{
	fake_exit(b, 0, 1ull << 63, 0);
}

static void put_exit_lost(struct buf *b)
{
	agent_put_exit(b, &(struct agent_exit){ .reason = REASON_LOST });
}

static void put_exit_twice(struct buf *b)
{
	fake_exit(b, 0, 0, 0);
	fake_exit(b, 1, 5, 0);
	put_junk(b);
}

static void put_stdin_ack(struct buf *b)
{
	fake_stdin_ack(b, 1);
}

static void put_question(struct buf *b)
{
	agent_put_empty(b, AGENT_LIST);
}

static void put_hello_again(struct buf *b)
{
	fake_hello(b);
}

static void play_hostile(struct fake_conn *c)
{
	const struct hostile *h = c->arg;
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	h->put(&b);
	fake_send(c, &b);
	while (fake_next(c))
		;
}

static void test_garbage(void **state)
{
	static const struct hostile hostile[] = {
		{ "junk", put_junk, false },
		{ "a frame of 4 GiB", put_long_frame, false },
		{ "a frame of no type", put_type_zero, false },
		{ "a message without end", put_endless_message, false },
		{ "a third stream", put_stream_three, false },
		{ "an offset of 2^63", put_jump, false },
		{ "an offset that wraps", put_edge, false },
		{ "STARTED twice", put_started_twice, false },
		{ "FAIL while it runs", put_fail_late, false },
		{ "a total below what came", put_short_total, false },
		{ "a total of 2^63", put_huge_total, false },
		{ "LOST as its own word", put_exit_lost, false },
		{ "EXIT twice", put_exit_twice, true },
		{ "stdin taken that was not sent", put_stdin_ack, false },
		{ "a question", put_question, false },
		{ "HELLO again", put_hello_again, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		struct command_result r;
		struct err e = ERR_INIT;

		fake_play(play_hostile, (void *)&hostile[i], true);
		r = run_to_end(start());
		fake_reset();
		if (r.exit_known != hostile[i].known)
			fail_msg("%s: outcome %s", hostile[i].what,
				 r.exit_known ? "believed" : "lost");
		assert_int_equal(output_remove(sandbox, NULL, &e), 0);
	}
}

static void play_raw(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	((void (*)(struct buf *))c->arg)(&b);
	fake_send(c, &b);
	while (fake_next(c))
		;
}

static void put_old_agent(struct buf *b)
{
	struct buf hello = BUF_INIT(100);
	static const uint32_t versions[] = { 99, 98 };

	buf_add(&hello, versions, sizeof(versions));
	buf_add(&hello, "\0\0\0\0\0\0\0\0", 8);
	frame_put(b, AGENT_HELLO, hello.data, hello.len);
	buf_release(&hello);
}

static void put_no_hello(struct buf *b)
{
	fake_started(b);
}

static void test_garbage_first(void **state)
{
	static void (*const put[])(struct buf *) = { put_junk, put_long_frame, put_no_hello,
						     put_old_agent };
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(put) / sizeof(put[0]); i++) {
		struct err e = ERR_INIT;

		fake_play(play_raw, (void *)put[i], true);
		assert_int_equal(command_start(&spec, &c, &started, &e),
				 put[i] == put_old_agent ? -EPROTONOSUPPORT : -EPROTO);
		assert_non_null(e.reason);
		fake_reset();
	}
	assert_null(c);
}

/* --- clients --- */

static void play_quiet(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_send(c, &b);
	while (fake_next(c))
		;
}

static void test_client_leaves(void **state)
{
	struct command_result r;
	struct command *c;
	int pair[2];

	(void)state;
	fake_play(play_quiet, NULL, true);
	c = start();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	/* half-closed: still served */
	shutdown(pair[1], SHUT_WR);
	assert_int_equal(command_pump(c, clock_mono_ns() + NS_PER_SEC / 20, pair[0], &r),
			 COMMAND_RUNNING);
	close(pair[1]);
	assert_int_equal(command_pump(c, clock_mono_ns() + 60 * NS_PER_SEC, pair[0], &r),
			 COMMAND_CLIENT_GONE);
	close(pair[0]);
	assert_int_equal(command_pump(c, 0, -1, &r), COMMAND_RUNNING);
	command_free(c);
	fake_reset();
}

/* --- the watch thread --- */

enum { MANY = 40 };

static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static unsigned done_times[MANY + 1];
static unsigned done_total;
static struct command_result done_last;

static void done(void *arg, const char *sb, const char *cm, const struct command_result *r)
{
	pthread_mutex_lock(&done_lock);
	if (strcmp(sb, sandbox) || strlen(cm) != ID_LEN)
		abort();
	(*(unsigned *)arg)++;
	done_total++;
	done_last = *r;
	pthread_cond_signal(&done_cond);
	pthread_mutex_unlock(&done_lock);
}

static void wait_done(unsigned count)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&done_lock);
	while (done_total < count && !r)
		r = pthread_cond_timedwait(&done_cond, &done_lock, &until);
	assert_int_equal(done_total, count);
	pthread_mutex_unlock(&done_lock);
}

static void forget_done(void)
{
	memset(done_times, 0, sizeof(done_times));
	done_total = 0;
}

/* Floods with the smallest frames there are, for as long as it is listened to. */
static void play_flood(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_send(c, &b);
	for (uint64_t at = 0;;) {
		while (b.len < 60000)
			fake_output(&b, 1, at++, "x", 1);
		if (send(c->fd, b.data, b.len, MSG_NOSIGNAL) <= 0)
			break;
		buf_clear(&b);
	}
	buf_release(&b);
}

static void play_later(struct fake_conn *c)
{
	struct buf b = BUF_INIT(1 << 20);

	put_begin(&b);
	fake_output(&b, 1, 0, "first", 5);
	fake_send(c, &b);
	usleep(20000);
	fake_output(&b, 1, 5, "last", 4);
	fake_exit(&b, 3, 9, 0);
	fake_send(c, &b);
	while (fake_next(c))
		;
}

static struct command *start_as(unsigned n)
{
	char cm[ID_SIZE];
	struct command_spec spec;
	struct agent_started started;
	struct command *c;
	struct err e = ERR_INIT;

	memcpy(cm, id, sizeof(cm));
	cm[ID_LEN - 1] = (char)('a' + n % 26);
	cm[ID_LEN - 2] = (char)('b' + n / 26);
	spec = spec_of(cm);
	assert_int_equal(command_start(&spec, &c, &started, &e), 0);
	return c;
}

static void test_background(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	forget_done();
	fake_play(play_flood, NULL, true);
	command_background(start_as(MANY), done, &done_times[MANY]);
	fake_play(play_later, NULL, true);
	for (unsigned i = 0; i < MANY; i++)
		command_background(start_as(i), done, &done_times[i]);
	wait_done(MANY);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(done_times[i], 1);
	assert_int_equal(done_times[MANY], 0);
	assert_int_equal(done_last.exit.code, 3);
	/* the flood goes on until the thread ends */
	command_shutdown();
	fake_reset();
	assert_int_equal(done_total, MANY);
	assert_int_equal(command_init(&fake_backend, dir, &e), 0);
	assert_int_equal(output_remove(sandbox, NULL, &e), 0);
}

static void test_background_attaches_again(void **state)
{
	(void)state;
	forget_done();
	fake_play(play_break, NULL, true);
	command_background(start(), done, &done_times[0]);
	wait_done(1);
	check_broken(&done_last);
	fake_reset();
}

/* While no connection can be had the others go on, and a machine that is gone ends it. */
static void test_background_lost(void **state)
{
	struct command *c;

	(void)state;
	forget_done();
	fake_play(play_started_only, NULL, true);
	c = start();
	fake_refuse(EAGAIN, 5);
	command_background(c, done, &done_times[0]);
	usleep(100000);
	fake_refuse(ENOENT, 1);
	wait_done(1);
	assert_false(done_last.exit_known);
	fake_reset();
}

static void test_background_stdin(void **state)
{
	struct command_spec spec = spec_of(id);
	struct agent_started started;
	struct command *c;
	struct err e = ERR_INIT;
	struct output_view v;

	(void)state;
	forget_done();
	fake_play(play_echo, NULL, true);
	spec.stdin_len = 5 * KEEP;
	spec.stdin_data = calloc(1, spec.stdin_len);
	assert_int_equal(command_start(&spec, &c, &started, &e), 0);
	free((void *)spec.stdin_data);
	command_background(c, done, &done_times[0]);
	wait_done(1);
	assert_int_equal(output_stat(sandbox, id, 1, &v, &e), 0);
	assert_int_equal(v.total, 5 * KEEP);
	fake_reset();
}

/* --- one-shot operations --- */

static void play_operation(struct fake_conn *c)
{
	static const struct agent_fail none = { ESRCH, "nothing_left", "", "nothing is left" };
	struct buf b = BUF_INIT(1 << 20);
	struct agent_signal s;
	const char *cm;
	uint32_t grace;

	fake_hello(&b);
	switch (c->m.type) {
	case AGENT_SIGNAL:
		if (agent_get_signal(&c->m, &s) < 0 || s.signal != 10 || strcmp(s.id, id))
			abort();
		agent_put_empty(&b, AGENT_DONE);
		break;
	case AGENT_TERMINATE:
		if (agent_get_signal(&c->m, &s) < 0 || s.signal != 15 || s.grace_ms != 500)
			abort();
		agent_put_fail(&b, &none);
		break;
	case AGENT_FORGET:
		if (agent_get_id(&c->m, &cm) < 0 || strcmp(cm, id))
			abort();
		agent_put_empty(&b, AGENT_DONE);
		break;
	case AGENT_STOP:
		if (agent_get_stop(&c->m, &grace) < 0 || grace != 1234)
			abort();
		agent_put_empty(&b, AGENT_DONE);
		break;
	case AGENT_LIST:
		for (int i = 0; i < 300; i++)
			agent_put_command(&b, &(struct agent_command){ .id = id, .pid = 7 });
		agent_put_empty(&b, AGENT_DONE);
		break;
	default:
		abort();
	}
	fake_send(c, &b);
}

static void count_command(void *arg, const struct agent_command *c)
{
	assert_string_equal(c->id, id);
	++*(unsigned *)arg;
}

static void test_operations(void **state)
{
	unsigned count = 0;
	struct err e = ERR_INIT;

	(void)state;
	fake_play(play_operation, NULL, true);
	assert_int_equal(command_signal(sandbox, id, 10, &e), 0);
	assert_int_equal(command_terminate(sandbox, id, 15, 500, &e), -ESRCH);
	assert_string_equal(e.reason, "nothing_left");
	assert_int_equal(command_forget(sandbox, id, &e), 0);
	assert_int_equal(agent_stop(sandbox, 1234, &e), 0);
	assert_int_equal(command_list(sandbox, count_command, &count, &e), 0);
	assert_int_equal(count, 300);
	assert_int_equal(command_signal("..", id, 10, &e), -EINVAL);
	assert_int_equal(command_list("/", count_command, &count, &e), -EINVAL);
	fake_play(play_raw, (void *)put_junk, true);
	assert_int_equal(command_forget(sandbox, id, &e), -EPROTO);
	assert_int_equal(command_list(sandbox, count_command, &count, &e), -EPROTO);
	fake_play(play_raw, (void *)put_begin, true); /* an answer to another question */
	assert_int_equal(command_forget(sandbox, id, &e), -EPROTO);
	assert_int_equal(command_list(sandbox, count_command, &count, &e), -EPROTO);
	fake_reset();
}

static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	log_open("test", LOG_ERROR);
	if (!mkdtemp(dir))
		return -1;
	return command_init(&fake_backend, dir, &e);
}

static int teardown(void **state)
{
	(void)state;
	command_shutdown();
	return rmdir(dir);
}

static int clear(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	return output_remove(sandbox, NULL, &e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_runs, clear),
		cmocka_unit_test_teardown(test_drip, clear),
		cmocka_unit_test_teardown(test_acknowledges, clear),
		cmocka_unit_test_teardown(test_stdin, clear),
		cmocka_unit_test_teardown(test_stdin_and_output, clear),
		cmocka_unit_test_teardown(test_stdin_window, clear),
		cmocka_unit_test_teardown(test_false_stdin_ack, clear),
		cmocka_unit_test_teardown(test_stdin_attaches_again, clear),
		cmocka_unit_test_teardown(test_stdin_unread, clear),
		cmocka_unit_test_teardown(test_refused, clear),
		cmocka_unit_test_teardown(test_unreachable, clear),
		cmocka_unit_test_teardown(test_silent, clear),
		cmocka_unit_test_teardown(test_attaches_again, clear),
		cmocka_unit_test_teardown(test_machine_gone, clear),
		cmocka_unit_test_teardown(test_agent_forgot, clear),
		cmocka_unit_test_teardown(test_attach_later, clear),
		cmocka_unit_test_teardown(test_garbage, clear),
		cmocka_unit_test_teardown(test_garbage_first, clear),
		cmocka_unit_test_teardown(test_client_leaves, clear),
		cmocka_unit_test_teardown(test_background, clear),
		cmocka_unit_test_teardown(test_background_attaches_again, clear),
		cmocka_unit_test_teardown(test_background_lost, clear),
		cmocka_unit_test_teardown(test_background_stdin, clear),
		cmocka_unit_test_teardown(test_operations, clear),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
