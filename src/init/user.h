#pragma once
/*
 * Who a command runs as: /etc/passwd and /etc/group of the sandbox, read without NSS.
 *
 * Both files are the sandbox's own and hostile: only regular files are read, only so many bytes of
 * them, and no line can be longer than a buffer. Called in the command's own process, before it
 * gives up root, so that a file that never answers holds up that command and not PID 1.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	USER_NAME_SIZE = 256,
	USER_PATH_SIZE = 4096,
	USER_GROUPS_MAX = 1024,
};

struct user {
	uid_t uid;
	gid_t gid;
	char name[USER_NAME_SIZE];
	char home[USER_PATH_SIZE];
	char shell[USER_PATH_SIZE];
	gid_t groups[USER_GROUPS_MAX]; /* supplementary, the primary one included */
	size_t groups_count;
};

/* `who`: a name, or the number of a user that exists. -ENOENT when there is none; -EINVAL, -EFBIG
 * or what open(2) said when the file cannot be read. `etc`: "/etc" but in tests. */
int user_lookup(const char *etc, const char *who, struct user *ret);

/* root, as far as the file does not say otherwise. */
void user_root(struct user *ret);
