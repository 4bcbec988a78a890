#pragma once
/*
 * A client attached to a command through a WebSocket: its output as it comes, input, signals, sizes,
 * its end. The frames are told in docs/commands.md. Used by exec_socket.c and terminal.c, which
 * start or find the command; one thread, from the upgrade to the end.
 */
#include "api/request.h"
#include "api/websocket.h"
#include "sandbox/command_input.h"
#include "sandbox/exec.h"

struct attach {
	struct request *r;
	struct websocket *ws;
	struct sandbox_row sandbox;
	struct project_row project;
	struct command_row row;    /* id "": no command yet */
	struct command *live;      /* pumped here; or NULL, and … */
	struct live_viewer viewer; /* … followed in the files that somebody else fills */
	struct output_reader out[2];
	uint64_t at[2]; /* bytes of each stream that went to the client */
	struct command_input input;
	bool input_over;  /* the command takes no more */
	bool plain;       /* binary frames are bytes, without a channel */
	bool kill;        /* the command ends with this connection */
	bool told;        /* of its end */
	uint64_t wait_ns; /* a first frame must have come by then */
	/* Takes the first frame, where there is one; after it `row` is set. */
	int (*first)(struct attach *a, const char *text, size_t len, struct err *e);
};

/* The sandbox of the path runs, or why not. Fills `row` and `project`. */
int attach_sandbox(struct request *r, struct sandbox_row *row, struct project_row *project,
		   struct err *e);
/* NULL when memory is short. */
struct attach *attach_new(struct request *r, int fd, const void *early, size_t early_len);
/* `row` is there, and `live`, or `viewer` that sees it from `at` on: says so to the client. */
void attach_started(struct attach *a, const char *warning, uint64_t timeout_ms);
/* An `error` frame, and the close where nothing can follow. */
void attach_error(struct attach *a, const struct err *e, bool final);
/* To the end; releases all. */
void attach_run(struct attach *a);
