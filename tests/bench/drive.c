/*
 * drive RUN_DIR TAR: what a create and a command cost below skerryd. Speaks to the keeper and the
 * agents of RUN_DIR by their sockets, as skerryd does, with the layer of TAR.
 *
 * Each byte on standard input is one step, answered by a line of numbers in nanoseconds:
 *
 *   c   create a sandbox, start it, run /bin/true in it: after each of the three
 *   a   run ["/bin/true"] in the oldest sandbox
 *   b   the same as a BASH script
 *   d   destroy all but the oldest sandbox: each one's mean
 *
 * READY slots are kept prepared, and refilled behind each start without waiting, as by skerryd.
 * Run by bench.py, as root.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "wire/agent.h"
#include "wire/keeper.h"

enum { READY = 8, SLOTS = 512, SANDBOXES_MAX = 256, UNPACK_MS = 10 * 60 * 1000 };

static const char layer[] = "lybench2bench2bench2be";

static struct {
	int sock;
	uint64_t seq;
	struct keeper_hello_reply hello;
	uint64_t preparing[SLOTS]; /* the request that prepares it; 0: nothing is pending */
	unsigned next_slot, ahead; /* slots [next_slot, next_slot + ahead) were asked for */
} keeper;

static char sandboxes[SANDBOXES_MAX][ID_SIZE];
static unsigned sandboxes_count;

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "drive: %s: %s\n", what, why);
	exit(1);
}

static void check(long result, const char *what)
{
	if (result < 0)
		die(what, strerror((int)-result));
}

/* ---- the keeper ---- */

static uint64_t ask(uint32_t verb, const void *body, size_t len, int fd)
{
	char message[KEEPER_MESSAGE_MAX];
	const struct keeper_head head = { .verb = verb,
					  .size = (uint32_t)len,
					  .seq = ++keeper.seq };

	memcpy(message, &head, sizeof(head));
	if (len)
		memcpy(message + sizeof(head), body, len);
	check(send_fds(keeper.sock, message, sizeof(head) + len, &fd, fd >= 0), "ask the keeper");
	return head.seq;
}

/* Takes one message; the answer to a slot's preparation is filed here. Its sequence number. */
static uint64_t take(void *ret, size_t len)
{
	char message[KEEPER_MESSAGE_MAX];
	struct keeper_head head;
	struct keeper_failure failure = { 0 };
	int fds[FDS_MAX];
	unsigned count = 0;
	ssize_t n = recv_fds(keeper.sock, message, sizeof(message), fds, &count, 0);

	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	check(n, "read the keeper's answer");
	if ((size_t)n < sizeof(head))
		die("keeper", "the connection ended");
	memcpy(&head, message, sizeof(head));
	if (head.status) {
		if (head.size >= sizeof(failure))
			memcpy(&failure, message + sizeof(head), sizeof(failure));
		die("keeper", failure.text[0] ? failure.text : strerror(-head.status));
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		if (head.seq && keeper.preparing[i] == head.seq) {
			keeper.preparing[i] = 0;
			return 0;
		}
	}
	if (head.seq && len && head.size >= len)
		memcpy(ret, message + sizeof(head), len);
	return head.seq;
}

static void call(uint32_t verb, const void *body, size_t len, int fd, void *ret, size_t ret_len)
{
	uint64_t seq = ask(verb, body, len, fd);

	while (take(ret, ret_len) != seq)
		;
}

static void prepare_ahead(void)
{
	for (; keeper.ahead < READY; keeper.ahead++) {
		unsigned slot = (keeper.next_slot + keeper.ahead) % SLOTS;
		const struct keeper_slot s = { .slot = slot };

		keeper.preparing[slot] = ask(KEEPER_SLOT_PREPARE, &s, sizeof(s), -1);
	}
}

static unsigned take_slot(void)
{
	unsigned slot = keeper.next_slot;

	while (keeper.preparing[slot])
		take(NULL, 0);
	keeper.next_slot = (slot + 1) % SLOTS;
	keeper.ahead--;
	return slot;
}

static void greet(const char *run_dir)
{
	const struct keeper_hello hello = { .version = KEEPER_VERSION, .sizes = keeper_sizes() };
	char path[4096];

	snprintf(path, sizeof(path), "%.4000s/keeper.sock", run_dir);
	keeper.sock = unix_connect(path, SOCK_SEQPACKET);
	check(keeper.sock, path);
	call(KEEPER_HELLO, &hello, sizeof(hello), -1, &keeper.hello, sizeof(keeper.hello));
	if (keeper.hello.slots_max < SLOTS)
		die("keeper", "it has too few slots");
}

static void unpack(const char *tar)
{
	_cleanup_close_ int fd = open(tar, O_RDONLY | O_CLOEXEC);
	struct keeper_layer_create c = { .timeout_ms = UNPACK_MS };

	check(fd < 0 ? -errno : 0, tar);
	str_copy(c.layer, sizeof(c.layer), layer);
	call(KEEPER_LAYER_CREATE, &c, sizeof(c), fd, NULL, 0);
}

/* ---- the agents ---- */

static void send_run(int sock, const char *id, uint8_t runtime, char *program)
{
	char *argv[] = { program, NULL }, *env[] = { NULL };
	const struct agent_run run = {
		.id = id,
		.runtime = runtime,
		.keep = 1024 * 1024,
		.cwd = "",
		.default_cwd = "/",
		.user = "",
		.default_user = "root",
		.argv = argv,
		.env = env,
	};
	_cleanup_buf_ struct buf out = BUF_INIT(AGENT_MESSAGE_MAX);

	agent_put_hello(&out, 0);
	agent_put_run(&out, &run);
	check(out.failed, "encode the command");
	check(write_all(sock, out.data, out.len), "send the command");
}

/* Reads until a message of one type came. */
static void await(int sock, struct frame_reader *in, uint8_t type, struct message *ret)
{
	struct agent_fail f;
	int r;

	for (;;) {
		while ((r = frame_reader_next(in, ret)) == 0) {
			ssize_t n = frame_reader_fill(in, sock);

			check(n, "read from the agent");
			if (!n)
				die("agent", "the connection ended");
		}
		check(r, "read from the agent");
		if (ret->type == type)
			return;
		if (ret->type == AGENT_FAIL && !agent_get_fail(ret, &f))
			die("agent", f.text);
	}
}

static void forget(const char *path, const char *id)
{
	_cleanup_buf_ struct buf out = BUF_INIT(AGENT_MESSAGE_MAX);
	_cleanup_close_ int sock = unix_connect(path, SOCK_STREAM);
	struct frame_reader in;
	struct message m;

	frame_reader_init(&in, AGENT_MESSAGE_MAX);
	agent_put_hello(&out, 0);
	agent_put_id(&out, AGENT_FORGET, id);
	check(out.failed, "encode");
	check(sock < 0 ? sock : write_all(sock, out.data, out.len), "forget a command");
	await(sock, &in, AGENT_DONE, &m);
	frame_reader_release(&in);
}

/* Runs one command to its end. The time of that, without what is cleaned up after it. */
static uint64_t run(const char *sandbox, uint8_t runtime, char *program)
{
	char path[256], id[ID_SIZE];
	struct frame_reader in;
	struct agent_exit x;
	struct message m;
	uint64_t end;

	check(id_make("cm", id), "make an id");
	snprintf(path, sizeof(path), "%s/%s.sock", keeper.hello.agent_dir, sandbox);
	_cleanup_close_ int sock = unix_connect(path, SOCK_STREAM);
	check(sock, path);
	frame_reader_init(&in, AGENT_MESSAGE_MAX);
	send_run(sock, id, runtime, program);
	await(sock, &in, AGENT_EXIT, &m);
	end = clock_mono_ns();
	check(agent_get_exit(&m, &x), "read the command's end");
	if (x.reason != REASON_EXITED || x.code)
		die(program, "did not succeed");
	frame_reader_release(&in);
	forget(path, id);
	return end;
}

/* ---- the steps ---- */

static void start(const char *id)
{
	struct keeper_sandbox_start s = {
		.hostname = "bench",
		.machine_id = "0123456789abcdef0123456789abcdef",
		.slot = take_slot(),
		.cpu_milli = 2000,
		.pids = 4096,
		.memory_bytes = 4ull << 30,
		.disk_bytes = 1ull << 30,
		.layers_count = 1,
	};
	struct keeper_start_reply reply = { 0 };

	str_copy(s.id, sizeof(s.id), id);
	str_copy(s.layers[0], sizeof(s.layers[0]), layer);
	call(KEEPER_SANDBOX_START, &s, sizeof(s), -1, &reply, sizeof(reply));
	if (!reply.warm)
		die("keeper", "a prepared slot was not used");
	prepare_ahead();
}

static void step_create(void)
{
	struct keeper_sandbox_create c = { .disk_bytes = 1ull << 30 };
	uint64_t begin, created, started, ended;

	if (sandboxes_count == SANDBOXES_MAX)
		die("create", "too many sandboxes");
	check(id_make("sb", c.id), "make an id");
	memcpy(sandboxes[sandboxes_count++], c.id, ID_SIZE);
	begin = clock_mono_ns();
	call(KEEPER_SANDBOX_CREATE, &c, sizeof(c), -1, NULL, 0);
	created = clock_mono_ns();
	start(c.id);
	started = clock_mono_ns();
	ended = run(c.id, RUNTIME_ARGS, (char[]){ "/bin/true" });
	printf("%llu %llu %llu\n", (unsigned long long)(created - begin),
	       (unsigned long long)(started - begin), (unsigned long long)(ended - begin));
}

static void step_run(uint8_t runtime, char *program)
{
	uint64_t begin = clock_mono_ns();

	if (!sandboxes_count)
		die("run", "there is no sandbox yet");
	printf("%llu\n", (unsigned long long)(run(sandboxes[0], runtime, program) - begin));
}

static void destroy_from(unsigned first)
{
	uint64_t begin = clock_mono_ns();
	unsigned count = sandboxes_count > first ? sandboxes_count - first : 0;

	while (sandboxes_count > first) {
		struct keeper_sandbox s = { 0 };

		memcpy(s.id, sandboxes[--sandboxes_count], ID_SIZE);
		call(KEEPER_SANDBOX_DESTROY, &s, sizeof(s), -1, NULL, 0);
	}
	printf("%llu\n", (unsigned long long)((clock_mono_ns() - begin) / (count ? count : 1)));
}

int main(int argc, char **argv)
{
	char step;

	if (argc != 3) {
		fprintf(stderr, "usage: drive RUN_DIR TAR\n");
		return 2;
	}
	greet(argv[1]);
	unpack(argv[2]);
	prepare_ahead();
	printf("%s\n", layer);
	fflush(stdout);
	while (read(0, &step, 1) == 1) {
		if (step == 'c')
			step_create();
		else if (step == 'a')
			step_run(RUNTIME_ARGS, (char[]){ "/bin/true" });
		else if (step == 'b')
			step_run(RUNTIME_BASH, (char[]){ "true" });
		else if (step == 'd')
			destroy_from(1);
		fflush(stdout);
	}
	destroy_from(0);
	return 0;
}
