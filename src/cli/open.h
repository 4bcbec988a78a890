#pragma once
/*
 * Settings and client from the options of the command line. main() calls it for every command that
 * is not marked OFFLINE; those call it themselves and live with its failure.
 */
#include "cli.h"

int client_open(struct cli *c, const struct args *a, struct err *e);
/* The settings alone. */
int settings_open(struct cli *c, const struct args *a, struct err *e);
