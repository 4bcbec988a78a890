#pragma once
/* A sandbox with an agent that plays what a file call meets. */
#include <stdbool.h>

#include "daemon_kit.h"
#include "sandbox/files.h"

extern char files_box[64];      /* "/sandboxes/<id>" */
extern struct agent_file asked; /* of the last call; strings are copies */
extern struct agent_go went;

int files_setup(void **state);
int files_teardown(void **state);

/* One call below the sandbox, which meets `agent`. It gets a connection whose FILE was read. */
struct kit_answer files_meet(fake_agent agent, struct kit_request q);
#define meet(agent, ...) files_meet(agent, (struct kit_request){ __VA_ARGS__ })
/* The same, which must be refused so. */
void files_refuse(fake_agent agent, unsigned status, const char *code, struct kit_request q);
#define refuse(agent, status, code, ...)                                                           \
	files_refuse(agent, status, code, (struct kit_request){ __VA_ARGS__ })

/* For agents. */
void say_entry(struct buf *out, uint8_t kind, const char *path, uint64_t size);
void say_fail(struct buf *out, uint32_t code, const char *reason, const char *text);
void say(struct fake_conn *c, struct buf *out); /* HELLO was sent */
void listen_on(struct fake_conn *c);            /* until the daemon has left */
