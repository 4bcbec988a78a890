#pragma once
/*
 * Names of users and groups of the sandbox, for many ids: its /etc/passwd and /etc/group are read
 * once, when the first name is asked for. Both are hostile, and bounded (see user.h).
 */
#include <sys/types.h>

#include "base/err.h"

/* "" where there is none. The string lives as long as the process. */
const char *file_user_name(uid_t uid);
const char *file_group_name(gid_t gid);

/* "user", "user:group", ":group": names, or numbers, which need not exist. An id that is not named
 * is -1, as chown(2) has it. */
int file_owner_parse(const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e);
