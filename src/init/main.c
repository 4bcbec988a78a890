/*
 * skerry-init: PID 1 of a sandbox and its agent.
 *
 * Started by the keeper as `skerry-init run` with the descriptors of init_fds.h, before anything
 * foreign runs in the sandbox. It speaks to the host only, and holds nothing the sandbox does not
 * own already: root inside can stop it, and loses its own machine by that. `skerry-init unpack` is
 * the other thing it is started for (untar.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/agent.h"

#include "init/command.h"
#include "init/conn.h"
#include "init/file_calls.h"
#include "init/init_fds.h"
#include "init/loop.h"
#include "init/shutdown.h"
#include "init/untar.h"

enum { HOST_GRACE_MS = 10000, REAP_MOST = 256, TIMER_SLACK_NS = 1000 };

static struct source signals = SOURCE_NONE;
static struct timer reap_again;

static void reap(struct timer *t)
{
	/* so many a turn: whoever makes orphans without end shall not have all of our time */
	for (int i = 0; i < REAP_MOST; i++) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid <= 0) {
			shutdown_reaped();
			return;
		}
		file_call_reaped(pid);
		command_reaped(pid, status);
	}
	timer_set(t, 0, reap);
}

static void signals_ready(struct source *s, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	if (read(s->fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGCHLD)
		reap(&reap_again);
	/* pid 0: from outside of our pid namespace */
	else if (info.ssi_signo == SIGTERM && info.ssi_pid == 0)
		shutdown_start(HOST_GRACE_MS);
}

static int watch_signals(void)
{
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	return source_open(&signals, fd, EPOLLIN, signals_ready);
}

static int run(void)
{
	int r;

	if (getpid() != 1) {
		log_error("run: not PID 1 of a pid namespace");
		return 1;
	}
	/* whatever was given beyond the agreed numbers is an accident of the caller's */
	for (int fd = INIT_FD_LISTEN; fd < INIT_FD_END; fd++)
		fd_cloexec(fd, 1);
	close_range(INIT_FD_END, ~0U, 0);
	prctl(PR_SET_DUMPABLE, 0);
	umask(022);
	prctl(PR_SET_TIMERSLACK,
	      TIMER_SLACK_NS); /* output is paced by fractions of a millisecond */
	/* output comes and goes in windows: what one took is not given back to be taken again */
	mallopt(M_TRIM_THRESHOLD, 4 * AGENT_WINDOW);
	command_init();
	r = loop_init();
	if (!r)
		r = watch_signals();
	if (!r)
		r = conn_listen(INIT_FD_LISTEN);
	if (r < 0) {
		log_error("start: %s", strerror(-r));
		return 1;
	}
	loop_run();
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} verbs[] = {
	{ "run", run },
	{ "unpack", untar_main },
};

int main(int argc, char **argv)
{
	log_open("skerry-init", LOG_NOTICE);
	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run();
	}
	log_error("usage: skerry-init run|unpack");
	return 2;
}
