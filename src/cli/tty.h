#pragma once
/*
 * Our own terminal: raw while a terminal in a sandbox is shown on it, and as it was whenever we are
 * not: at every end, also by signals, and while we are stopped.
 */
#include <stdbool.h>

#include "base/err.h"

/* Standard input is a terminal and becomes raw. */
int tty_raw(struct err *e);
void tty_restore(void); /* as it was; nothing when it is not raw */
bool tty_is_raw(void);
/* We were told to stop: as it was, stopped, and raw again when continued. */
void tty_stop(void);
/* After a stop that was not asked for: raw again, where the terminal is ours. */
void tty_resume(void);
/* False when neither standard output nor standard input is a terminal. */
bool tty_size(unsigned *cols, unsigned *rows);
