#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"

#include "client.h"

static int watch(const int *numbers, size_t n, struct err *e)
{
	struct sigaction act;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (size_t i = 0; i < n; i++) {
		if (sigaction(numbers[i], NULL, &act) == 0 && act.sa_handler != SIG_IGN)
			sigaddset(&set, numbers[i]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_set(e, errno, "signalfd: %s", strerror(errno)) : fd;
}

int signals_hold(struct cli *c, struct err *e)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	int fd;

	if (c->client->cancel_fd >= 0)
		return 0;
	fd = watch(numbers, ARRAY_SIZE(numbers), e);
	if (fd < 0)
		return fd;
	c->client->cancel_fd = fd;
	return 0;
}

int signals_terminal(struct err *e)
{
	static const int numbers[] = { SIGWINCH, SIGTSTP, SIGCONT };

	return watch(numbers, ARRAY_SIZE(numbers), e);
}

int signals_read(int fd)
{
	struct signalfd_siginfo info;

	return fd >= 0 && read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)
		       ? (int)info.ssi_signo
		       : 0;
}

int signals_next(struct cli *c)
{
	return signals_read(c->client->cancel_fd);
}

int signals_taken(struct cli *c)
{
	if (!c->signal)
		c->signal = signals_next(c);
	return c->signal;
}

void signals_ignore(struct cli *c)
{
	signals_taken(c);
	if (c->client->cancel_fd >= 0)
		close(c->client->cancel_fd);
	c->client->cancel_fd = -1;
}
