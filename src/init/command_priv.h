#pragma once
/*
 * Inside of the commands' module: the object, and what its files call of each other. Nobody else
 * includes this.
 *
 *   command.c         the list of commands, clients, operations, what PID 1 tells
 *   command_start.c   from RUN to a program that runs
 *   command_output.c  standard output and error, until a client has it
 *   command_stdin.c   standard input
 *   command_terminal.c  terminals
 *   command_end.c     from the end of its process to the outcome
 *   command_tree.c    all its processes: signalled, killed, waited for
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "wire/agent.h"

#include "init/cgroup.h"
#include "init/command.h"
#include "init/loop.h"
#include "init/outbuf.h"

enum state { STARTING, RUNNING, DRAINING, ENDED };

enum { OUT, ERR };

enum { CLIENT, WRITERS };

/* Read from clients, and not taken by the command yet. */
struct stdin_queue {
	struct buf ahead;
	size_t at; /* the pipe has taken so much of it */
};

struct command {
	struct command *next, *prev; /* in the order they started */
	struct command *pid_next;
	char id[ID_SIZE];
	enum state state;
	pid_t pid; /* as shown; to be signalled only while !reaped */
	bool reaped;
	bool timed_out, killed;
	bool forget_later; /* once its tree is gone */
	bool forgotten;    /* not shown and not found any more */
	bool empty;        /* leafless: nothing was left the last time we looked */
	bool leafless;     /* no leaf could be made: its tree is what procs.h finds */
	uint8_t turn;      /* the stream served last */
	bool pacing;       /* its output waits in the pipes until `pace` fires */
	int kill_signal;   /* the one that was asked for */
	int wait_status;
	uint64_t started_ns, ended_ns;
	uint64_t read_ns; /* when output was last read */
	uint32_t pace_us; /* the next read comes so long after it */
	int64_t oom_before;

	bool takes_stdin;     /* it was started with one, or with a terminal */
	bool terminal;        /* out[OUT] and `in` are its master, out[ERR] is not there */
	int slave;            /* held so that the master never ends before the command; or -1 */
	struct source out[2]; /* read ends of stdout, stderr */
	struct source in;     /* write end of stdin */
	struct source status; /* reports of the child */
	struct source events; /* cgroup.events of the leaf */
	struct leaf leaf;
	struct timer limit, drain, grace, retry, pace;

	struct outbuf outbuf[2];
	struct stdin_queue stdin[2];
	uint8_t stdin_turn; /* the queue served first the last time */
	bool stdin_ending;
	bool line_open;                   /* what was given last does not end a line */
	uint64_t stdin_came, stdin_acked; /* bytes from and to the client that is attached */
	struct buf reports;
	char *cwd, *user, *warning; /* known from SPAWN_READY on */

	struct agent_exit exit;
	struct command_client *client;
	struct command_waiter *waiters;
	struct command_writer *writers;
};

static inline bool command_has_leaf(const struct command *c)
{
	return c->leaf.dir >= 0;
}

/* command.c */
struct command *command_first(void); /* in the order they started */
struct command *command_find(const char *id);
struct command *command_new(const struct agent_run *run);
void command_free(struct command *c);
bool command_free_if_over(struct command *c); /* forgotten ones go with their last process */
int command_make_room(struct err *e);
void command_expect(struct command *c); /* its pid will be reaped */
bool command_stopping(void);
void command_changed(struct command *c); /* tells the client */

/* command_start.c */
bool command_read_status(struct command *c); /* false: the command is gone */
void command_start_failed(struct command *c, const struct agent_fail *f);

/* command_output.c */
bool command_stalled(const struct command *c); /* its client is behind by a window */
void command_bound_memory(void);
ssize_t command_read_output(struct command *c, int i);
void command_watch_output(struct command *c);
void command_out_ready(struct source *s, uint32_t events);
void command_err_ready(struct source *s, uint32_t events);

/* command_stdin.c */
void command_stdin_init(struct command *c);
void command_stdin_close(struct command *c);
void command_stdin_attach(struct command *c); /* counts anew */
void command_in_ready(struct source *s, uint32_t events);

void command_writers_end(struct command *c);

/* command_terminal.c */
void command_terminal_init(void);
int command_terminal_open(uint16_t cols, uint16_t rows, int *ret_master, int *ret_slave);
/* The process group that signals go to. */
pid_t command_foreground(const struct command *c);
void command_hang_up(const struct command *c);

/* command_end.c */
void command_fill_totals(const struct command *c, struct agent_exit *x);
void command_drain(struct command *c);
void command_time_over(struct timer *t);
void command_finish(struct command *c);

/* command_tree.c */
void command_tree_signal(struct command *c, int sig, void (*each)(void *arg, pid_t pid), void *arg);
bool command_tree_left(struct command *c);
void command_tree_kill(struct command *c);
void command_mark_killed(struct command *c, int sig);
void command_settle(struct command *c); /* may free it */
void command_leaf_ready(struct source *s, uint32_t events);
