#pragma once
/*
 * The system calls no sandbox may make: a deny-list in one table, each row with its reason. The
 * boundary is the user namespace; this list takes away kernel surface that no ordinary program
 * needs, and two calls that would undo the disk limit. Compiled once in the keeper, loaded by
 * PID 1 before its exec, inherited by everything in the sandbox.
 */
#include "base/err.h"

/* Compiles the table. Call once. */
int filter_init(struct err *e);
/* Loads it into the calling process; needs CAP_SYS_ADMIN in its user namespace. */
int filter_load(void);
