#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include "job.h"

struct worker {
	struct source source; /* first: the socket the result comes over */
	struct worker_spec spec;
	pid_t pid;
	struct worker *next; /* once ended */
};

static struct worker *ended; /* their result came, to be reaped */

static void finish(struct worker *w, struct worker_result *r)
{
	loop_remove(&w->source);
	close(w->source.fd);
	w->next = ended;
	ended = w;
	w->spec.done(w->spec.arg, r);
	for (unsigned i = 0; i < FDS_MAX; i++)
		close_p(&r->fds[i]);
	worker_reap(); /* its SIGCHLD may have come before its result was read */
}

/* A pointer of another process's making is not followed: reasons come as text, and are ours. */
static const char *own_reason(const char text[REASON_SIZE])
{
	static const char *const reasons[] = { "bad_archive", "disk_in_use", "memory_in_use" };

	for (unsigned i = 0; i < ARRAY_SIZE(reasons); i++) {
		if (!strncmp(text, reasons[i], REASON_SIZE))
			return reasons[i];
	}
	return NULL;
}

static void on_result(struct source *s, uint32_t events)
{
	struct worker *w = (struct worker *)s;
	struct worker_result r = { 0 };
	struct worker_result got;
	ssize_t n = recv_fds(s->fd, &got, sizeof(got), r.fds, &r.fds_count, MSG_DONTWAIT);

	(void)events;
	if (n == -EAGAIN)
		return;
	if (n == (ssize_t)sizeof(got)) {
		memcpy(got.fds, r.fds, sizeof(r.fds));
		got.fds_count = r.fds_count;
		got.err.reason = own_reason(got.reason);
		finish(w, &got);
		return;
	}
	r.status = err_set(&r.err, EIO, "the keeper's worker ended without a result");
	finish(w, &r);
}

static void on_late(struct source *s)
{
	struct worker *w = (struct worker *)s;
	struct worker_result r = { .fds = { -1, -1, -1, -1 } };

	kill(w->pid, SIGKILL);
	r.status = err_set(&r.err, ETIMEDOUT, "not done within %u ms", w->spec.timeout_ms);
	finish(w, &r);
}

static void run_child(const struct worker_spec *spec, int sock)
{
	struct worker_result r = { .fds = { -1, -1, -1, -1 } };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	r.status = spec->work(spec->arg, &r, &r.err);
	if (r.status > 0)
		r.status = 0;
	if (r.err.reason)
		str_copy(r.reason, sizeof(r.reason), r.err.reason);
	_exit(send_fds(sock, &r, sizeof(r), r.fds, r.fds_count) < 0);
}

int worker_start(const struct worker_spec *spec, struct err *e)
{
	struct clone_args args = { .flags = spec->clone_flags, .exit_signal = SIGCHLD };
	struct worker *w = calloc(1, sizeof(*w));
	int pair[2];

	if (!w)
		return err_set(e, ENOMEM, "start a worker: %m");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		free(w);
		return err_set(e, errno, "start a worker: %m");
	}
	if (spec->cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)spec->cgroup;
	}
	*w = (struct worker){
		.source = { .fd = pair[0], .ready = on_result, .late = on_late },
		.spec = *spec,
	};
	if (spec->timeout_ms)
		w->source.deadline_ns = clock_mono_ns() + spec->timeout_ms * NS_PER_MS;
	w->pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (!w->pid)
		run_child(spec, pair[1]);
	close(pair[1]);
	if (w->pid < 0 || loop_add(&w->source, EPOLLIN) < 0) {
		int r = err_set(e, errno, "start a worker: %m");

		if (w->pid > 0)
			kill(w->pid, SIGKILL);
		close(pair[0]);
		free(w);
		return r;
	}
	return 0;
}

void worker_reap(void)
{
	struct worker **at = &ended;

	while (*at) {
		struct worker *w = *at;
		pid_t r = waitpid(w->pid, NULL, WNOHANG);

		if (r == 0 || (r < 0 && errno == EINTR)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w);
	}
}
