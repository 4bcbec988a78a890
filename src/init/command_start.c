#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/command_priv.h"
#include "init/init_fds.h"
#include "init/lxcfs.h"
#include "init/spawn.h"

enum { ERRNO_LARGEST = 4095, PIPE_SIZE = 256 * 1024 };

static void terminate_string(char *s, size_t size)
{
	s[size - 1] = '\0';
}

/* It never ran: told to the client (`f`: NULL where there is none), and nobody else will hear of it. */
void command_start_failed(struct command *c, const struct agent_fail *f)
{
	struct command_client *client = c->client;

	source_close(&c->status);
	c->state = ENDED;
	c->forgotten = true;
	timer_cancel(&c->limit);
	timer_cancel(&c->drain);
	command_tree_kill(c);
	command_stdin_close(c);
	command_writers_end(c);
	close_p(&c->slave);
	source_close(&c->out[OUT]);
	source_close(&c->out[ERR]);
	c->client = NULL;
	if (client) {
		client->command = NULL;
		client->detached(client, f);
	}
	command_settle(c);
}

/* One report of the child. False when it ended the command. */
static bool take_report(struct command *c, struct spawn_report *r)
{
	/* root inside may speak for the child */
	if (r->kind != SPAWN_FAILED && (r->kind != SPAWN_READY || c->cwd)) {
		command_start_failed(c, &(struct agent_fail){ EPROTO, "not_started", "",
							      "the process was tampered with" });
		return false;
	}
	if (r->kind == SPAWN_FAILED) {
		uint32_t code = r->code && r->code <= ERRNO_LARGEST ? r->code : EIO;

		terminate_string(r->reason, sizeof(r->reason));
		terminate_string(r->field, sizeof(r->field));
		terminate_string(r->text, sizeof(r->text));
		command_start_failed(c, &(struct agent_fail){ code, r->reason, r->field, r->text });
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
bool command_read_status(struct command *c)
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
		command_start_failed(c,
				     &(struct agent_fail){ ECANCELED, "not_started", "",
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
	if (command_read_status(c) && c->state == RUNNING)
		command_changed(c);
}

struct pipes {
	int ours[4], childs[4]; /* stdin, stdout, stderr, status */
};

#define PIPES_NONE                                                                                 \
	{                                                                                          \
		{ -1, -1, -1, -1 },                                                                \
		{                                                                                  \
			-1, -1, -1, -1                                                             \
		}                                                                                  \
	}

static void pipes_close(struct pipes *p)
{
	for (int i = 0; i < 4; i++) {
		close_p(&p->ours[i]);
		close_p(&p->childs[i]);
	}
}

static int pipes_open(struct pipes *p, int from, int to)
{
	for (int i = from; i <= to; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		if (i == 1 || i == 2) /* as it is where the kernel's bounds do not allow it */
			(void)fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
		p->ours[i] = fds[i == 0];
		p->childs[i] = fds[i != 0];
	}
	return 0;
}

/* One terminal for all three; PID 1 writes to it through a descriptor of its own. */
static int terminal_open(struct pipes *p, const struct agent_run *run)
{
	int r = command_terminal_open(run->cols, run->rows, &p->ours[1], &p->childs[0]);

	if (r < 0)
		return r;
	for (int i = 1; i < 3; i++) {
		p->childs[i] = fcntl(p->childs[0], F_DUPFD_CLOEXEC, 0);
		if (p->childs[i] < 0)
			return -errno;
	}
	p->ours[0] = fcntl(p->ours[1], F_DUPFD_CLOEXEC, 0);
	return p->ours[0] < 0 ? -errno : 0;
}

static int watch(struct command *c, struct pipes *p)
{
	int r = source_open(&c->out[OUT], take_fd(&p->ours[1]), EPOLLIN, command_out_ready);

	if (!r && !c->terminal)
		r = source_open(&c->out[ERR], take_fd(&p->ours[2]), EPOLLIN, command_err_ready);
	if (!r)
		r = source_open(&c->status, take_fd(&p->ours[3]), EPOLLIN, status_ready);
	if (!r && p->ours[0] >= 0)
		r = source_open(&c->in, take_fd(&p->ours[0]), EPOLLERR, command_in_ready);
	if (!r && c->leaf.events >= 0)
		r = source_open(&c->events, take_fd(&c->leaf.events), EPOLLPRI, command_leaf_ready);
	return r;
}

static int streams_open(struct pipes *p, const struct agent_run *run)
{
	int r;

	if (run->flags & RUN_TERMINAL)
		r = terminal_open(p, run);
	else
		r = pipes_open(p, run->flags & RUN_STDIN ? 0 : 1, 2);
	return r < 0 ? r : pipes_open(p, 3, 3);
}

static int start(struct command *c, const struct agent_run *run, struct err *e)
{
	struct pipes p = PIPES_NONE;
	pid_t pid = -1;
	int r;

	if (cgroup_available() && leaf_make(&c->leaf) < 0)
		c->leaf = (struct leaf)LEAF_NONE;
	c->leafless = !command_has_leaf(c);
	c->oom_before = cgroup_oom_kills();
	r = streams_open(&p, run);
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
	if (c->terminal)
		c->slave = take_fd(&p.childs[0]);
	pipes_close(&p);
	if (r == -ENOSPC)
		return err_reason(e, r, "limit_terminals",
				  "the sandbox, or its host, has no terminal left");
	if (r < 0)
		return err_reason(e, r, "limit_descriptors", "make the command's %s: %s",
				  c->terminal ? "terminal" : "pipes", strerror(-r));
	if (pid < 0)
		return pid;
	c->pid = pid;
	command_expect(c);
	return 0;
}

int command_run(struct command_client *client, const struct agent_run *run, struct err *e)
{
	struct command *c;
	int r;

	if (command_stopping())
		return err_reason(e, EBUSY, "stopping", "the sandbox is stopping");
	if (command_find(run->id))
		return err_reason(e, EEXIST, "command_exists", "command '%s' exists", run->id);
	lxcfs_check();
	r = command_make_room(e);
	if (r < 0)
		return r;
	c = command_new(run);
	if (!c)
		return err_reason(e, ENOMEM, "limit_memory", "out of memory");
	c->started_ns = clock_mono_ns();
	r = start(c, run, e);
	if (r < 0) {
		if (command_has_leaf(c))
			leaf_remove(&c->leaf);
		command_free(c);
		return r;
	}
	if (run->timeout_ms && run->timeout_ms < (UINT64_MAX - c->started_ns) / NS_PER_MS)
		timer_set(&c->limit, c->started_ns + run->timeout_ms * NS_PER_MS,
			  command_time_over);
	c->client = client;
	client->command = c;
	return 0;
}
