#pragma once
/*
 * The end of the sandbox: TERM to every process, commands in the reverse order of their start, KILL
 * after the grace; PID 1 exits when it has no child left, and the pid namespace with it.
 */
#include <stdint.h>

void shutdown_start(uint32_t grace_ms); /* a second one can only shorten the grace */
void shutdown_reaped(void);             /* children were reaped: perhaps the last */
