#pragma once
/*
 * Which commands somebody pumps right now. Whoever pumps one writes its end, so the lifecycle and
 * the reconciliation leave those alone; and a client can wait for an end without asking the
 * database in a circle. Callable from any thread.
 */
#include <stdbool.h>

int live_add(const char *id);
void live_remove(const char *id); /* wakes those who wait */
bool live_has(const char *id);
/* Until this command is gone from here, or the time has passed. */
void live_wait(const char *id, int ms);
