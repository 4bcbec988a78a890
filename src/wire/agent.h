#pragma once
/*
 * The agent protocol: skerryd speaks to skerry-init, one Unix stream connection per operation.
 *
 * Each side sends HELLO first, without waiting for the other's; the client's operation may follow
 * in the same write. An agent outlives upgrades of the host, so skerryd speaks to every agent whose
 * [oldest, version] overlaps its own; new fields go to the end of a message and are read only when
 * the HELLO's version has them. To the agent skerryd is the host; to skerryd the agent is hostile:
 * everything it sends is checked here, and what it claims about itself is only ever shown to the
 * owner of that sandbox.
 *
 *   operation     client sends                        agent answers
 *   run           RUN [STDIN… STDIN_EOF] ACK…         STARTED [OUTPUT STDIN_ACK]… EXIT, or FAIL
 *   attach        ATTACH [STDIN… STDIN_EOF] ACK…      STARTED [OUTPUT STDIN_ACK]… EXIT, or FAIL
 *   input         INPUT STDIN… [STDIN_EOF]            DONE (all is taken over) or FAIL
 *   signal        SIGNAL                              DONE or FAIL
 *   resize        RESIZE                              DONE or FAIL
 *   terminate     TERMINATE                           DONE (once the tree is gone) or FAIL
 *   list          LIST                                COMMAND… DONE
 *   forget        FORGET                              DONE or FAIL
 *   stop          STOP                                DONE, then the sandbox ends
 *   files         see files.h
 *
 * A client that leaves before STARTED has given up: what has not been executed by then is not run.
 *
 * A command belongs to the sandbox, not to its connection: when the connection ends, the command
 * runs on, and its output is kept in the agent (AGENT_WINDOW while somebody is attached, then up to
 * the `keep` bytes of head and tail of each stream, and AGENT_KEEP_ALL in all) until a client
 * attaches and acknowledges it. An OUTPUT frame carries the offset of its first byte in its stream;
 * a gap between the end of one and the start of the next is what had to be dropped.
 * An ended command stays listed until FORGET.
 *
 * INPUT is for whoever writes to a command that another connection is attached to; any number of
 * them may, each in its own order. The client ends it by closing its sending side. It has no window:
 * while AGENT_STDIN_KEEP bytes wait for the command, the agent does not read such a connection.
 * What comes for a command whose reader is gone is dropped, and that is no error. FAIL comes at
 * the first bytes that cannot be given any more: "command_unknown", "command_ended", "stdin_closed"
 * (it was started without RUN_STDIN, or its end was told before).
 *
 * With RUN_TERMINAL the command has a terminal of its own for all three streams: what it writes is
 * stream 1, STDIN are bytes typed, STDIN_EOF is typed too (the terminal's end-of-file character where it
 * reads lines, else nothing) and ends nothing, and SIGNAL goes to the foreground process
 * group; HUP is a line that goes dead, and a TERM of TERMINATE or STOP comes with one. RESIZE sets its size and tells the foreground group, also when the size is the same.
 *
 * Both directions have a window, so neither side ever has more under way than the other has room
 * for, and neither stops reading: an ACK is found however much stdin lies before it, a STDIN_ACK
 * however much output.
 *
 *   output   at most AGENT_WINDOW bytes of both streams sent and not covered by an ACK
 *   stdin    at most AGENT_STDIN_WINDOW bytes of STDIN sent and not covered by a STDIN_ACK
 *
 * A STDIN_ACK says how many bytes of this connection's STDIN the command's pipe has taken, or will
 * never take because its reader is gone: those are dropped, and acknowledged like the others. One
 * comes for every AGENT_STDIN_ACK_AT bytes taken at the latest, and when all that came was taken;
 * none after EXIT. Each connection counts from 0, RUN and ATTACH alike: what an earlier one sent is
 * kept (AGENT_STDIN_KEEP), goes to the pipe first, and is not counted. A client that exceeds its
 * window loses the connection, and the command runs on. An agent that takes back what it
 * acknowledged, or acknowledges what was not sent, is not believed any more.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "wire/frame.h"

enum {
	AGENT_VERSION = 3, /* 2: INPUT, RESIZE, RUN_TERMINAL, RUNTIME_SHELL; 3: files.h */
	AGENT_OLDEST = 1,
	AGENT_MESSAGE_MAX = 2 * 1024 * 1024 + 64 * 1024, /* bytes: a RUN with 1 MiB of script */
	AGENT_WINDOW = 256 * 1024,         /* bytes sent and not acknowledged, both streams */
	AGENT_STDIN_WINDOW = 256 * 1024,   /* bytes of stdin sent and not acknowledged */
	AGENT_STDIN_ACK_AT = 64 * 1024,    /* bytes of stdin taken that are acknowledged at once */
	AGENT_STDIN_KEEP = 1024 * 1024,    /* bytes of stdin one command has not taken, in all */
	AGENT_KEEP_ALL = 64 * 1024 * 1024, /* bytes of unread output kept in one sandbox */
	/* bytes in one sandbox, of output and of stdin each, from where on clients and commands that are
	 * behind get no window, but for what they need to go on */
	AGENT_AHEAD_ALL = 16 * 1024 * 1024,
	AGENT_ARGS_MAX = 65536,
	AGENT_ENV_MAX = 4096,
	AGENT_STRING_MAX = 1024 * 1024,
	AGENT_TERMINAL_MAX = 4096, /* columns, rows */
	AGENT_OUTPUT_HEAD = FRAME_HEAD + 9,
	AGENT_OUTPUT_DATA = FRAME_MAX - 9,
};

enum agent_type {
	AGENT_HELLO = 1,
	AGENT_RUN,
	AGENT_ATTACH,
	AGENT_STDIN,
	AGENT_STDIN_EOF,
	AGENT_SIGNAL,
	AGENT_TERMINATE,
	AGENT_LIST,
	AGENT_STOP,
	AGENT_ACK,
	AGENT_FORGET,
	AGENT_INPUT,
	AGENT_RESIZE,

	AGENT_STARTED = 64,
	AGENT_OUTPUT,
	AGENT_EXIT,
	AGENT_FAIL,
	AGENT_COMMAND,
	AGENT_DONE,
	AGENT_STDIN_ACK,
};

struct agent_hello {
	uint32_t version; /* spoken */
	uint32_t oldest;  /* understood */
	uint64_t features;
};

enum agent_runtime {
	RUNTIME_ARGS,
	RUNTIME_BASH,
	RUNTIME_PYTHON,
	RUNTIME_JAVASCRIPT,
	RUNTIME_TYPESCRIPT,
	RUNTIME_SHELL, /* the user's login shell; argv is one empty string */
};

enum agent_run_flag {
	RUN_STDIN = 1u << 0, /* STDIN frames follow; else standard input is at end of file */
	/* a terminal of `cols` by `rows`, which are sent only with this flag; implies RUN_STDIN */
	RUN_TERMINAL = 1u << 1,
};

/* What to run. Strings belong to the message it was decoded from, the two arrays to the struct. */
struct agent_run {
	const char *id;      /* the record's id, "cm…" */
	uint8_t runtime;     /* enum agent_runtime */
	uint32_t flags;      /* enum agent_run_flag */
	uint64_t timeout_ms; /* from the start of the command; 0 = none */
	uint64_t keep;       /* bytes of head, and of tail, kept of each stream while detached */
	const char *cwd;     /* asked for: must exist; "" = default_cwd */
	const char *default_cwd;  /* falls back to the user's home, then "/" */
	const char *user;         /* asked for: name or uid, must exist; "" = default_user */
	const char *default_user; /* falls back to root */
	char **argv;         /* RUNTIME_ARGS: the argument list; else one element, the script */
	char **env;          /* "KEY=value", over the agent's own HOME, USER, PATH, LANG… */
	uint16_t cols, rows; /* RUN_TERMINAL: 1 to AGENT_TERMINAL_MAX; else 0 */
};
void agent_run_release(struct agent_run *run);

struct agent_started {
	uint32_t pid;        /* inside the sandbox */
	uint64_t age_us;     /* since the command started (attach: how long it has run) */
	const char *cwd;     /* where it runs */
	const char *user;    /* as whom */
	const char *warning; /* "" or why a default was not used */
};

enum agent_reason {
	REASON_EXITED = 1, /* `code` is its exit code */
	REASON_SIGNALED,   /* `signal` ended it */
	REASON_TIMED_OUT,  /* the time limit passed, the whole tree was killed */
	REASON_KILLED,     /* terminate, or the sandbox stopped */
	REASON_OOM,        /* the kernel killed it for memory; its children only: see `oom` */
	REASON_LOST,       /* nobody knows: never sent by an agent */
};

struct agent_exit {
	uint8_t reason; /* enum agent_reason */
	uint32_t code;  /* 0–255; 128 + n for signal n; 137 for a time-out */
	uint32_t signal;
	uint64_t duration_us;
	uint64_t total[2];   /* bytes written by the command: stdout, stderr */
	uint64_t dropped[2]; /* of these, bytes this agent had to drop */
	uint8_t oom;         /* the kernel killed for memory in the sandbox while it ran */
};

struct agent_output {
	uint8_t stream;  /* 1 stdout, 2 stderr */
	uint64_t offset; /* of the first byte */
	const void *data;
	size_t len;
};

struct agent_attach {
	const char *id;
	uint64_t offset[2]; /* bytes of stdout and stderr the client has */
};

struct agent_signal {
	const char *id;
	uint32_t signal;
	uint32_t grace_ms; /* TERMINATE: between this signal and KILL */
};

struct agent_resize {
	const char *id;
	uint16_t cols, rows; /* 1 to AGENT_TERMINAL_MAX */
};

struct agent_ack {
	uint64_t offset[2];
};

struct agent_fail {
	uint32_t code;      /* errno */
	const char *reason; /* stable word, "command_not_found" */
	const char *field;  /* the request field at fault, or "" */
	const char *text;
};

/* One line of LIST. */
struct agent_command {
	const char *id;
	uint32_t pid;
	uint8_t ended;
	uint8_t left;           /* ended, and processes of its tree remain */
	struct agent_exit exit; /* totals hold while it runs too */
};

/* Each appends one whole message; failure is `out->failed`. */
void agent_put_hello(struct buf *out, uint64_t features);
void agent_put_run(struct buf *out, const struct agent_run *run);
void agent_put_attach(struct buf *out, const struct agent_attach *a);
void agent_put_signal(struct buf *out, uint8_t type, const struct agent_signal *s);
void agent_put_ack(struct buf *out, const struct agent_ack *a);
void agent_put_stop(struct buf *out, uint32_t grace_ms);
void agent_put_resize(struct buf *out, const struct agent_resize *r);
void agent_put_id(struct buf *out, uint8_t type, const char *id); /* FORGET, INPUT */
void agent_put_empty(struct buf *out, uint8_t type);              /* LIST, STDIN_EOF, DONE */
void agent_put_started(struct buf *out, const struct agent_started *s);
void agent_put_output(struct buf *out, const struct agent_output *o);
/* What stands before the data of an output that fits one frame: at most AGENT_OUTPUT_DATA. */
void agent_output_head(const struct agent_output *o, unsigned char ret[AGENT_OUTPUT_HEAD]);
void agent_put_stdin_ack(struct buf *out, uint64_t taken);
void agent_put_exit(struct buf *out, const struct agent_exit *x);
void agent_put_fail(struct buf *out, const struct agent_fail *f);
void agent_put_command(struct buf *out, const struct agent_command *c);

/* Each reads one message of the type in its name: 0, -EPROTO for what no honest peer sends,
 * or -ENOMEM. */
int agent_get_hello(const struct message *m, struct agent_hello *ret);
int agent_get_run(const struct message *m, struct agent_run *ret);
int agent_get_attach(const struct message *m, struct agent_attach *ret);
int agent_get_signal(const struct message *m, struct agent_signal *ret);
int agent_get_ack(const struct message *m, struct agent_ack *ret);
int agent_get_stop(const struct message *m, uint32_t *ret_grace_ms);
int agent_get_resize(const struct message *m, struct agent_resize *ret);
int agent_get_id(const struct message *m, const char **ret_id);
int agent_get_started(const struct message *m, struct agent_started *ret);
int agent_get_output(const struct message *m, struct agent_output *ret);
/* -EPROTO also for one that is not in order: below `acked`, the last one, or above `sent`. */
int agent_get_stdin_ack(const struct message *m, uint64_t acked, uint64_t sent,
			uint64_t *ret_taken);
int agent_get_exit(const struct message *m, struct agent_exit *ret);
int agent_get_fail(const struct message *m, struct agent_fail *ret);
int agent_get_command(const struct message *m, struct agent_command *ret);

/* 0 when the two sides can speak, -EPROTONOSUPPORT else. */
int agent_hello_check(const struct agent_hello *h);
