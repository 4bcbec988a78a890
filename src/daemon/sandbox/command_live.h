#pragma once
/*
 * A live command, for the command_* files only. One thread at a time drives it: it calls
 * command_turn when the connection's descriptor has something, when `wake_ns` has come, and once
 * at first; what to wait for is asked anew after each turn, as the connection may be another one.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#include "daemon/sandbox/command.h"
#include "daemon/sandbox/command_conn.h"
#include "daemon/sandbox/live.h"
#include "daemon/sandbox/output.h"

enum command_state {
	LIVE_ASKED,   /* RUN or ATTACH is sent, STARTED must come by `answer_ns` */
	LIVE_RUNNING, /* STARTED came on this connection */
	LIVE_BROKEN,  /* no connection; the next is tried at `retry_ns` */
	LIVE_ENDED,   /* `result` is final */
};

struct command {
	char sandbox[ID_SIZE];
	char id[ID_SIZE];
	enum command_state state;
	struct agent_conn conn;
	struct output_file out[2];
	uint64_t acked[2];
	struct live_hold hold; /* by those who read the files */
	uint64_t ack_ns;       /* an ACK is due then; UINT64_MAX: none */
	uint64_t answer_ns;    /* ASKED */
	uint64_t retry_ns;     /* BROKEN */
	uint64_t connected_ns; /* when the connection was made */
	unsigned retry_ms;     /* the last delay */
	char *stdin_data;      /* not sent yet, from stdin_at; NULL: nothing */
	size_t stdin_at, stdin_len;
	uint64_t stdin_sent, stdin_acked; /* bytes of STDIN on this connection */
	struct command_result result;
	command_sink *sink;
	void *sink_arg;

	/* the watch thread's */
	void (*done)(void *arg, const char *sandbox, const char *id,
		     const struct command_result *result);
	void *done_arg;
	int watched_fd; /* in its epoll set; -1: none */
	short watched_events;
	struct command *next, **prev;
};

/* The watch thread, in command_watch.c. */
int command_watch_start(struct err *e);
void command_watch_stop(void);
