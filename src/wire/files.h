#pragma once
/*
 * Files, in the agent protocol (agent.h): one connection per operation, FILE first.
 *
 *   operation        client sends                        agent answers
 *   list             FILE                                ENTRY… END
 *   stat make set
 *   move             FILE                                ENTRY END
 *   remove           FILE                                END
 *   read             FILE GO                             ENTRY, after GO: DATA… END
 *   write unpack     FILE DATA… DATA_END                 READY, after DATA_END: ENTRY END
 *   search           FILE                                MATCH… END
 *   watch            FILE                                READY EVENT…, END when the root is gone
 *
 * FAIL may come instead of each of these, and ends the operation. It comes before all the client
 * sends was read, too: whoever writes looks for it, and stops. A client that closes its sending side
 * before GO or DATA_END has given up: nothing is left of what it began. Nothing is acknowledged and
 * there is no window: the socket is the window, and each operation has a process of its own in the
 * sandbox, which waits for its peer and is ended when the peer leaves.
 *
 * Paths are bytes without NUL, begin with "/", and are resolved in the sandbox by its kernel.
 * A FAIL's code is the errno; its reason is "file_failed" or one of those the operation names.
 *
 *   read      of a directory: its content as a tar, names relative to it; GO is empty then
 *   write     to a temporary name, which is synced and renamed, where that can be: see FILE_IN_PLACE
 *   unpack    a tar, below a directory that exists or is made
 *   list      in the order of their names' bytes, a directory before what it holds; those after
 *             `cursor`, `limit` of them; END says FILE_MORE where there are more
 *   search    END says FILE_MORE where a bound (limit, time, size) left something out
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/agent.h"
#include "wire/frame.h"

enum {
	FILE_PATH_MAX = 4095, /* bytes of a path; of an entry's below a listed directory too */
	FILE_NAME_MAX = 255,
	FILE_TEXT_MAX = 1024, /* bytes of a text to search for, and of a line that has it */
	FILE_LIMIT_MAX = 10000,
	FILE_DATA_MAX = FRAME_MAX,
};

enum file_type {
	AGENT_FILE = 32,
	AGENT_GO,
	AGENT_DATA, /* either way */
	AGENT_DATA_END,

	AGENT_READY = 96,
	AGENT_ENTRY,
	AGENT_MATCH,
	AGENT_EVENT,
	AGENT_END,
};

enum file_op {
	FILE_LIST = 1,
	FILE_STAT,
	FILE_MAKE, /* a directory */
	FILE_SET,  /* mode, owner */
	FILE_REMOVE,
	FILE_MOVE,
	FILE_READ,
	FILE_WRITE,
	FILE_UNPACK,
	FILE_SEARCH,
	FILE_WATCH,
	FILE_OPS_END,
};

enum file_flag {
	FILE_RECURSIVE = 1u << 0, /* list: what lies below too; links are not followed */
	FILE_PARENTS = 1u << 1,   /* make, write, unpack: missing parents; make: may exist */
	FILE_OVERWRITE = 1u << 2, /* move: what stands at `to` goes, as rename(2) has it */
	FILE_HAS_MODE = 1u << 3,  /* write, make, set: `mode` counts */
};

/* What to do. Strings belong to the message it was decoded from. */
struct agent_file {
	uint8_t op;     /* enum file_op */
	uint32_t flags; /* enum file_flag */
	uint32_t mode;  /* 0–07777 */
	uint32_t limit; /* list, search: 1–FILE_LIMIT_MAX; else 0 */
	const char *path;
	const char *to;   /* move: path; list: the cursor, a path relative to `path`; else "" */
	const char *user; /* whose new objects are: name or uid, must exist; "" = default_user */
	const char *default_user; /* falls back to root */
	const char *owner; /* set: "user", "user:group", ":group", names or numbers; "" = keep */
	const char *name;  /* search: glob of names, "" = any */
	const char *text;  /* search: bytes a line has, "" = names only */
};

struct agent_go {
	uint64_t offset, length; /* of the bytes wanted; past the end: those that are there */
};

enum entry_kind {
	ENTRY_FILE = 1,
	ENTRY_DIR,
	ENTRY_LINK,
	ENTRY_FIFO,
	ENTRY_SOCKET,
	ENTRY_CHAR,
	ENTRY_BLOCK,
};

struct agent_entry {
	uint8_t kind;     /* enum entry_kind, of the object itself */
	uint8_t leads_to; /* of a link's target, ENTRY_FILE where that is missing; else `kind` */
	uint32_t mode;    /* 0–07777 */
	uint32_t uid, gid;
	uint64_t size;     /* bytes; of a link that of its target, 0 where that is missing */
	int64_t mtime_ns;  /* since 1970 */
	const char *path;  /* list: relative to the listed directory; else absolute */
	const char *owner; /* the user's name, "" where it has none */
	const char *group;
	const char *target; /* link: what it holds, "" where that is not to be known; else "" */
};

struct agent_match {
	const char *path; /* absolute */
	uint64_t line;    /* from 1; 0: the name matched, and no text was asked for */
	const void *text; /* the line without its end, at most FILE_TEXT_MAX bytes of it */
	size_t text_len;
};

enum file_change {
	CHANGE_CREATED = 1,
	CHANGE_MODIFIED, /* content */
	CHANGE_ATTRIBUTES,
	CHANGE_DELETED,
	CHANGE_MOVED,    /* from `from` to `path`; one that came or left is created or deleted */
	CHANGE_OVERFLOW, /* what happened meanwhile is not known: look again; no paths */
};

struct agent_event {
	uint8_t change;          /* enum file_change */
	uint8_t dir;             /* 0, 1: it is a directory */
	const char *path, *from; /* absolute */
};

enum end_flag { FILE_MORE = 1u << 0 };

/* Each appends one whole message; failure is `out->failed`. The others of agent.h serve here too:
 * agent_put_empty for READY and DATA_END, agent_put_fail. */
void file_put_request(struct buf *out, const struct agent_file *f);
void file_put_go(struct buf *out, const struct agent_go *g);
void file_put_data(struct buf *out, const void *data, size_t len); /* at most FILE_DATA_MAX */
void file_put_entry(struct buf *out, const struct agent_entry *n);
void file_put_match(struct buf *out, const struct agent_match *m);
void file_put_event(struct buf *out, const struct agent_event *v);
void file_put_end(struct buf *out, uint32_t flags);

/* Each reads one message of the type in its name: 0, or -EPROTO for what no honest peer sends. */
int file_get_request(const struct message *m, struct agent_file *ret);
int file_get_go(const struct message *m, struct agent_go *ret);
int file_get_entry(const struct message *m, struct agent_entry *ret);
int file_get_match(const struct message *m, struct agent_match *ret);
int file_get_event(const struct message *m, struct agent_event *ret);
int file_get_end(const struct message *m, uint32_t *ret_flags);
