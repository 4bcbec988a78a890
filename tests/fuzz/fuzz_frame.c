/*
 * The frame reader and every decoder of the agent protocol. The first byte says in what pieces the
 * stream arrives. Each message goes to every decoder, whatever its type says: the type is the
 * peer's word too.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "wire/agent.h"
#include "wire/files.h"

#include "fuzz.h"

static void text(const char *s)
{
	fuzz_touch(s, strlen(s));
}

static void exit_sane(const struct agent_exit *x)
{
	assert(x->reason >= REASON_EXITED && x->reason < REASON_LOST);
	assert(x->dropped[0] <= x->total[0] && x->dropped[1] <= x->total[1]);
	assert(x->oom <= 1);
}

static void try_run(const struct message *m)
{
	struct agent_run run;

	if (agent_get_run(m, &run) < 0)
		return;
	assert(run.argv[0] && id_valid(run.id, NULL));
	text(run.cwd);
	text(run.default_cwd);
	text(run.user);
	text(run.default_user);
	for (char **s = run.argv; *s; s++)
		text(*s);
	for (char **s = run.env; *s; s++)
		text(*s);
	agent_run_release(&run);
}

static void try_all(const struct message *m)
{
	struct agent_hello hello;
	struct agent_attach attach;
	struct agent_signal signal;
	struct agent_ack ack;
	struct agent_started started;
	struct agent_output output;
	struct agent_exit end;
	struct agent_fail fail;
	struct agent_command command;
	uint64_t taken;
	uint32_t grace;
	const char *id;

	if (agent_get_hello(m, &hello) == 0)
		agent_hello_check(&hello);
	try_run(m);
	if (agent_get_attach(m, &attach) == 0)
		assert(id_valid(attach.id, NULL));
	if (agent_get_signal(m, &signal) == 0)
		assert(signal.signal >= 1 && signal.signal <= 64);
	agent_get_ack(m, &ack);
	if (agent_get_stdin_ack(m, 10, 1 << 20, &taken) == 0)
		assert(taken >= 10 && taken <= 1 << 20);
	agent_get_stop(m, &grace);
	if (agent_get_id(m, &id) == 0)
		assert(id_valid(id, NULL));
	if (agent_get_started(m, &started) == 0) {
		text(started.cwd);
		text(started.user);
		text(started.warning);
	}
	if (agent_get_output(m, &output) == 0)
		fuzz_touch(output.data, output.len);
	if (agent_get_exit(m, &end) == 0)
		exit_sane(&end);
	if (agent_get_fail(m, &fail) == 0) {
		text(fail.reason);
		text(fail.field);
		text(fail.text);
	}
	if (agent_get_command(m, &command) == 0 && command.ended)
		exit_sane(&command.exit);
}

static void try_request(const struct message *m)
{
	struct agent_file f;

	if (file_get_request(m, &f) < 0)
		return;
	assert(f.op >= FILE_LIST && f.op < FILE_OPS_END && f.path[0] == '/' && f.mode <= 07777);
	assert(f.limit <= FILE_LIMIT_MAX);
	assert(strlen(f.path) <= FILE_PATH_MAX && strlen(f.text) <= FILE_TEXT_MAX);
	text(f.to);
	text(f.user);
	text(f.default_user);
	text(f.owner);
	text(f.name);
}

static void try_entry(const struct message *m)
{
	struct agent_entry n;

	if (file_get_entry(m, &n) < 0)
		return;
	assert(n.kind >= ENTRY_FILE && n.kind <= ENTRY_BLOCK && n.leads_to != ENTRY_LINK);
	assert(n.mode <= 07777 && n.size <= INT64_MAX && n.path[0]);
	text(n.path);
	text(n.owner);
	text(n.group);
	text(n.target);
}

static void try_files(const struct message *m)
{
	struct agent_go go;
	struct agent_match match;
	struct agent_event event;
	uint32_t flags;

	try_request(m);
	try_entry(m);
	if (file_get_go(m, &go) == 0)
		assert(go.offset <= INT64_MAX && go.length <= INT64_MAX);
	if (file_get_match(m, &match) == 0) {
		assert(match.path[0] == '/' && match.text_len <= FILE_TEXT_MAX);
		fuzz_touch(match.text, match.text_len);
	}
	if (file_get_event(m, &event) == 0) {
		assert(event.change >= CHANGE_CREATED && event.change <= CHANGE_OVERFLOW);
		text(event.path);
		text(event.from);
	}
	if (file_get_end(m, &flags) == 0)
		assert(!(flags & ~(uint32_t)FILE_MORE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum { CEILING = 256 * 1024 };
	struct frame_reader r;
	size_t step;

	if (size < 1)
		return 0;
	step = data[0] ? data[0] : size;
	data++;
	size--;
	frame_reader_init(&r, CEILING);
	while (size) {
		size_t len = size < step ? size : step;
		struct message m;
		int n;

		if (frame_reader_feed(&r, data, len) < 0)
			break;
		while ((n = frame_reader_next(&r, &m)) > 0) {
			assert(m.len <= CEILING && m.type != 0 && m.type != FRAME_MORE);
			fuzz_touch(m.data, m.len);
			try_all(&m);
			try_files(&m);
		}
		if (n < 0)
			break;
		data += len;
		size -= len;
	}
	frame_reader_release(&r);
	return 0;
}
