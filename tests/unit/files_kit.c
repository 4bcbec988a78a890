#include "files_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

#include "unit.h"

char files_box[64];
struct agent_file asked;
struct agent_go went;

static char kept[11][FILE_PATH_MAX + 1];
static fake_agent playing;

int files_setup(void **state)
{
	json_t *made;

	(void)state;
	kit_open();
	made = kit_want(201, "POST", "/sandboxes", "{\"name\":\"box\"}");
	snprintf(files_box, sizeof(files_box), "/sandboxes/%s",
		 json_string_value(json_object_get(made, "id")));
	assert_string_equal(json_string_value(json_object_get(made, "status")), "RUNNING");
	json_decref(made);
	return 0;
}

int files_teardown(void **state)
{
	(void)state;
	files_set_silence(0);
	kit_close();
	return 0;
}

static const char *keep(unsigned i, const char *s)
{
	return str_copy(kept[i], sizeof(kept[i]), s) ? kept[i] : "";
}

static void play(struct fake_conn *c)
{
	struct buf hello = BUF_INIT(1024);

	if (c->m.type != AGENT_FILE || file_get_request(&c->m, &asked) < 0)
		abort();
	asked.path = keep(0, asked.path);
	asked.to = keep(1, asked.to);
	asked.user = keep(2, asked.user);
	asked.default_user = keep(3, asked.default_user);
	asked.owner = keep(4, asked.owner);
	asked.name = keep(5, asked.name);
	asked.text = keep(6, asked.text);
	fake_hello(&hello);
	fake_send(c, &hello);
	playing(c);
}

struct kit_answer files_meet(fake_agent agent, struct kit_request q)
{
	char path[16384];
	struct kit_answer a;

	playing = agent;
	fake_play(play, NULL, true);
	snprintf(path, sizeof(path), "%s%s", files_box, q.path);
	q.path = path;
	a = kit_call(&q);
	fake_reset();
	return a;
}

void files_refuse(fake_agent agent, unsigned status, const char *code, struct kit_request q)
{
	struct kit_answer a = files_meet(agent, q);

	if (a.status != status || strcmp(kit_code(a.json), code) != 0)
		fail_msg("%s %s: %u %s instead of %u %s", q.method, q.path, a.status,
			 kit_code(a.json), status, code);
	kit_free(&a);
}

void say_entry(struct buf *out, uint8_t kind, const char *path, uint64_t size)
{
	file_put_entry(out, &(struct agent_entry){
				    .kind = kind,
				    .leads_to = kind == ENTRY_LINK ? ENTRY_FILE : kind,
				    .mode = 0644,
				    .uid = 1000,
				    .gid = 1000,
				    .size = size,
				    .mtime_ns = 1700000000123456789,
				    .path = path,
				    .owner = "skerry",
				    .group = "",
				    .target = kind == ENTRY_LINK ? "else" : "",
			    });
}

void say_fail(struct buf *out, uint32_t code, const char *reason, const char *text)
{
	agent_put_fail(out, &(struct agent_fail){
				    .code = code, .reason = reason, .field = "", .text = text });
}

void say(struct fake_conn *c, struct buf *out)
{
	fake_send(c, out);
}

void listen_on(struct fake_conn *c)
{
	while (fake_next(c))
		;
}
