#pragma once
/*
 * Keys that leave a terminal running: a sequence looked for in what is typed. The keys are held back
 * while they may be its beginning.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { DETACH_MAX = 8 };

struct detach {
	char keys[DETACH_MAX];
	size_t n;    /* 0: there is none */
	size_t held; /* so many of them were typed */
};

/* "ctrl-p,ctrl-q": single characters, ctrl- and a letter or one of @[\]^_. NULL is fine. */
int detach_parse(struct detach *d, const char *text, struct err *e);

/* What goes on to the terminal, in `out` (room for len + DETACH_MAX bytes). True: the sequence was
 * typed; what came behind it is gone. */
bool detach_feed(struct detach *d, const char *data, size_t len, char *out, size_t *ret_len);
