#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client.h"

int signals_hold(struct cli *c, struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_set(e, errno, "signalfd: %s", strerror(errno));
	c->client->cancel_fd = fd;
	return 0;
}

int signals_taken(struct cli *c)
{
	struct signalfd_siginfo info;
	int fd = c->client->cancel_fd;

	if (!c->signal && fd >= 0 && read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		c->signal = (int)info.ssi_signo;
	return c->signal;
}

void signals_ignore(struct cli *c)
{
	signals_taken(c);
	if (c->client->cancel_fd >= 0)
		close(c->client->cancel_fd);
	c->client->cancel_fd = -1;
}
