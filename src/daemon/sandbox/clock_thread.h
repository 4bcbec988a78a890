#pragma once
/* The thread `clock`: what is due by time. Records beyond those kept, old keys and events, layers
 * that nobody uses. */
#include "base/err.h"

int clock_start(struct err *e);
