#pragma once
/*
 * From a path of the caller's to descriptors, by the sandbox's own kernel and in its own root.
 *
 * Links are followed, where the call says so, as any program inside would follow them; magic links
 * of /proc are not, so that none leads to what this process holds. Opening never waits (FIFOs) and has
 * no effect (devices): what is opened is a regular file or a directory, or an error.
 *
 * Errors carry the errno and name the path, quoted.
 */
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "wire/files.h"

/* openat2 with close-on-exec and without magic links; `resolve` adds to that. */
int file_openat(int dir, const char *path, int flags, mode_t mode, unsigned resolve);

/* A path as its directory ("." where it has none) and its last component; trailing slashes do not
 * count. -EINVAL where that is "", "." or "..", -ENAMETOOLONG. */
int file_split(const char *path, char ret_parent[FILE_PATH_MAX + 1],
	       char ret_leaf[FILE_NAME_MAX + 1]);

/* "<what> '<path>': <strerror>" */
int file_err(struct err *e, int code, const char *what, const char *path);

/* O_PATH descriptor of the parent directory of `path` (its links followed), and its last component.
 * -EINVAL where there is none ("/", "..", "." at the end). The caller owns the descriptor. */
int file_parent(const char *path, char ret_leaf[FILE_NAME_MAX + 1], struct err *e);
/* The same; missing directories are made, 0755, owned by `uid` and `gid`. */
int file_parent_make(const char *path, uid_t uid, gid_t gid, char ret_leaf[FILE_NAME_MAX + 1],
		     struct err *e);

/* Where the object that `path` leads to stands, links followed: O_PATH of its directory, and its name
 * there, which nothing may have. -EISDIR where it has none ("/", "..", "." at the end), -ELOOP for
 * magic links too. `dir`: what a relative path begins at, the caller's. */
int file_resolve(int dir, const char *path, char ret_leaf[FILE_NAME_MAX + 1]);

/* O_PATH descriptor of a directory, made with all above it where it is missing. */
int file_make_way(const char *path, uid_t uid, gid_t gid);

/* The object itself, links followed or (`follow` false) a link at the end not: an O_PATH
 * descriptor, its status in `ret`. */
int file_find(const char *path, bool follow, struct stat *ret, struct err *e);

/* Opened to be read: O_RDONLY of a regular file or directory, found at `path` or below `dir`
 * (AT_FDCWD: an absolute path). -EINVAL "not a regular file or directory" for all else, -EPERM for
 * what this process itself has in /proc. With O_NOFOLLOW in `flags` a link at the end is ELOOP. */
int file_open(int dir, const char *path, int flags, struct stat *ret, struct err *e);

/* Fills `ret` for the object `name` in `dir` (name "": `dir` itself), as it is told under `path`,
 * whose strings live until the next call. 0 or a negative errno. */
int file_entry(int dir, const char *name, const char *path, struct agent_entry *ret);

/* A text for errors: control characters and what is not UTF-8 escaped, cut where it is long. */
enum { FILE_QUOTED_SIZE = 160 };
const char *file_quote(const char *path, char ret[FILE_QUOTED_SIZE]);
