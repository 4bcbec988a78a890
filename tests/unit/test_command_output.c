/* Kept output: head, ring, gaps, overlaps; and readers beside a writer. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"

#include "daemon/sandbox/output.h"
#include "unit.h"

#define KEEP ((uint64_t)COMMAND_KEEP)

static const char sandbox[] = "sbaaaaaaaaaaaaaaaaaaaa";
static const char id[] = "cmaaaaaaaaaaaaaaaaaaaa";
static char dir[] = "/tmp/skerry-output-XXXXXX";
static char dir_made[sizeof(dir)];

/* The byte that the stream has at an offset: no two places of the ring or head alike by chance. */
static unsigned char byte_at(uint64_t offset)
{
	offset *= 0x9e3779b97f4a7c15ull;
	return (unsigned char)(offset >> 56);
}

static void append(struct output_file *o, uint64_t offset, size_t len)
{
	unsigned char *data = malloc(len ? len : 1);

	for (size_t i = 0; i < len; i++)
		data[i] = byte_at(offset + i);
	assert_int_equal(output_append(o, offset, data, len), 0);
	free(data);
}

static struct output_view stat_view(void)
{
	struct output_view v;
	struct err e = ERR_INIT;

	assert_int_equal(output_stat(sandbox, id, 1, &v, &e), 0);
	assert_true(v.head <= v.tail_at);
	assert_true(v.tail_at <= v.total);
	return v;
}

/* Reads a range and compares each byte. */
static void check_range(uint64_t from, uint64_t to)
{
	static unsigned char data[100000];
	struct err e = ERR_INIT;

	while (from < to) {
		size_t want = to - from < sizeof(data) ? (size_t)(to - from) : sizeof(data);
		ssize_t n = output_read(sandbox, id, 1, from, data, want, &e);

		assert_int_equal(n, want);
		for (ssize_t i = 0; i < n; i++)
			if (data[i] != byte_at(from + (uint64_t)i))
				fail_msg("byte %llu is wrong", (unsigned long long)from + i);
		from += (uint64_t)n;
	}
}

static void check_view(uint64_t total, uint64_t head, uint64_t tail_at)
{
	struct output_view v = stat_view();
	struct err e = ERR_INIT;
	char c;

	assert_int_equal(v.total, total);
	assert_int_equal(v.head, head);
	assert_int_equal(v.tail_at, tail_at);
	check_range(0, v.head);
	check_range(v.tail_at, v.total);
	assert_int_equal(output_read(sandbox, id, 1, v.total, &c, 1, &e), 0);
	if (v.head < v.tail_at) {
		assert_int_equal(output_read(sandbox, id, 1, v.head, &c, 1, &e), 0);
		assert_int_equal(output_read(sandbox, id, 1, v.tail_at - 1, &c, 1, &e), 0);
	}
}

static void writes_of(size_t piece)
{
	static const uint64_t sizes[] = { 0,        1,        KEEP - 1,     KEEP,
					  KEEP + 1, 2 * KEEP, 2 * KEEP + 1, 10 * KEEP };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t total = sizes[i], at = 0;
		struct err e = ERR_INIT;
		struct output_file o;

		output_init(&o, sandbox, id, 1);
		while (at < total) {
			size_t n = total - at < piece ? (size_t)(total - at) : piece;

			append(&o, at, n);
			at += n;
		}
		assert_int_equal(output_finish(&o, total), 0);
		output_release(&o);
		check_view(total, total < KEEP ? total : KEEP,
			   total < KEEP        ? total
			   : total <= 2 * KEEP ? KEEP
					       : total - KEEP);
		assert_int_equal(output_remove(sandbox, id, &e), 0);
	}
}

static void test_boundaries(void **state)
{
	(void)state;
	writes_of(65521);        /* a frame, aligned to nothing */
	writes_of(64 * 1024);    /* divides the ring */
	writes_of(KEEP);         /* fills it at once */
	writes_of(3 * KEEP + 7); /* more than both parts hold */
}

static void test_empty_stream_has_no_file(void **state)
{
	struct output_file o;
	char path[200];

	(void)state;
	output_init(&o, sandbox, id, 1);
	assert_int_equal(output_finish(&o, 0), 0);
	output_release(&o);
	snprintf(path, sizeof(path), "%s/%s/%s.1", dir_made, sandbox, id);
	assert_int_equal(access(path, F_OK), -1);
	check_view(0, 0, 0);
}

static void test_overlap(void **state)
{
	struct err e = ERR_INIT;
	struct output_file o;

	(void)state;
	output_init(&o, sandbox, id, 1);
	append(&o, 0, 100);
	append(&o, 0, 100);  /* all known */
	append(&o, 50, 100); /* half known */
	append(&o, 149, 1);
	append(&o, 20, KEEP + 1000); /* over the end of the head */
	append(&o, KEEP - 5, KEEP + 100);
	append(&o, 0, 1);
	output_release(&o);
	check_view(2 * KEEP + 95, KEEP, KEEP + 95);
	assert_int_equal(output_remove(sandbox, id, &e), 0);
}

struct gap {
	uint64_t before, skipped, after;
};

static void test_gaps(void **state)
{
	static const struct gap gaps[] = {
		{ 0, 1, 0 },
		{ 0, 10, 5 },
		{ 10, 1, 10 },
		{ 10, KEEP, 10 },
		{ KEEP - 1, 1, 1 },
		{ KEEP, 1, 1 },
		{ KEEP + 1, 1, 1 },
		{ 10, 1, 3 * KEEP },
		{ 3 * KEEP, 5, KEEP / 2 },
		{ 10, 5, KEEP },
		{ 2 * KEEP, 7, KEEP },
		{ 5 * KEEP, 3 * KEEP, KEEP + 9 },
		{ 7, 1ull << 62, 9 },
		{ KEEP + 3, 1ull << 61, KEEP * 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
		const struct gap *g = &gaps[i];
		uint64_t from = g->before + g->skipped, total = from + g->after;
		struct err e = ERR_INIT;
		struct output_file o;

		output_init(&o, sandbox, id, 1);
		append(&o, 0, g->before);
		if (g->after)
			append(&o, from, g->after);
		assert_int_equal(output_finish(&o, total), 0);
		output_release(&o);
		check_view(total, g->before < KEEP ? g->before : KEEP,
			   g->after < KEEP ? from : total - KEEP);
		assert_int_equal(output_remove(sandbox, id, &e), 0);
	}
}

static void test_impossible_offsets(void **state)
{
	struct err e = ERR_INIT;
	struct output_file o;

	(void)state;
	output_init(&o, sandbox, id, 1);
	append(&o, 0, 10);
	assert_int_equal(output_append(&o, 1ull << 63, "x", 1), -EPROTO);
	assert_int_equal(output_append(&o, UINT64_MAX, "x", 1), -EPROTO);
	assert_int_equal(output_append(&o, (1ull << 63) - 1, "x", 1), -EPROTO);
	assert_int_equal(output_finish(&o, 9), -EPROTO);
	assert_int_equal(output_finish(&o, 1ull << 63), -EPROTO);
	assert_int_equal(output_finish(&o, 10), 0);
	output_release(&o);
	check_view(10, 10, 10);
	assert_int_equal(output_remove(sandbox, id, &e), 0);
}

static void test_random_walk(void **state)
{
	unsigned seed = 7;

	(void)state;
	for (int round = 0; round < 30; round++) {
		struct err e = ERR_INIT;
		struct output_file o;
		uint64_t end = 0;

		output_init(&o, sandbox, id, 1);
		for (int i = 0; i < 60; i++) {
			size_t len = (size_t)rand_r(&seed) % 150000;
			uint64_t at = end;

			if (rand_r(&seed) % 8 == 0)
				at += (uint64_t)rand_r(&seed) % 200000;
			else if (rand_r(&seed) % 3 == 0)
				at -= at < 70000 ? at : (uint64_t)rand_r(&seed) % 70000;
			append(&o, at, len);
			if (at + len > end)
				end = at + len;
			if (i % 7 == 0) {
				/* an earlier process stopped here */
				output_release(&o);
				output_init(&o, sandbox, id, 1);
				assert_int_equal(output_resume(&o, &e), 0);
			}
		}
		assert_int_equal(output_finish(&o, end), 0);
		output_release(&o);
		check_view(end, stat_view().head, stat_view().tail_at);
		assert_int_equal(output_remove(sandbox, id, &e), 0);
	}
}

/* A file-size limit stands in for a full disk. */
static void test_full_disk(void **state)
{
	struct rlimit old, small;
	struct output_view v;
	struct err e = ERR_INIT;
	struct output_file o;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 64 + KEEP / 2;
	setrlimit(RLIMIT_FSIZE, &small);
	output_init(&o, sandbox, id, 1);
	for (uint64_t at = 0; at < 3 * KEEP; at += 50000)
		append(&o, at, 50000);
	v = o.view;
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(v.head, KEEP / 2);
	assert_int_equal(v.tail_at, v.total);
	append(&o, v.total, 1000); /* there is room again */
	assert_int_equal(output_finish(&o, v.total + 1000), 0);
	output_release(&o);
	check_view(v.total + 1000, KEEP / 2, v.total);
	assert_int_equal(output_remove(sandbox, id, &e), 0);
}

static void test_damaged_file(void **state)
{
	unsigned char junk[64];
	struct output_view v;
	struct err e = ERR_INIT;
	struct output_file o;
	char path[200];
	int fd;

	(void)state;
	output_init(&o, sandbox, id, 1);
	append(&o, 0, 100);
	output_release(&o);
	snprintf(path, sizeof(path), "%s/%s/%s.1", dir_made, sandbox, id);
	fd = open(path, O_WRONLY);
	memset(junk, 0x5a, sizeof(junk));
	assert_int_equal(pwrite(fd, junk, sizeof(junk), 0), sizeof(junk));
	close(fd);
	assert_true(output_stat(sandbox, id, 1, &v, &e) < 0);
	assert_true(e.text[0] != '\0');
	assert_true(output_read(sandbox, id, 1, 0, junk, 1, &e) < 0);
	assert_int_equal(output_remove(sandbox, NULL, &e), 0);
	assert_int_equal(output_remove(sandbox, NULL, &e), 0);
	check_view(0, 0, 0);
}

static void test_bad_names(void **state)
{
	struct output_view v;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(output_stat("../../../etc", id, 1, &v, &e), -EINVAL);
	assert_int_equal(output_stat(sandbox, "../x", 1, &v, &e), -EINVAL);
	assert_int_equal(output_stat(sandbox, id, 3, &v, &e), -EINVAL);
	assert_int_equal(output_remove("..", NULL, &e), -EINVAL);
	assert_int_equal(output_remove(sandbox, "", &e), -EINVAL);
}

static bool writer_ended;

static void *write_much(void *arg)
{
	struct output_file *o = arg;

	for (uint64_t at = 0; at < 40 * KEEP; at += 60001) {
		append(o, at, 60001);
		if (at % 5 == 0)
			output_flush(o);
	}
	output_flush(o);
	__atomic_store_n(&writer_ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* What a reader gets is right, however the ring turns below it. */
static void test_reader_beside_writer(void **state)
{
	static unsigned char data[30000];
	struct err e = ERR_INIT;
	struct output_file o;
	pthread_t writer;
	uint64_t bytes = 0, last = 0;

	(void)state;
	output_init(&o, sandbox, id, 1);
	writer_ended = false;
	pthread_create(&writer, NULL, write_much, &o);
	while (!__atomic_load_n(&writer_ended, __ATOMIC_ACQUIRE)) {
		struct output_view v = stat_view();
		ssize_t n;

		assert_true(v.total >= last);
		last = v.total;
		n = output_read(sandbox, id, 1, v.tail_at, data, sizeof(data), &e);
		assert_true(n >= 0);
		for (ssize_t i = 0; i < n; i++)
			if (data[i] != byte_at(v.tail_at + (uint64_t)i))
				fail_msg("a byte from another place of the stream");
		bytes += (uint64_t)n;
	}
	pthread_join(writer, NULL);
	output_release(&o);
	assert_true(bytes > 0);
	assert_int_equal(output_remove(sandbox, NULL, &e), 0);
}

static int setup(void **state)
{
	char path[sizeof(dir) + 10];
	struct err e = ERR_INIT;

	(void)state;
	memcpy(dir_made, dir, sizeof(dir));
	if (!mkdtemp(dir_made))
		return -1;
	snprintf(path, sizeof(path), "%s", dir_made);
	return output_init_dir(path, &e);
}

static int teardown(void **state)
{
	(void)state;
	output_release_dir();
	return rmdir(dir_made);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boundaries),
		cmocka_unit_test(test_empty_stream_has_no_file),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_impossible_offsets),
		cmocka_unit_test(test_random_walk),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_damaged_file),
		cmocka_unit_test(test_reader_beside_writer),
		cmocka_unit_test(test_bad_names),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
