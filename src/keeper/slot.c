#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#include "net.h"

void slot_ns_close(struct slot_ns *s)
{
	close_p(&s->userns);
	close_p(&s->netns);
}

/* A child that does nothing but be in new namespaces; the caller kills it. */
static pid_t hold_namespaces(void)
{
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNET,
		.exit_signal = SIGCHLD,
	};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static int write_map(pid_t pid, const char *file, uint32_t root_id)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	snprintf(text, sizeof(text), "0 %u %d\n", root_id, IDS_PER_SLOT);
	return write_text_at(AT_FDCWD, path, text);
}

static int open_ns(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int slot_namespaces(uint32_t root_id, struct slot_ns *ret, struct err *e)
{
	struct slot_ns s = SLOT_NS_INIT;
	pid_t pid = -1;
	int r = 0;

	/* only the effective ids: what is needed to come back stays saved */
	if (setresgid(-1, root_id, -1) < 0 || setresuid(-1, root_id, -1) < 0)
		r = err_set(e, errno, "take the ids of the slot: %m");
	if (!r && (pid = hold_namespaces()) < 0)
		r = err_set(e, errno, "make user namespace: %m");
	if (setresuid(-1, 0, -1) < 0 || setresgid(-1, 0, -1) < 0)
		_exit(1); /* never go on with foreign ids */
	if (!r && (r = write_map(pid, "uid_map", root_id)))
		err_set(e, r, "write uid_map: %m");
	if (!r && (r = write_map(pid, "gid_map", root_id)))
		err_set(e, r, "write gid_map: %m");
	if (!r && ((s.userns = open_ns(pid, "user")) < 0 || (s.netns = open_ns(pid, "net")) < 0))
		r = err_set(e, errno, "open namespaces: %m");
	if (pid > 0) {
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (r) {
		slot_ns_close(&s);
		return r;
	}
	*ret = s;
	return 0;
}

int slot_make(const struct conf *c, uint32_t slot, struct slot_ns *ret, struct err *e)
{
	struct slot_ns s = SLOT_NS_INIT;
	int r = slot_namespaces(conf_root_id(c, slot), &s, e);

	if (!r)
		r = net_link(c, slot, s.netns, e);
	if (r) {
		slot_ns_close(&s);
		return r;
	}
	*ret = s;
	return 0;
}
