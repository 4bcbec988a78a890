/*
 * Frames: whatever the pieces they arrive in, the messages are the same, and no peer makes a reader
 * hold more than its ceiling.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "wire/bytes.h"
#include "wire/frame.h"

#include "failing_alloc.h"
#include "unit.h"

enum { CEILING = 300000 };

static char pattern[CEILING + 1];

static int make_pattern(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i * 7 + i / 251);
	return 0;
}

static const struct {
	uint8_t type;
	size_t len;
} rows[] = {
	{ 1, 0 }, { 2, 1 }, { 3, 100 }, { 255, 5 }, { 126, 0 }, { 9, 3 },
};

/* All messages of `rows`, and no more. */
static void take_rows(struct frame_reader *r, size_t *next)
{
	struct message m;
	int n;

	while ((n = frame_reader_next(r, &m)) > 0) {
		assert_true(*next < ARRAY_SIZE(rows));
		assert_int_equal(m.type, rows[*next].type);
		assert_int_equal(m.len, rows[*next].len);
		assert_memory_equal(m.data, pattern, m.len);
		++*next;
	}
	assert_int_equal(n, 0);
}

static void put_rows(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(frame_put(out, rows[i].type, pattern, rows[i].len), 0);
}

static void test_split(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

	(void)state;
	put_rows(&out);
	for (size_t cut = 0; cut <= out.len; cut++) {
		struct frame_reader r;
		size_t next = 0;

		frame_reader_init(&r, CEILING);
		assert_int_equal(frame_reader_feed(&r, out.data, cut), 0);
		take_rows(&r, &next);
		assert_int_equal(frame_reader_feed(&r, out.data + cut, out.len - cut), 0);
		take_rows(&r, &next);
		assert_int_equal(next, ARRAY_SIZE(rows));
		frame_reader_release(&r);
	}
	for (size_t step = 1; step < 20; step++) {
		struct frame_reader r;
		size_t next = 0;

		frame_reader_init(&r, CEILING);
		for (size_t at = 0; at < out.len; at += step) {
			size_t len = out.len - at < step ? out.len - at : step;

			assert_int_equal(frame_reader_feed(&r, out.data + at, len), 0);
			take_rows(&r, &next);
		}
		assert_int_equal(next, ARRAY_SIZE(rows));
		frame_reader_release(&r);
	}
}

/* Feeds what is due in pieces the reader takes, until a message or a failure. */
static int next_of(struct frame_reader *r, const struct buf *b, size_t *at, struct message *m)
{
	for (;;) {
		size_t len = b->len - *at < 30000 ? b->len - *at : 30000;
		int n = frame_reader_next(r, m);

		if (n || !len)
			return n;
		assert_int_equal(frame_reader_feed(r, b->data + *at, len), 0);
		*at += len;
	}
}

static void test_long(void **state)
{
	static const size_t lengths[] = { FRAME_MAX - 1,     FRAME_MAX,     FRAME_MAX + 1,
					  2 * FRAME_MAX - 1, 2 * FRAME_MAX, 2 * FRAME_MAX + 1,
					  CEILING - 1,       CEILING };
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 24);
	struct frame_reader r;
	struct message m;
	size_t at = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		assert_int_equal(frame_put(&out, 5, pattern, lengths[i]), 0);
		assert_int_equal(frame_put(&out, 6, "x", 1), 0);
	}
	frame_reader_init(&r, CEILING);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		assert_int_equal(next_of(&r, &out, &at, &m), 1);
		assert_int_equal(m.type, 5);
		assert_int_equal(m.len, lengths[i]);
		assert_memory_equal(m.data, pattern, m.len);
		assert_int_equal(next_of(&r, &out, &at, &m), 1);
		assert_int_equal(m.type, 6);
		assert_int_equal(m.len, 1);
	}
	assert_int_equal(next_of(&r, &out, &at, &m), 0);
	frame_reader_release(&r);
}

static void test_ceiling(void **state)
{
	static const size_t ceilings[] = { 10, 65535, 65536, 65537, CEILING };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ceilings); i++) {
		for (size_t over = 0; over < 2; over++) {
			_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
			struct frame_reader r;
			struct message m;
			size_t at = 0;

			frame_put(&out, 5, pattern, ceilings[i] + over);
			frame_reader_init(&r, ceilings[i]);
			assert_int_equal(next_of(&r, &out, &at, &m), over ? -EMSGSIZE : 1);
			/* the failure stays: nothing is read into a broken stream */
			if (over)
				assert_int_equal(frame_reader_next(&r, &m), -EMSGSIZE);
			frame_reader_release(&r);
		}
	}
}

static void put_raw(struct buf *b, uint32_t len, uint8_t type)
{
	enc_u32(b, len);
	enc_u8(b, type);
}

/* Pieces for ever: the ceiling ends it, however small they are. */
static void test_more_for_ever(void **state)
{
	static const uint32_t pieces[] = { 1, 1000, FRAME_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
		struct frame_reader r;
		struct message m;
		size_t held = 0;
		int n = 0;

		put_raw(&out, pieces[i], FRAME_MORE);
		buf_add(&out, pattern, pieces[i]);
		frame_reader_init(&r, 100000);
		while (n == 0 && held <= 200000) {
			assert_int_equal(frame_reader_feed(&r, out.data, out.len), 0);
			n = frame_reader_next(&r, &m);
			held += pieces[i];
		}
		assert_int_equal(n, -EMSGSIZE);
		assert_true(held <= 100000 + pieces[i]);
		assert_true(r.whole.cap <= 1 << 18);
		frame_reader_release(&r);
	}
}

static void test_refused(void **state)
{
	static const struct {
		uint32_t len;
		uint8_t type;
	} bad[] = {
		{ 0, 0 },          { 5, 0 },
		{ 0, FRAME_MORE }, { FRAME_MAX + 1, 1 },
		{ UINT32_MAX, 1 }, { 0x80000000u, FRAME_MORE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(100);
		struct frame_reader r;
		struct message m;

		put_raw(&out, bad[i].len, bad[i].type);
		frame_reader_init(&r, CEILING);
		assert_int_equal(frame_reader_feed(&r, out.data, out.len), 0);
		assert_int_equal(frame_reader_next(&r, &m), -EPROTO);
		assert_int_equal(frame_reader_next(&r, &m), -EPROTO);
		frame_reader_release(&r);
	}
}

static void test_fill(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct frame_reader r;
	size_t next = 0;
	int ends[2];

	(void)state;
	put_rows(&out);
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	frame_reader_init(&r, CEILING);
	assert_int_equal(frame_reader_fill(&r, ends[0]), -EAGAIN);
	assert_int_equal(write_all(ends[1], out.data, 7), 0);
	assert_int_equal(frame_reader_fill(&r, ends[0]), 7);
	take_rows(&r, &next);
	assert_int_equal(write_all(ends[1], out.data + 7, out.len - 7), 0);
	assert_int_equal(frame_reader_fill(&r, ends[0]), out.len - 7);
	take_rows(&r, &next);
	assert_int_equal(next, ARRAY_SIZE(rows));
	close(ends[1]);
	assert_int_equal(frame_reader_fill(&r, ends[0]), 0);
	close(ends[0]);
	assert_int_equal(frame_reader_fill(&r, ends[0]), -EBADF);
	frame_reader_release(&r);
}

/* A peer that sends the smallest frames costs in proportion to their bytes. */
static void test_small_frames(void **state)
{
	_cleanup_buf_ struct buf one = BUF_INIT(1 << 20), many = BUF_INIT(1 << 20);
	uint64_t spent[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct buf *b = i ? &many : &one;
		uint64_t best = UINT64_MAX;

		/* the same frames: few at a time, or as many as the reader holds */
		for (size_t n = 0; n < (i ? 52000u : 100u); n++)
			frame_put(b, 9, "", 0);
		for (int round = 0; round < 3; round++) {
			uint64_t start = clock_mono_ns();
			struct frame_reader r;
			struct message m;

			frame_reader_init(&r, CEILING);
			for (int feeds = i ? 1 : 520; feeds; feeds--) {
				assert_int_equal(frame_reader_feed(&r, b->data, b->len), 0);
				while (frame_reader_next(&r, &m) > 0)
					;
			}
			frame_reader_release(&r);
			if (clock_mono_ns() - start < best)
				best = clock_mono_ns() - start;
		}
		spent[i] = best;
	}
	if (spent[1] > 8 * spent[0])
		fail_msg("%llu us at once, %llu us in pieces", (unsigned long long)spent[1] / 1000,
			 (unsigned long long)spent[0] / 1000);
}

static void test_no_memory(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

	(void)state;
	frame_put(&out, 5, pattern, FRAME_MAX + 10);
	for (long n = 0;; n++) {
		struct frame_reader r;
		struct message m;
		int f;

		frame_reader_init(&r, CEILING);
		failing_alloc_after(n);
		f = frame_reader_feed(&r, out.data, out.len);
		if (!f)
			f = frame_reader_next(&r, &m);
		failing_alloc_after(-1);
		frame_reader_release(&r);
		if (f > 0)
			break;
		assert_int_equal(f, -ENOMEM);
		assert_true(n < 100);
	}
	buf_clear(&out);
	buf_release(&out);
	failing_alloc_after(0);
	assert_int_equal(frame_put(&out, 5, pattern, 10), -ENOMEM);
	failing_alloc_after(-1);
	assert_int_equal(frame_put(&out, 5, pattern, 10), -ENOMEM);
	assert_int_equal(out.len, 0);
}

/* Who reads on by itself takes what was read and gives back what is not its own: wherever the
 * bytes were cut, nothing is lost and nothing comes twice. */
static void test_take(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

	(void)state;
	put_rows(&out);
	for (size_t cut = 0; cut <= out.len; cut++) {
		struct frame_reader r;
		char head[FRAME_HEAD];
		size_t next = 0, got;

		frame_reader_init(&r, CEILING);
		assert_int_equal(frame_reader_feed(&r, out.data, cut), 0);
		assert_int_equal(frame_reader_ready(&r), cut >= FRAME_HEAD);
		got = frame_reader_take(&r, head, sizeof(head));
		assert_int_equal(got, cut < sizeof(head) ? cut : sizeof(head));
		assert_memory_equal(head, out.data, got);
		/* the rest of the head came past the reader */
		memcpy(head + got, out.data + got, sizeof(head) - got);
		assert_int_equal(frame_reader_give_back(&r, head, sizeof(head)), 0);
		got = cut < sizeof(head) ? sizeof(head) : cut;
		assert_int_equal(frame_reader_feed(&r, out.data + got, out.len - got), 0);
		take_rows(&r, &next);
		assert_int_equal(next, ARRAY_SIZE(rows));
		assert_false(frame_reader_ready(&r));
		assert_int_equal(frame_reader_take(&r, head, sizeof(head)), 0);
		frame_reader_release(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),        cmocka_unit_test(test_long),
		cmocka_unit_test(test_ceiling),      cmocka_unit_test(test_more_for_ever),
		cmocka_unit_test(test_refused),      cmocka_unit_test(test_fill),
		cmocka_unit_test(test_small_frames), cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_take),
	};

	return cmocka_run_group_tests(tests, make_pattern, NULL);
}
