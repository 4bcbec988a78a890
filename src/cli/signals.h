#pragma once
/*
 * Interruption while something is under way that must not simply die with us.
 *
 * signals_hold() blocks SIGINT, SIGTERM and SIGHUP and makes the client end its request when one
 * arrives; the caller then tidies up, and main() exits with 128 + n.
 */
#include "cli.h"

int signals_hold(struct cli *c, struct err *e);
/* Later requests are not interrupted any more: for tidying up. The signals stay blocked. */
void signals_ignore(struct cli *c);
/* The signal that arrived, 0 for none; remembered in `c->signal`. */
int signals_taken(struct cli *c);
