#pragma once
/*
 * What to do about an error, in words of this tool. The API's own hints are for those who speak
 * HTTP; where the table knows its code, ours takes the place of theirs.
 */
#include <stdbool.h>

#include "base/err.h"

/* Puts the hint for the API's answer: `e->reason` and `status` say what it was, the request's
 * `path` which sandbox it was about. `theirs` may be NULL. */
void hint_answer(struct err *e, int status, const char *path, const char *theirs);
/* Nobody answers. `local`: on this machine. */
void hint_silence(struct err *e, bool local);
