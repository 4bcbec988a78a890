/* What the kernel of a sandbox says of a file, in the words of the API. Never a fault of ours. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "sandbox/files.h"

static const struct {
	int from;           /* the agent's errno */
	int code;           /* the API's: see api/errors.c */
	const char *reason; /* for clients */
} table[] = {
	{ ENOENT, ENOENT, "file_not_found" },
	{ EEXIST, EEXIST, "file_exists" },
	{ ENOTDIR, EBUSY, "not_a_directory" },
	{ EISDIR, EBUSY, "is_a_directory" },
	{ ENOTEMPTY, EBUSY, "not_empty" },
	{ EXDEV, EBUSY, "cross_device" },
	{ EBUSY, EBUSY, "busy" },
	{ ETXTBSY, EBUSY, "text_busy" },
	{ EACCES, EACCES, "permission_denied" },
	{ EPERM, EACCES, "permission_denied" },
	{ EROFS, EACCES, "read_only" },
	{ ELOOP, EINVAL, "too_many_links" },
	{ EINVAL, EINVAL, "invalid_argument" },
	{ ENAMETOOLONG, EINVAL, "name_too_long" },
	{ EFBIG, EFBIG, "file_too_large" },
	{ ENOSPC, ENOSPC, "disk_full" },
	{ EDQUOT, ENOSPC, "disk_full" },
};

/* Those that the agent names: a name tells more than the errno. */
static const struct {
	const char *reason;
	int code;
} named[] = {
	{ "bad_archive", EINVAL },
	{ "too_many_file_calls", EUSERS },
	{ "user_invalid", EINVAL },
	{ "user_not_found", EINVAL },
};

int files_refused(const struct message *fail, struct err *e)
{
	int from = -agent_fail_err(fail, e);

	e->cause = strerrorname_np(from);
	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		if (str_eq(e->reason, named[i].reason)) {
			e->code = named[i].code;
			return -e->code;
		}
	}
	e->code = EBUSY;
	e->reason = "file_failed";
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].from == from) {
			e->code = table[i].code;
			e->reason = table[i].reason;
		}
	}
	return -e->code;
}
