#include "init/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/cgroup.h"
#include "init/init_fds.h"
#include "init/loop.h"
#include "init/outbuf.h"
#include "init/procs.h"
#include "init/spawn.h"

enum {
	COMMANDS_MAX = 4096,
	DRAIN_MS = 100,
	READ_SIZE = 64 * 1024,
	/* Room for stdin that was read ahead. The second one holds while output waits for an ACK:
	 * that ACK may lie behind the stdin a client has already written. */
	STDIN_ROOM = 64 * 1024,
	STDIN_ROOM_STALLED = 2 * 1024 * 1024,
	LEAF_RETRY_MS = 20,
	PID_SLOTS = 1024,
};

enum state { STARTING, RUNNING, DRAINING, ENDED };

enum { OUT, ERR };

struct command {
	struct command *next, *prev; /* in the order they started */
	struct command *pid_next;
	char id[ID_SIZE];
	enum state state;
	pid_t pid; /* as shown; to be signalled only while !reaped */
	bool reaped;
	bool timed_out, killed, forgotten;
	bool empty;      /* leafless: nothing was left the last time we looked */
	bool leafless;   /* no leaf could be made: its tree is what procs.h finds */
	uint8_t turn;    /* the stream served last */
	int kill_signal; /* the one that was asked for */
	int wait_status;
	uint64_t started_ns, ended_ns;
	int64_t oom_before;

	struct source out[2]; /* read ends of stdout, stderr */
	struct source in;     /* write end of stdin */
	struct source status; /* reports of the child */
	struct source events; /* cgroup.events of the leaf */
	struct leaf leaf;
	struct timer limit, drain, grace, retry;

	struct outbuf outbuf[2];
	struct buf stdin_ahead; /* read from the client … */
	size_t stdin_at;        /* … of which the pipe has taken so much */
	bool stdin_ending;
	struct buf reports;
	char *cwd, *user, *warning; /* known from SPAWN_READY on */

	struct agent_exit exit;
	struct command_client *client;
	struct command_waiter *waiters;
};

static struct command *first, *last;
static unsigned total;                    /* forgotten ones that live on included */
static struct command *by_pid[PID_SLOTS]; /* those not reaped */
static bool stopping;

void command_init(void)
{
	cgroup_init();
	procs_init();
	spawn_init();
}

static struct command *find(const char *id)
{
	for (struct command *c = last; c; c = c->prev) {
		if (!c->forgotten && str_eq(c->id, id))
			return c;
	}
	return NULL;
}

static void changed(struct command *c)
{
	if (c->client)
		c->client->changed(c->client);
}

static void command_free(struct command *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		last = c->prev;
	total--;
	source_close(&c->out[OUT]);
	source_close(&c->out[ERR]);
	source_close(&c->in);
	source_close(&c->status);
	source_close(&c->events);
	leaf_close(&c->leaf);
	timer_cancel(&c->limit);
	timer_cancel(&c->drain);
	timer_cancel(&c->grace);
	timer_cancel(&c->retry);
	outbuf_release(&c->outbuf[OUT]);
	outbuf_release(&c->outbuf[ERR]);
	buf_release(&c->stdin_ahead);
	buf_release(&c->reports);
	free(c->cwd);
	free(c->user);
	free(c->warning);
	free(c);
}

/* The tree. */

static bool has_leaf(const struct command *c)
{
	return c->leaf.dir >= 0;
}

static bool tree_left(struct command *c)
{
	if (has_leaf(c))
		return leaf_populated(&c->leaf);
	/* a leaf that is no more was empty */
	if (!c->leafless || c->empty)
		return false;
	/* once nothing is left its pid may come to be another's */
	c->empty = procs_signal_tree(c->pid, 0) <= 0 && c->reaped;
	return !c->empty;
}

static void tree_kill(struct command *c)
{
	if (has_leaf(c) && leaf_kill(&c->leaf) < 0)
		leaf_signal(&c->leaf, SIGKILL, NULL, NULL);
	else if (c->leafless)
		procs_signal_tree(c->pid, SIGKILL);
	/* it may be born and not in its leaf yet */
	if (!c->reaped)
		kill(c->pid, SIGKILL);
}

static void tell_waiters(struct command *c)
{
	while (c->waiters) {
		struct command_waiter *w = c->waiters;

		c->waiters = w->next;
		w->command = NULL;
		w->gone(w);
	}
}

/* Forgotten commands go with their last process. */
static bool free_if_over(struct command *c)
{
	if (c->forgotten && c->state == ENDED && c->reaped && !has_leaf(c) && !c->client &&
	    !c->waiters) {
		command_free(c);
		return true;
	}
	return false;
}

static void retry_settle(struct timer *t);

/* The leaf goes when it is empty and can get no more processes from us. */
static void settle(struct command *c)
{
	if (c->state != ENDED)
		return;
	if (has_leaf(c)) {
		if (leaf_populated(&c->leaf))
			return;
		/* the last process may need a moment until the kernel lets go of the leaf */
		if (leaf_remove(&c->leaf) == -EBUSY) {
			timer_set(&c->retry, clock_mono_ns() + LEAF_RETRY_MS * NS_PER_MS,
				  retry_settle);
			return;
		}
		source_close(&c->events);
		leaf_close(&c->leaf);
	} else if (c->leafless && c->waiters && tree_left(c)) {
		timer_set(&c->retry, clock_mono_ns() + LEAF_RETRY_MS * NS_PER_MS, retry_settle);
		return;
	}
	timer_cancel(&c->grace);
	tell_waiters(c);
	free_if_over(c);
}

static void retry_settle(struct timer *t)
{
	settle(container_of(t, struct command, retry));
}

static void leaf_event(struct source *s, uint32_t events)
{
	struct command *c = container_of(s, struct command, events);
	char text[256];

	(void)events;
	/* reading re-arms the notification */
	if (pread(s->fd, text, sizeof(text), 0) < 0)
		source_want(s, 0);
	settle(c);
}

/* Output. */

static bool stalled(const struct command *c)
{
	return c->client &&
	       outbuf_held(&c->outbuf[OUT]) + outbuf_held(&c->outbuf[ERR]) >= AGENT_WINDOW;
}

/* The oldest commands that nobody reads pay first, with their tails. */
static void bound_memory(void)
{
	for (struct command *c = first; c && outbuf_memory() > AGENT_KEEP_ALL; c = c->next) {
		if (!c->client) {
			outbuf_drop_tail(&c->outbuf[OUT]);
			outbuf_drop_tail(&c->outbuf[ERR]);
		}
	}
	for (struct command *c = first; c && outbuf_memory() > AGENT_KEEP_ALL; c = c->next) {
		if (!c->client) {
			outbuf_drop_head(&c->outbuf[OUT]);
			outbuf_drop_head(&c->outbuf[ERR]);
		}
	}
}

/* One read. The count, 0 at the end (the source is closed then), -EAGAIN. */
static ssize_t read_output(struct command *c, int i, size_t most)
{
	static char data[READ_SIZE];
	ssize_t n;

	do
		n = read(c->out[i].fd, data, most < sizeof(data) ? most : sizeof(data));
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n <= 0) {
		source_close(&c->out[i]);
		return 0;
	}
	/* what comes after the end was told is read, so that nothing left behind blocks on it */
	if (c->state != ENDED) {
		outbuf_append(&c->outbuf[i], data, (size_t)n);
		bound_memory();
	}
	return n;
}

static void watch_output(struct command *c)
{
	uint32_t want = c->state != ENDED && stalled(c) ? 0 : EPOLLIN;

	source_want(&c->out[OUT], want);
	source_want(&c->out[ERR], want);
}

static void finish(struct command *c);
static void drain_over(struct timer *t);

static void output_event(struct command *c, int i)
{
	ssize_t n = read_output(c, i, READ_SIZE);

	if (c->state == DRAINING && c->out[OUT].fd < 0 && c->out[ERR].fd < 0) {
		finish(c);
		return;
	}
	if (c->state == ENDED)
		return;
	watch_output(c);
	if (n > 0)
		changed(c);
}

static void out_ready(struct source *s, uint32_t events)
{
	(void)events;
	output_event(container_of(s, struct command, out[OUT]), OUT);
}

static void err_ready(struct source *s, uint32_t events)
{
	(void)events;
	output_event(container_of(s, struct command, out[ERR]), ERR);
}

/* Standard input. */

static void stdin_close(struct command *c)
{
	source_close(&c->in);
	buf_release(&c->stdin_ahead);
	c->stdin_at = 0;
}

static size_t stdin_left(const struct command *c)
{
	return c->stdin_ahead.len - c->stdin_at;
}

static void stdin_flush(struct command *c)
{
	struct buf *b = &c->stdin_ahead;

	while (c->in.fd >= 0 && stdin_left(c)) {
		ssize_t n = write(c->in.fd, b->data + c->stdin_at, stdin_left(c));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* a reader that closed early is an ordinary end */
			stdin_close(c);
			return;
		}
		c->stdin_at += (size_t)n;
	}
	if (c->stdin_at >= b->len / 2) { /* moves each byte once on average */
		buf_consume(b, c->stdin_at);
		c->stdin_at = 0;
	}
	if (c->stdin_ending && !b->len)
		stdin_close(c);
	source_want(&c->in, b->len ? EPOLLOUT : EPOLLERR);
}

static void in_ready(struct source *s, uint32_t events)
{
	struct command *c = container_of(s, struct command, in);

	if (events & EPOLLERR)
		stdin_close(c);
	else
		stdin_flush(c);
	changed(c);
}

int command_stdin(struct command *c, const void *data, size_t len)
{
	if (c->in.fd < 0 || c->stdin_ending)
		return 0;
	if (buf_add(&c->stdin_ahead, data, len) < 0)
		return c->stdin_ahead.failed;
	stdin_flush(c);
	return 0;
}

void command_stdin_eof(struct command *c)
{
	c->stdin_ending = true;
	stdin_flush(c);
}

bool command_stdin_full(const struct command *c)
{
	return stdin_left(c) >= (size_t)(stalled(c) ? STDIN_ROOM_STALLED : STDIN_ROOM);
}

/* The end. */

static bool killed_for_memory(const struct command *c)
{
	bool by_kill = (WIFSIGNALED(c->wait_status) && WTERMSIG(c->wait_status) == SIGKILL) ||
		       (WIFEXITED(c->wait_status) && WEXITSTATUS(c->wait_status) == 128 + SIGKILL);

	return by_kill && c->oom_before >= 0 && leaf_oom_kills(&c->leaf) > c->oom_before;
}

static void set_outcome(struct command *c)
{
	struct agent_exit *x = &c->exit;

	if (WIFSIGNALED(c->wait_status)) {
		x->signal = (uint32_t)WTERMSIG(c->wait_status);
		x->code = 128 + x->signal;
		x->reason = REASON_SIGNALED;
	} else {
		x->code = (uint32_t)WEXITSTATUS(c->wait_status);
		x->reason = REASON_EXITED;
	}
	if (c->timed_out)
		*x = (struct agent_exit){ REASON_TIMED_OUT, 128 + SIGKILL, SIGKILL };
	else if (c->killed) {
		x->reason = REASON_KILLED;
		x->signal = x->signal ? x->signal : (uint32_t)c->kill_signal;
	} else if (killed_for_memory(c)) {
		x->reason = REASON_OOM;
		x->signal = SIGKILL;
	}
	x->duration_us = (c->ended_ns - c->started_ns) / 1000;
}

static void fill_totals(const struct command *c, struct agent_exit *x)
{
	for (int i = 0; i < 2; i++) {
		x->total[i] = c->outbuf[i].total;
		x->dropped[i] = c->outbuf[i].dropped;
	}
}

static void finish(struct command *c)
{
	if (!c->ended_ns)
		c->ended_ns = clock_mono_ns();
	set_outcome(c);
	c->state = ENDED;
	timer_cancel(&c->limit);
	timer_cancel(&c->drain);
	stdin_close(c);
	watch_output(c);
	changed(c);
	settle(c);
}

/* Its own process ended: whatever the pipes hold now was written before, and is read whether or not
 * the client keeps up. It is bounded by the size of the pipes. */
static void start_draining(struct command *c)
{
	c->state = DRAINING;
	timer_cancel(&c->limit);
	for (int i = 0; i < 2; i++) {
		ssize_t n = 1;
		int left = 0;

		if (c->out[i].fd >= 0)
			ioctl(c->out[i].fd, FIONREAD, &left);
		while (c->out[i].fd >= 0 && n > 0 && left >= 0) {
			n = read_output(c, i, READ_SIZE);
			left -= (int)n;
		}
	}
	if (c->out[OUT].fd < 0 && c->out[ERR].fd < 0) {
		finish(c);
		return;
	}
	timer_set(&c->drain, clock_mono_ns() + DRAIN_MS * NS_PER_MS, drain_over);
	watch_output(c);
	changed(c);
}

static void time_over(struct timer *t)
{
	struct command *c = container_of(t, struct command, limit);

	c->timed_out = true;
	tree_kill(c);
	/* told even when the kernel cannot end it at once */
	timer_set(&c->drain, clock_mono_ns() + DRAIN_MS * NS_PER_MS, drain_over);
}

/* The start. */

static void terminate_string(char *s, size_t size)
{
	s[size - 1] = '\0';
}

/* It never ran: told to the client, and nobody else will hear of it. */
static void start_failed(struct command *c, const struct agent_fail *f)
{
	struct command_client *client = c->client;

	source_close(&c->status);
	c->state = ENDED;
	c->forgotten = true;
	timer_cancel(&c->limit);
	timer_cancel(&c->drain);
	tree_kill(c);
	stdin_close(c);
	source_close(&c->out[OUT]);
	source_close(&c->out[ERR]);
	c->client = NULL;
	if (client) {
		client->command = NULL;
		client->detached(client, f);
	}
	settle(c);
}

static void drain_over(struct timer *t)
{
	struct command *c = container_of(t, struct command, drain);

	if (c->state == STARTING)
		start_failed(c, &(struct agent_fail){ ETIMEDOUT, "not_started", "",
						      "the time limit passed before the program "
						      "was executed" });
	else
		finish(c);
}

/* One report of the child. False when it ended the command. */
static bool take_report(struct command *c, struct spawn_report *r)
{
	if (r->kind != SPAWN_FAILED && c->cwd) { /* root inside may speak for the child */
		start_failed(c, &(struct agent_fail){ EPROTO, "not_started", "",
						      "the process was tampered with" });
		return false;
	}
	if (r->kind == SPAWN_FAILED) {
		terminate_string(r->reason, sizeof(r->reason));
		terminate_string(r->field, sizeof(r->field));
		terminate_string(r->text, sizeof(r->text));
		start_failed(c, &(struct agent_fail){ r->code ? r->code : EIO, r->reason, r->field,
						      r->text });
		return false;
	}
	terminate_string(r->cwd, sizeof(r->cwd));
	terminate_string(r->user, sizeof(r->user));
	terminate_string(r->warning, sizeof(r->warning));
	if (!c->cwd)
		c->cwd = strdup(r->cwd);
	if (!c->user)
		c->user = strdup(r->user);
	if (!c->warning)
		c->warning = strdup(r->warning);
	return true;
}

/* False when the command is gone. */
static bool read_status(struct command *c)
{
	struct spawn_report r;

	for (;;) {
		void *room = buf_reserve(&c->reports, sizeof(r));
		ssize_t n = room ? read(c->status.fd, room, sizeof(r)) : 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n <= 0)
			break;
		buf_commit(&c->reports, (size_t)n);
		if (c->reports.len < sizeof(r))
			continue;
		memcpy(&r, c->reports.data, sizeof(r));
		buf_consume(&c->reports, sizeof(r));
		if (!take_report(c, &r))
			return false;
	}
	buf_release(&c->reports);
	if (!c->cwd || !c->user || !c->warning) {
		start_failed(c, &(struct agent_fail){ ECANCELED, "not_started", "",
						      "the process ended before the program "
						      "was executed" });
		return false;
	}
	source_close(&c->status);
	c->state = RUNNING;
	return true;
}

static void status_ready(struct source *s, uint32_t events)
{
	struct command *c = container_of(s, struct command, status);

	(void)events;
	if (read_status(c) && c->state == RUNNING)
		changed(c);
}

/* A visible command more: the oldest ended ones make room. */
static int make_room(struct err *e)
{
	unsigned visible = 0;

	if (total < COMMANDS_MAX)
		return 0;
	for (struct command *c = first; c; c = c->next)
		visible += !c->forgotten;
	for (struct command *c = first, *next; c && visible >= COMMANDS_MAX; c = next) {
		next = c->next;
		if (c->state != ENDED || c->forgotten || c->client)
			continue;
		visible--;
		c->forgotten = true;
		free_if_over(c);
	}
	if (visible < COMMANDS_MAX && total < 2 * COMMANDS_MAX)
		return 0;
	return err_reason(e, EAGAIN, "too_many_commands", "%d commands are running", COMMANDS_MAX);
}

static struct command *command_new(const struct agent_run *run)
{
	struct command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	str_copy(c->id, sizeof(c->id), run->id);
	c->out[OUT] = c->out[ERR] = c->in = c->status = c->events = (struct source)SOURCE_NONE;
	c->leaf = (struct leaf)LEAF_NONE;
	outbuf_init(&c->outbuf[OUT], run->keep);
	outbuf_init(&c->outbuf[ERR], run->keep);
	/* what the pipe has taken is at most half of it */
	buf_init(&c->stdin_ahead, 2 * (STDIN_ROOM_STALLED + AGENT_MESSAGE_MAX));
	buf_init(&c->reports, 2 * sizeof(struct spawn_report));
	c->prev = last;
	if (last)
		last->next = c;
	else
		first = c;
	last = c;
	total++;
	return c;
}

struct pipes {
	int ours[4], childs[4]; /* stdin, stdout, stderr, status */
};

static void pipes_close(struct pipes *p)
{
	for (int i = 0; i < 4; i++) {
		close_p(&p->ours[i]);
		close_p(&p->childs[i]);
	}
}

static int pipes_open(struct pipes *p, bool with_stdin)
{
	for (int i = 0; i < 4; i++)
		p->ours[i] = p->childs[i] = -1;
	for (int i = 0; i < 4; i++) {
		int fds[2];

		if (i == 0 && !with_stdin)
			continue;
		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		p->ours[i] = fds[i == 0];
		p->childs[i] = fds[i != 0];
	}
	return 0;
}

static int watch(struct command *c, struct pipes *p)
{
	int r = source_open(&c->out[OUT], take_fd(&p->ours[1]), EPOLLIN, out_ready);

	if (!r)
		r = source_open(&c->out[ERR], take_fd(&p->ours[2]), EPOLLIN, err_ready);
	if (!r)
		r = source_open(&c->status, take_fd(&p->ours[3]), EPOLLIN, status_ready);
	if (!r && p->ours[0] >= 0)
		r = source_open(&c->in, take_fd(&p->ours[0]), EPOLLERR, in_ready);
	if (!r && c->leaf.events >= 0)
		r = source_open(&c->events, take_fd(&c->leaf.events), EPOLLPRI, leaf_event);
	return r;
}

static int start(struct command *c, const struct agent_run *run, struct err *e)
{
	struct pipes p;
	pid_t pid = -1;
	int r;

	if (cgroup_available() && leaf_make(&c->leaf) < 0)
		c->leaf = (struct leaf)LEAF_NONE;
	c->leafless = !has_leaf(c);
	c->oom_before = leaf_oom_kills(&c->leaf);
	r = pipes_open(&p, run->flags & RUN_STDIN);
	if (!r) {
		struct spawn_plan plan = {
			.run = run,
			.leaf = &c->leaf,
			.stdio = { p.childs[0] >= 0 ? p.childs[0] : INIT_FD_NULL, p.childs[1],
				   p.childs[2] },
			.status = p.childs[3],
		};

		r = watch(c, &p);
		if (!r)
			pid = spawn(&plan, e);
	}
	pipes_close(&p);
	if (r < 0)
		return err_reason(e, r, "limit_descriptors", "make the command's pipes: %s",
				  strerror(-r));
	if (pid < 0)
		return pid;
	c->pid = pid;
	c->pid_next = by_pid[pid % PID_SLOTS];
	by_pid[pid % PID_SLOTS] = c;
	return 0;
}

int command_run(struct command_client *client, const struct agent_run *run, struct err *e)
{
	struct command *c;
	int r;

	if (stopping)
		return err_reason(e, EBUSY, "stopping", "the sandbox is stopping");
	if (find(run->id))
		return err_reason(e, EEXIST, "command_exists", "command '%s' exists", run->id);
	r = make_room(e);
	if (r < 0)
		return r;
	c = command_new(run);
	if (!c)
		return err_reason(e, ENOMEM, "limit_memory", "out of memory");
	c->started_ns = clock_mono_ns();
	r = start(c, run, e);
	if (r < 0) {
		if (has_leaf(c))
			leaf_remove(&c->leaf);
		command_free(c);
		return r;
	}
	if (run->timeout_ms && run->timeout_ms < (UINT64_MAX - c->started_ns) / NS_PER_MS)
		timer_set(&c->limit, c->started_ns + run->timeout_ms * NS_PER_MS, time_over);
	c->client = client;
	client->command = c;
	return 0;
}

/* Clients. */

int command_attach(struct command_client *client, const struct agent_attach *a, struct err *e)
{
	struct command *c = find(a->id);
	struct command_client *old;

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", a->id);
	if (a->offset[OUT] > c->outbuf[OUT].total || a->offset[ERR] > c->outbuf[ERR].total)
		return err_reason(e, EINVAL, "offset_invalid",
				  "command '%s' has not written that much", a->id);
	old = c->client;
	c->client = client;
	client->command = c;
	if (old) {
		old->command = NULL;
		old->detached(old, NULL);
	}
	outbuf_attach(&c->outbuf[OUT], a->offset[OUT]);
	outbuf_attach(&c->outbuf[ERR], a->offset[ERR]);
	watch_output(c);
	return 0;
}

void command_detach(struct command_client *client)
{
	struct command *c = client->command;

	if (!c)
		return;
	client->command = NULL;
	c->client = NULL;
	outbuf_detach(&c->outbuf[OUT]);
	outbuf_detach(&c->outbuf[ERR]);
	bound_memory();
	if (!free_if_over(c))
		watch_output(c);
}

bool command_started(const struct command *c, struct agent_started *ret)
{
	if (c->state == STARTING)
		return false;
	*ret = (struct agent_started){
		.pid = (uint32_t)c->pid,
		.age_us = (clock_mono_ns() - c->started_ns) / 1000,
		.cwd = c->cwd,
		.user = c->user,
		.warning = c->warning,
	};
	return true;
}

bool command_next_output(struct command *c, struct agent_output *ret)
{
	enum { FRAME_DATA = FRAME_MAX / 2 };
	size_t unacked = c->outbuf[OUT].unacked + c->outbuf[ERR].unacked;
	size_t most = unacked < AGENT_WINDOW ? AGENT_WINDOW - unacked : 0;

	if (c->state == STARTING)
		return false;
	for (int n = 0; n < 2; n++) {
		int i = c->turn ^= 1;

		ret->len = outbuf_peek(&c->outbuf[i], most < FRAME_DATA ? most : FRAME_DATA,
				       &ret->offset, &ret->data);
		if (ret->len) {
			ret->stream = (uint8_t)(i + 1);
			outbuf_sent(&c->outbuf[i], ret->offset, ret->len);
			return true;
		}
	}
	return false;
}

bool command_exit(const struct command *c, struct agent_exit *ret)
{
	const void *data;
	uint64_t offset;

	if (c->state != ENDED || outbuf_peek(&c->outbuf[OUT], 1, &offset, &data) ||
	    outbuf_peek(&c->outbuf[ERR], 1, &offset, &data))
		return false;
	*ret = c->exit;
	fill_totals(c, ret);
	return true;
}

int command_ack(struct command *c, const struct agent_ack *a)
{
	if (outbuf_ack(&c->outbuf[OUT], a->offset[OUT]) < 0 ||
	    outbuf_ack(&c->outbuf[ERR], a->offset[ERR]) < 0)
		return -EPROTO;
	watch_output(c);
	return 0;
}

/* Operations. */

int command_signal(const struct agent_signal *s, struct err *e)
{
	struct command *c = find(s->id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", s->id);
	if (c->reaped || c->state == STARTING)
		return err_reason(e, ESRCH, "command_ended", "command '%s' %s", s->id,
				  c->reaped ? "has ended" : "has not started yet");
	if (kill(-c->pid, (int)s->signal) < 0)
		return err_reason(e, errno, "signal_failed", "signal command '%s': %m", s->id);
	return 0;
}

static void grace_over(struct timer *t)
{
	tree_kill(container_of(t, struct command, grace));
}

static void mark_killed(struct command *c, int sig)
{
	if (c->reaped)
		return;
	c->killed = true;
	c->kill_signal = sig;
}

int command_terminate(struct command_waiter *w, const struct agent_signal *s, struct err *e)
{
	uint64_t kill_at = clock_mono_ns() + s->grace_ms * NS_PER_MS;
	struct command *c = find(s->id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", s->id);
	if (c->state == ENDED && !tree_left(c))
		return err_reason(e, ESRCH, "nothing_left",
				  "command '%s' has ended and left no process", s->id);
	w->command = c;
	w->next = c->waiters;
	c->waiters = w;
	mark_killed(c, (int)s->signal);
	if (has_leaf(c))
		leaf_signal(&c->leaf, (int)s->signal, NULL, NULL);
	else if (c->leafless)
		procs_signal_tree(c->pid, (int)s->signal);
	if (s->signal == SIGKILL || !s->grace_ms)
		tree_kill(c);
	else if (!c->grace.armed || kill_at < c->grace.at)
		timer_set(&c->grace, kill_at, grace_over);
	if (c->leafless)
		timer_set(&c->retry, clock_mono_ns() + LEAF_RETRY_MS * NS_PER_MS, retry_settle);
	return 0;
}

void command_wait_cancel(struct command_waiter *w)
{
	struct command_waiter **p;

	if (!w->command)
		return;
	for (p = &w->command->waiters; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	w->command = NULL;
}

int command_forget(const char *id, struct err *e)
{
	struct command *c = find(id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", id);
	if (c->state != ENDED)
		return err_reason(e, EBUSY, "command_running", "command '%s' is running", id);
	c->forgotten = true;
	free_if_over(c);
	return 0;
}

void command_list(void (*each)(void *arg, const struct agent_command *c), void *arg)
{
	for (struct command *c = first; c; c = c->next) {
		struct agent_command line = {
			.id = c->id,
			.pid = (uint32_t)c->pid,
			.ended = c->state == ENDED,
			.left = c->state == ENDED && tree_left(c),
			.exit = c->exit,
		};

		if (c->forgotten)
			continue;
		fill_totals(c, &line.exit);
		each(arg, &line);
	}
}

/* PID 1. */

void command_reaped(pid_t pid, int status)
{
	struct command **p = &by_pid[pid % PID_SLOTS], *c;

	while (*p && (*p)->pid != pid)
		p = &(*p)->pid_next;
	c = *p;
	if (!c)
		return;
	*p = c->pid_next;
	c->reaped = true;
	c->wait_status = status;
	c->ended_ns = c->ended_ns ? c->ended_ns : clock_mono_ns();
	if (c->state == STARTING && !read_status(c))
		return;
	if (c->state == RUNNING)
		start_draining(c);
	else
		settle(c);
}

void command_stop_all(int sig, void (*each)(void *arg, pid_t pid), void *arg)
{
	stopping = true;
	for (struct command *c = last; c; c = c->prev) {
		if (has_leaf(c))
			leaf_signal(&c->leaf, sig, each, arg);
		mark_killed(c, sig);
	}
}

bool command_any_running(void)
{
	for (struct command *c = first; c; c = c->next) {
		if (c->state != ENDED)
			return true;
	}
	return false;
}
