#pragma once
/* What is mounted in the sandbox, asked of the kernel and not of its /proc. */
#include <stdbool.h>

#include "wire/files.h"

/* Something is mounted below the directory whose path in the sandbox is `dir`: its path in `ret`.
 * False as well where the kernel cannot tell (before Linux 6.8). */
bool file_mount_below(const char *dir, char ret[FILE_PATH_MAX + 1]);
