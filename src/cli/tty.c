#include "tty.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"

static struct termios before;
static volatile sig_atomic_t raw;

/* In the background the terminal is somebody else's, and setting it would stop us. */
static bool ours(void)
{
	return tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static int set_raw(void)
{
	struct termios t = before;

	cfmakeraw(&t);
	return tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

void tty_restore(void)
{
	if (!raw)
		return;
	if (ours())
		tcsetattr(STDIN_FILENO, TCSANOW, &before);
	raw = false;
}

static void on_deadly(int number)
{
	tty_restore();
	raise(number); /* its action is the default again */
}

/* Signals that end us and are not looked after elsewhere: those whose action nobody has changed. */
static void catch_deadly(void)
{
	static const int harmless[] = { SIGKILL, SIGSTOP, SIGCHLD, SIGURG, SIGWINCH,
					SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU };
	struct sigaction old, act = { .sa_handler = on_deadly, .sa_flags = (int)SA_RESETHAND };

	for (int n = 1; n <= SIGRTMAX; n++) {
		bool skip = false;

		for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
			skip |= n == harmless[i];
		if (!skip && sigaction(n, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(n, &act, NULL);
	}
}

int tty_raw(struct err *e)
{
	static bool first = true;

	if (raw)
		return 0;
	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return err_set(e, errno, "the terminal: %s", strerror(errno));
	if (first)
		atexit(tty_restore);
	if (first)
		catch_deadly();
	first = false;
	raw = true; /* before it is: an end between the two restores what is there */
	if (set_raw() < 0) {
		raw = false;
		return err_set(e, errno, "the terminal: %s", strerror(errno));
	}
	return 0;
}

bool tty_is_raw(void)
{
	return raw;
}

void tty_stop(void)
{
	bool was = raw;
	sigset_t set;

	tty_restore();
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raw = was;
	tty_resume();
}

void tty_resume(void)
{
	if (raw && ours())
		set_raw();
}

bool tty_size(unsigned *cols, unsigned *rows)
{
	struct winsize w = { 0 };

	if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0) ||
	    !w.ws_col || !w.ws_row)
		return false;
	*cols = w.ws_col;
	*rows = w.ws_row;
	return true;
}
