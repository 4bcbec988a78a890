#pragma once
/*
 * Signals while something is under way that must not simply die with us.
 *
 * signals_hold() blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT and makes the client end its request
 * when one arrives; the caller then tidies up, or passes the signal on, and main() exits with
 * 128 + n where `c->signal` says so. Signals that were ignored when we began stay ignored.
 */
#include "cli.h"

int signals_hold(struct cli *c, struct err *e);
/* Later requests are not interrupted any more: for tidying up. The signals stay blocked. */
void signals_ignore(struct cli *c);
/* The signal that arrived, 0 for none; remembered in `c->signal`. */
int signals_taken(struct cli *c);
/* The next one, 0 for none; not remembered. */
int signals_next(struct cli *c);

/* A descriptor for SIGWINCH, SIGTSTP and SIGCONT, blocked from now on; or a negative errno. */
int signals_terminal(struct err *e);
/* The next signal of such a descriptor, 0 for none. */
int signals_read(int fd);
