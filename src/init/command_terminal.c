/* The terminal of a command: PID 1 holds its master, and one slave until the command has ended. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "init/command_priv.h"

/* Of the file system itself, taken before anything foreign ran: what the sandbox mounts over it or
 * into it later is not met. */
static int pts_dir = -1;

void command_terminal_init(void)
{
	pts_dir = open("/dev/pts", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int open_master(void)
{
	const struct open_how how = {
		.flags = O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
	};

	return (int)syscall(SYS_openat2, pts_dir, "ptmx", &how, sizeof(how));
}

/* As a terminal of today: bytes are UTF-8, so that erasing takes whole characters. */
static int set_up(int slave, uint16_t cols, uint16_t rows)
{
	struct winsize size = { .ws_col = cols, .ws_row = rows };
	struct termios t;

	if (tcgetattr(slave, &t) < 0)
		return -errno;
	t.c_iflag |= IUTF8;
	if (tcsetattr(slave, TCSANOW, &t) < 0 || ioctl(slave, TIOCSWINSZ, &size) < 0)
		return -errno;
	return 0;
}

int command_terminal_open(uint16_t cols, uint16_t rows, int *ret_master, int *ret_slave)
{
	_cleanup_close_ int master = pts_dir < 0 ? -1 : open_master();
	_cleanup_close_ int slave = -1;
	int unlocked = 0, r;

	if (pts_dir < 0)
		return -ENXIO;
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	r = set_up(slave, cols, rows);
	if (r < 0)
		return r;
	*ret_master = take_fd(&master);
	*ret_slave = take_fd(&slave);
	return 0;
}

pid_t command_foreground(const struct command *c)
{
	pid_t group;

	/* 0: of no process that is seen from here */
	if (c->terminal && c->out[OUT].fd >= 0 && ioctl(c->out[OUT].fd, TIOCGPGRP, &group) == 0 &&
	    group > 1)
		return group;
	return c->pid;
}

/* As when a line goes dead: to the session's leader, and to who is in the foreground. */
void command_hang_up(const struct command *c)
{
	const pid_t groups[] = { c->pid, command_foreground(c) };

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		kill(-groups[i], SIGHUP);
		kill(-groups[i], SIGCONT); /* who is stopped hears of it too */
	}
}

int command_resize(const struct agent_resize *s, struct err *e)
{
	struct winsize size = { .ws_col = s->cols, .ws_row = s->rows }, old;
	struct command *c = command_find(s->id);

	if (!c)
		return err_reason(e, ESRCH, "command_unknown", "command '%s' is not known", s->id);
	if (!c->terminal)
		return err_reason(e, ENOTTY, "not_a_terminal", "command '%s' has no terminal",
				  s->id);
	if (c->reaped || c->out[OUT].fd < 0)
		return err_reason(e, ESRCH, "command_ended", "command '%s' has ended", s->id);
	if (ioctl(c->out[OUT].fd, TIOCGWINSZ, &old) < 0 ||
	    ioctl(c->out[OUT].fd, TIOCSWINSZ, &size) < 0)
		return err_reason(e, errno, "resize_failed", "resize the terminal of '%s': %m",
				  s->id);
	/* a changed size the kernel tells itself; the same one asks to draw anew */
	if (old.ws_col == size.ws_col && old.ws_row == size.ws_row && c->state != STARTING)
		kill(-command_foreground(c), SIGWINCH);
	return 0;
}
