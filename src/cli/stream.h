#pragma once
/*
 * A command whose streams are ours while it runs: output as it comes, our standard input to it,
 * signals passed on, a terminal that follows ours. A connection that breaks is taken up again where
 * it broke: no byte comes twice, none is left out without a word.
 */
#include "base/buf.h"

#include "api.h"
#include "detach.h"

struct stream_spec {
	const char *sandbox;
	const char *path;     /* the WebSocket that starts it, or attaches to it at first */
	const json_t *first;  /* the first frame; NULL: a terminal, whose frames are plain bytes */
	bool tty;             /* it has the size of ours */
	bool input;           /* our standard input is passed on */
	struct detach detach; /* keys that leave it running */
	bool replayed;        /* what comes first is not what the command wrote first */
};

/* Returns the exit code to end with, or a negative errno. */
int stream_run(struct cli *c, const struct stream_spec *spec, struct err *e);
