#pragma once
/*
 * Help, drawn from the command table.
 */
#include <stdbool.h>
#include <stdio.h>

#include "cli.h"

void help_all(void);
void help_short(FILE *out); /* what is needed most */
void help_command(const struct command *cmd);
/* The commands of a noun that stands alone or before --help; false when that is not the case. */
bool help_noun(int argc, char **argv);
