#pragma once
/*
 * One file operation, in its own process: plain blocking code from the request to its END.
 *
 * It is the sandbox's root, in the sandbox's own namespaces, and holds no descriptor but the
 * connection: whatever a path leads to is the sandbox's. It may be killed at any point.
 *
 *   file_job.c      the table of operations; what all of them send and receive
 *   file_path.c     from a path to descriptors; what a descriptor is
 *   file_proc.c     what of /proc is neither read nor written
 *   file_mounts.c   what is mounted below a directory
 *   file_names.c    names of users and groups
 *   file_target.c   where an upload goes
 *   file_ops.c      stat, make, set, move
 *   file_remove.c   remove
 *   file_list.c     list
 *   file_read.c     read of a file
 *   file_write.c    write
 *   file_pack.c     read of a directory; file_inodes.c, tar_write.c
 *   file_unpack.c   unpack
 *   file_search.c   search
 *   file_watch.c    watch: file_watch_priv.h
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/files.h"
#include "wire/frame.h"

#include "init/user.h"

struct file_job {
	int sock; /* blocking */
	struct frame_reader in;
	struct buf out; /* small messages, sent together */
	struct agent_file req;
	uid_t uid; /* whose new objects are; set by file_job_owner */
	gid_t gid;
};

/* Takes the connection over; `m` is a FILE. Never returns. */
_Noreturn void file_job_run(const struct message *m, int sock, struct frame_reader *in);

/* An operation. 0 or the flags of its END, or a negative errno with `e` set: the FAIL's errno and
 * reason ("file_failed" where none is set). -EPIPE when the peer left; nobody is told then. */
typedef int file_op_fn(struct file_job *j, struct err *e);

file_op_fn file_stat, file_make, file_set, file_move; /* file_ops.c */
file_op_fn file_remove;                               /* file_remove.c */
file_op_fn file_list;                                 /* file_list.c */
file_op_fn file_read;                                 /* file_read.c; of a directory by file_pack */
file_op_fn file_write;                                /* file_write.c */
file_op_fn file_unpack;                               /* file_unpack.c */
file_op_fn file_search;                               /* file_search.c */
file_op_fn file_watch;                                /* file_watch.c */

/* The rest of read, for the directory `dir` (the caller's): GO has come. */
int file_pack(struct file_job *j, int dir, struct err *e);

/* Puts an ENTRY for the object `leaf` in `dir` ("": `dir` itself), which is told as `path`. */
int file_put_object(struct file_job *j, int dir, const char *leaf, const char *path, struct err *e);

/* Finds the user of the request in the sandbox's own /etc/passwd: uid and gid. */
int file_job_owner(struct file_job *j, struct err *e);

/* Sends what was put into `j->out`; file_job_push only once enough has collected. 0 or -EPIPE. */
int file_job_flush(struct file_job *j);
int file_job_push(struct file_job *j);
/* One frame of data from where it lies. 0 or -EPIPE. */
int file_job_data(struct file_job *j, const void *data, size_t len);
/* Waits for the next message, after all was sent. 0 or -EPIPE, -EPROTO. */
int file_job_next(struct file_job *j, struct message *ret);
/* The client's bytes: the count, 0 at its DATA_END, -EPIPE, -EPROTO. Valid until the next call. */
ssize_t file_job_take(struct file_job *j, const void **ret);
