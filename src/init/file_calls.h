#pragma once
/*
 * File operations, as PID 1 sees them: each has a process of its own, forked from PID 1, which takes
 * over the connection and speaks to its peer to the end. It lives beside the workload and not under
 * its limits. What it does can hang (a file system of the sandbox's own that never answers); then
 * it hangs alone, and is ended when its peer leaves.
 *
 * PID 1 keeps a copy of the connection's descriptor only to see the peer leave.
 */
#include <sys/types.h>

#include "base/err.h"
#include "wire/files.h"

enum {
	FILE_CALLS_MAX = 64,  /* at one time */
	FILE_LEAVE_MS = 2000, /* for an operation whose peer has left to clean up behind itself */
};

struct file_call;

/* Starts the operation `m` asks for, which speaks on `sock`; `in` has what came after it. The call,
 * whose `gone` is called once when the process has ended, or NULL with `e` set. */
struct file_call *file_call_start(const struct message *m, int sock, struct frame_reader *in,
				  void (*gone)(void *arg), void *arg, struct err *e);
/* The peer has left. */
void file_call_leave(struct file_call *c);
/* Nobody is to be told any more; the process is ended. */
void file_call_forget(struct file_call *c);

/* Called for every child that was reaped. */
void file_call_reaped(pid_t pid);
