#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "init/outbuf.h"
#include "unit.h"

/* What byte `offset` of a stream is. */
static char byte_at(uint64_t offset)
{
	return (char)(offset * 131 + (offset >> 8) * 17 + (offset >> 16));
}

/* As a reader does: into the room there is, and the rest behind it. Every other time, or all would be
 * put one way. */
static size_t fill_room(struct outbuf *b, size_t len)
{
	static unsigned calls;
	size_t room = 0;
	char *to = calls++ % 2 ? outbuf_room(b, &room) : NULL;

	if (!to)
		return 0;
	assert_true(room > 0);
	room = room < len ? room : len;
	for (size_t i = 0; i < room; i++)
		to[i] = byte_at(b->total + i);
	if (room)
		outbuf_commit(b, room);
	return room;
}

static void append(struct outbuf *b, size_t len)
{
	char *data = malloc(len + 1);

	assert_non_null(data);
	len -= fill_room(b, len);
	for (size_t i = 0; i < len; i++)
		data[i] = byte_at(b->total + i);
	outbuf_append(b, data, len);
	free(data);
}

/* Sends everything there is in pieces of at most `most`; the bytes sent, and where gaps were. */
static uint64_t send_all(struct outbuf *b, size_t most, uint64_t *gap_from, uint64_t *gap_to)
{
	uint64_t sent = 0, offset, next = b->sent;
	const void *data;
	size_t n;

	while ((n = outbuf_peek(b, most, &offset, &data))) {
		assert_true(n <= most);
		assert_true(offset >= next);
		if (offset > next && gap_from) {
			*gap_from = next;
			*gap_to = offset;
		}
		for (size_t i = 0; i < n; i++)
			assert_int_equal(((const char *)data)[i], byte_at(offset + i));
		outbuf_sent(b, offset, n);
		next = offset + n;
		sent += n;
	}
	return sent;
}

static void test_all_arrives(void **state)
{
	struct outbuf b;
	uint64_t sent = 0;

	(void)state;
	outbuf_init(&b, 1000);
	for (size_t i = 0; i < 3000; i++) {
		append(&b, i % 97 * (i % 5 ? 1 : 200));
		if (i % 7 == 0) {
			sent += send_all(&b, 1 + i % 5000, NULL, NULL);
			assert_int_equal(outbuf_ack(&b, sent - sent % 3), 0);
			assert_int_equal(b.unacked, sent % 3);
			assert_int_equal(outbuf_held(&b), sent % 3);
		}
	}
	sent += send_all(&b, 65536, NULL, NULL);
	assert_int_equal(sent, b.total);
	assert_int_equal(b.dropped, 0);
	assert_int_equal(outbuf_ack(&b, sent + 1), -EINVAL);
	assert_int_equal(outbuf_ack(&b, sent), 0);
	assert_int_equal(outbuf_memory(), 0);
	outbuf_release(&b);
}

static void test_head_and_tail(void **state)
{
	struct outbuf b;
	uint64_t from = 0, to = 0;

	(void)state;
	outbuf_init(&b, 5000);
	outbuf_detach(&b);
	for (int i = 0; i < 1000; i++)
		append(&b, 777);
	assert_int_equal(b.total, 777000);
	assert_int_equal(outbuf_held(&b), 10000);
	assert_int_equal(b.dropped, 767000);
	assert_int_equal(outbuf_attach(&b, 0), 0);
	assert_int_equal(send_all(&b, 65536, &from, &to), 10000);
	assert_int_equal(from, 5000);
	assert_int_equal(to, 772000);
	outbuf_release(&b);
	assert_int_equal(outbuf_memory(), 0);
}

static void test_detach_keeps_what_was_not_acknowledged(void **state)
{
	struct outbuf b;

	(void)state;
	outbuf_init(&b, 100);
	append(&b, 500);
	assert_int_equal(send_all(&b, 300, NULL, NULL), 500);
	assert_int_equal(outbuf_ack(&b, 450), 0);
	outbuf_detach(&b);
	append(&b, 30);
	/* the client has 480 of them, more than it ever acknowledged */
	assert_int_equal(outbuf_attach(&b, 480), 0);
	assert_int_equal(send_all(&b, 300, NULL, NULL), 50);
	assert_int_equal(b.dropped, 0);
	/* it says it has less than it acknowledged: from the earliest byte held */
	outbuf_detach(&b);
	assert_int_equal(outbuf_attach(&b, 10), 0);
	assert_int_equal(send_all(&b, 300, NULL, NULL), 50);
	assert_int_equal(outbuf_attach(&b, 531), -EINVAL);
	outbuf_release(&b);
}

static void test_nothing_kept(void **state)
{
	struct outbuf b;

	(void)state;
	outbuf_init(&b, 0);
	append(&b, 10);
	outbuf_detach(&b);
	append(&b, 100000);
	assert_int_equal(b.dropped, 100010);
	assert_int_equal(outbuf_memory(), 0);
	assert_int_equal(outbuf_attach(&b, 0), 0);
	append(&b, 5);
	assert_int_equal(send_all(&b, 10, NULL, NULL), 5);
	outbuf_release(&b);
}

static void test_drop(void **state)
{
	struct outbuf b;

	(void)state;
	outbuf_init(&b, 1000);
	outbuf_detach(&b);
	append(&b, 5000);
	assert_int_equal(outbuf_drop_tail(&b), 1000);
	assert_int_equal(outbuf_held(&b), 1000);
	append(&b, 10);
	assert_int_equal(outbuf_drop_head(&b), 1000);
	assert_int_equal(b.dropped, 5000);
	assert_int_equal(outbuf_held(&b), 10);
	outbuf_release(&b);
	assert_int_equal(outbuf_memory(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_arrives),
		cmocka_unit_test(test_head_and_tail),
		cmocka_unit_test(test_detach_keeps_what_was_not_acknowledged),
		cmocka_unit_test(test_nothing_kept),
		cmocka_unit_test(test_drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
