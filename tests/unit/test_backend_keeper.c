/* The keeper's client: answers in any order, events between, bad answers, a lost keeper. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "backend_keeper.h"
#include "daemon/backend/keeper_client.h"
#include "daemon/backend/words.h"
#include "unit.h"

static const char some_id[] = "sbaaaaaaaaaaaaaaaaaaaa";

static unsigned exits, losses, returns;

static void on_exit_told(void *arg, const struct keeper_event_exit *x)
{
	if (arg != &exits || strcmp(x->id, some_id) || x->slot != 9)
		abort();
	__atomic_add_fetch(&exits, 1, __ATOMIC_SEQ_CST);
}

static void on_lost(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&losses, 1, __ATOMIC_SEQ_CST);
}

static void on_back(void *arg, const struct keeper_hello_reply *h)
{
	(void)arg;
	if (h->version != KEEPER_VERSION)
		abort();
	__atomic_add_fetch(&returns, 1, __ATOMIC_SEQ_CST);
}

static bool is_lost(void)
{
	return __atomic_load_n(&losses, __ATOMIC_SEQ_CST) > 0;
}

static bool is_back(void)
{
	return __atomic_load_n(&returns, __ATOMIC_SEQ_CST) > 0;
}

static struct keeper_client *client(void)
{
	const struct keeper_client_hooks hooks = { &exits, on_exit_told, on_lost, on_back };
	struct keeper_client *k = NULL;
	struct err e = ERR_INIT;

	exits = losses = returns = 0;
	if (keeper_client_new(fake_keeper_path, &hooks, &k, &e) < 0)
		fail_msg("%s", e.text);
	return k;
}

/* SLOT_DROP stands for a verb with an empty answer, STATS for one with a struct. */
static int call_stats(struct keeper_client *k, struct keeper_stats_reply *ret, struct err *e)
{
	struct keeper_sandbox q = { 0 };

	str_copy(q.id, sizeof(q.id), some_id);
	return keeper_client_call(k,
				  &(struct keeper_call){ .verb = KEEPER_SANDBOX_STATS,
							 .request = &q,
							 .request_size = sizeof(q),
							 .fd = -1,
							 .reply = ret,
							 .reply_size = sizeof(*ret) },
				  e);
}

static int call_slot(struct keeper_client *k, uint32_t slot, struct err *e)
{
	const struct keeper_slot q = { slot };

	return keeper_client_call(k,
				  &(struct keeper_call){ .verb = KEEPER_SLOT_DROP,
							 .request = &q,
							 .request_size = sizeof(q),
							 .fd = -1 },
				  e);
}

/* --- order --- */

enum { CALLERS = 12, ROUNDS = 100 };

/* Keeps requests until all callers wait, then answers the last first, with an event between. */
static void answer_backwards(const struct fake_request *q)
{
	static struct keeper_head held[CALLERS];
	static uint32_t slots[CALLERS];
	static unsigned count;

	held[count] = q->head;
	memcpy(&slots[count++], q->body, sizeof(slots[0]));
	if (count < CALLERS)
		return;
	while (count--) {
		if (slots[count] % 3 == 0)
			fake_keeper_exit(some_id, 9);
		if (slots[count] % 2)
			fake_keeper_fail(&held[count], -(int)(slots[count] + 1), "odd_slot", "odd");
		else
			fake_keeper_answer(&held[count], 0, NULL, 0, -1);
	}
	count = 0;
}

struct caller {
	struct keeper_client *k;
	uint32_t slot;
};

static void *call_often(void *arg)
{
	const struct caller *c = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct err e = ERR_INIT;
		int r = call_slot(c->k, c->slot, &e);

		if (r != (c->slot % 2 ? -(int)(c->slot + 1) : 0))
			return (void *)1;
		if (r && (!str_eq(e.reason, "odd_slot") || !str_eq(e.text, "odd")))
			return (void *)1;
	}
	return NULL;
}

static void test_any_order(void **state)
{
	struct keeper_client *k;
	struct caller callers[CALLERS];
	pthread_t threads[CALLERS];

	(void)state;
	fake_keeper_start(answer_backwards);
	k = client();
	for (uint32_t i = 0; i < CALLERS; i++) {
		callers[i] = (struct caller){ k, i };
		pthread_create(&threads[i], NULL, call_often, &callers[i]);
	}
	for (int i = 0; i < CALLERS; i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
	keeper_client_free(k);
	assert_int_equal(exits, CALLERS / 3 * ROUNDS);
	fake_keeper_stop();
}

/* --- answers that fit nothing: the connection ends, every caller is told, the next call works --- */

static unsigned bad_kind;
static bool bad_done;

static void answer_badly(const struct fake_request *q)
{
	struct keeper_stats_reply s = { .pids = 5 };
	struct keeper_failure f = { .reason = "x" };
	unsigned char big[4000] = { 0 };
	struct keeper_head head = q->head;
	int fd = -1;

	if (bad_done) {
		fake_keeper_answer(&q->head, 0, &s, sizeof(s), -1);
		return;
	}
	bad_done = true;
	switch (bad_kind) {
	case 0: /* short */
		fake_keeper_answer(&q->head, 0, &s, sizeof(s) - 1, -1);
		break;
	case 1: /* long */
		fake_keeper_answer(&q->head, 0, big, sizeof(s) + 8, -1);
		break;
	case 2: /* a failure without its struct */
		fake_keeper_answer(&q->head, -EIO, NULL, 0, -1);
		break;
	case 3: /* another verb's */
		head.verb = KEEPER_POOL;
		fake_keeper_answer(&head, 0, &s, sizeof(s), -1);
		break;
	case 4: /* to nobody */
		head.seq += 1000;
		fake_keeper_answer(&head, 0, &s, sizeof(s), -1);
		break;
	case 5: /* a positive status */
		fake_keeper_answer(&q->head, 7, &f, sizeof(f), -1);
		break;
	case 6: /* a text without end */
		memset(f.text, 'x', sizeof(f.text));
		fake_keeper_answer(&q->head, -EIO, &f, sizeof(f), -1);
		break;
	case 7: /* no whole head */
		fake_keeper_raw(&head, 8, -1);
		break;
	case 8: /* a size that lies */
		head.size = 500;
		fake_keeper_raw(&head, sizeof(head), -1);
		break;
	case 9: /* larger than any message */
		fake_keeper_raw(big, sizeof(big), -1);
		break;
	case 10: /* a descriptor nobody asked for */
		fd = dup(0);
		fake_keeper_answer(&q->head, 0, &s, sizeof(s), fd);
		close(fd);
		break;
	case 11: /* an unknown event */
		head = (struct keeper_head){ .verb = 99 };
		fake_keeper_raw(&head, sizeof(head), -1);
		break;
	case 12: /* an event about no id */
		fake_keeper_exit("../../etc", 9);
		break;
	case 13: /* an empty message with a descriptor */
		fd = dup(0);
		fake_keeper_raw("", 0, fd);
		close(fd);
		break;
	}
}

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 200; fd++)
		n += dup2(fd, fd) == fd;
	return n;
}

static void test_bad_answers(void **state)
{
	unsigned before = open_fds();

	(void)state;
	for (bad_kind = 0; bad_kind <= 13; bad_kind++) {
		struct keeper_stats_reply s = { .pids = 77 };
		struct keeper_client *k;
		struct err e = ERR_INIT;

		bad_done = false;
		fake_keeper_start(answer_badly);
		k = client();
		if (call_stats(k, &s, &e) != -ECONNRESET)
			fail_msg("bad answer %u was taken", bad_kind);
		assert_string_equal(e.reason, "keeper_lost");
		assert_true(e.hint[0] != '\0');
		assert_int_equal(s.pids, 77);
		assert_int_equal(call_stats(k, &s, &e), 0);
		assert_int_equal(s.pids, 5);
		keeper_client_free(k);
		fake_keeper_stop();
	}
	assert_int_equal(open_fds(), before);
}

/* --- lost and back --- */

static bool mute;

static void answer_unless_mute(const struct fake_request *q)
{
	if (!__atomic_load_n(&mute, __ATOMIC_SEQ_CST))
		fake_keeper_answer(&q->head, 0, NULL, 0, -1);
}

struct one_call {
	struct keeper_client *k;
	int result;
};

static void *call_once(void *arg)
{
	struct one_call *one = arg;
	struct err e = ERR_INIT;

	one->result = call_slot(one->k, 1, &e);
	return NULL;
}

static void test_lost_and_back(void **state)
{
	pthread_t threads[4];
	struct one_call calls[4];
	struct keeper_client *k;
	struct err e = ERR_INIT;

	(void)state;
	fake_keeper_start(answer_unless_mute);
	k = client();
	assert_int_equal(call_slot(k, 1, &e), 0);
	__atomic_store_n(&mute, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 4; i++) {
		calls[i] = (struct one_call){ .k = k };
		pthread_create(&threads[i], NULL, call_once, &calls[i]);
	}
	usleep(50000);
	fake_keeper_stop();
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(calls[i].result, -ECONNRESET);
	}
	wait_for(is_lost, "the loss is told");
	/* made while it is away: waits for it */
	__atomic_store_n(&mute, false, __ATOMIC_SEQ_CST);
	pthread_create(&threads[0], NULL, call_once, &calls[0]);
	usleep(300000);
	fake_keeper_start(answer_unless_mute);
	pthread_join(threads[0], NULL);
	assert_int_equal(calls[0].result, 0);
	wait_for(is_back, "the return is told");
	assert_int_equal(losses, 1);
	assert_int_equal(returns, 1);
	keeper_client_free(k);
	fake_keeper_stop();
}

static void test_stays_away(void **state)
{
	struct keeper_client *k;
	struct err e = ERR_INIT;
	uint64_t from;

	(void)state;
	fake_keeper_start(answer_unless_mute);
	k = client();
	fake_keeper_stop();
	wait_for(is_lost, "the loss is told");
	from = clock_mono_ns();
	assert_int_equal(call_slot(k, 1, &e), -ECONNRESET);
	assert_string_equal(e.reason, "keeper_lost");
	assert_true(clock_mono_ns() - from < 2 * KEEPER_CLIENT_WAIT_MS * NS_PER_MS);
	keeper_client_free(k);
}

static void test_refuses_another_age(void **state)
{
	const struct keeper_client_hooks hooks = { 0 };
	struct keeper_hello_reply old = fake_keeper_hello;
	struct keeper_client *k = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(keeper_client_new("no-such.sock", &hooks, &k, &e), -ENOENT);
	assert_string_equal(e.reason, "keeper_lost");
	fake_keeper_hello.version++;
	fake_keeper_start(answer_unless_mute);
	assert_int_equal(keeper_client_new(fake_keeper_path, &hooks, &k, &e), -EPROTO);
	assert_string_equal(e.reason, "keeper_mismatch");
	fake_keeper_stop();
	fake_keeper_hello = old;
	memset(fake_keeper_hello.agent_dir, 'x', sizeof(fake_keeper_hello.agent_dir));
	fake_keeper_start(answer_unless_mute);
	assert_int_equal(keeper_client_new(fake_keeper_path, &hooks, &k, &e), -EPROTO);
	fake_keeper_stop();
	fake_keeper_hello = old;
	assert_null(k);
}

static void test_words(void **state)
{
	char word[WORD_SIZE + 1];
	const char *first;

	(void)state;
	str_copy(word, sizeof(word), "disk_full");
	first = word_intern(word, "other");
	assert_ptr_not_equal(first, word);
	word[0] = 'x';
	assert_string_equal(first, "disk_full");
	assert_ptr_equal(word_intern("disk_full", "other"), first);
	assert_string_equal(word_intern("Disk full", "other"), "other");
	assert_string_equal(word_intern("", "other"), "other");
	memset(word, 'a', WORD_SIZE);
	word[WORD_SIZE] = '\0';
	assert_string_equal(word_intern(word, "other"), "other");
	for (int i = 0; i < WORDS_MAX; i++) {
		snprintf(word, sizeof(word), "word_%d", i);
		word_intern(word, "other");
	}
	assert_string_equal(word_intern("one_too_many", "other"), "other");
	assert_ptr_equal(word_intern("disk_full", "other"), first);
}

static char dir[] = "/tmp/skerry-keeper-XXXXXX";

static int setup(void **state)
{
	(void)state;
	log_open("test", LOG_ERROR);
	return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return chdir("/") || rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order),           cmocka_unit_test(test_bad_answers),
		cmocka_unit_test(test_lost_and_back),       cmocka_unit_test(test_stays_away),
		cmocka_unit_test(test_refuses_another_age), cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
