#pragma once
/*
 * Commands that do one thing to every argument.
 */
#include "cli.h"

/* Calls `one` for each argument. A failure is told at once and the others are done all the same;
 * then the result is EXIT_FAILED, or the error itself where there was one argument. */
int each_arg(struct cli *c, const struct args *a,
	     int (*one)(struct cli *c, const struct args *a, const char *arg, struct err *e),
	     struct err *e);
