/*
 * PID 1's half of a launch, with the rights of the sandbox's root and before anything foreign ran.
 *
 * Why this is safe for a disk that a hostile sandbox wrote: the process has no privilege outside
 * its user namespace; every path is walked component by component beneath the new root without
 * following links; the only objects taken from the host are the device nodes of one table.
 */
#include "inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "cpuset.h"
#include "filter.h"
#include "init/init_fds.h"
#include "launch.h"

static int become_root(struct err *e)
{
	/* the supplementary group stays: it is the host's, and PID 1's key to its own cgroups */
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_set(e, errno, "become the sandbox's root: %m");
	return 0;
}

/* The stage's `m` as a mount of our own: the inherited one is locked and cannot become root. */
static int own_root(struct err *e)
{
	int fd;

	if (mount("m", "m", NULL, MS_BIND | MS_REC, NULL) < 0)
		return err_set(e, errno, "bind the root: %m");
	fd = open("m", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open the root: %m") : fd;
}

static int enter_root(int root, struct err *e)
{
	if (fchdir(root) < 0)
		return err_set(e, errno, "enter the root: %m");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return err_set(e, errno, "pivot_root: %m");
	if (umount2(".", MNT_DETACH) < 0)
		return err_set(e, errno, "let the host's root go: %m");
	return chdir("/") < 0 ? err_set(e, errno, "enter '/': %m") : 0;
}

/* True where the file is missing or begins with our own mark: a user's own is left alone. */
static bool ours(int root, const char *path, const char *mark)
{
	_cleanup_close_ int fd = open_beneath(root, path, O_RDONLY | O_NONBLOCK, 0);
	char head[64] = "";

	if (fd < 0)
		return true;
	return read(fd, head, strlen(mark)) >= 0 && str_starts(head, mark);
}

/* A disk that is new, or a copy of another sandbox's, does not have the identity it is given. */
static bool has_identity(int root, const char *machine_id)
{
	_cleanup_close_ int fd = open_beneath(root, "etc/machine-id", O_RDONLY | O_NONBLOCK, 0);
	char text[33] = "";

	return fd >= 0 && read(fd, text, 32) == 32 && str_eq(text, machine_id);
}

/* A full disk must still start: what could not be written is tried again by the next boot. */
static bool is_full(int r)
{
	return r == -EDQUOT || r == -ENOSPC;
}

static int write_files(int root, const struct launch *l, struct err *e)
{
	static const char mark[] = "# skerry: kept up to date until this line is removed\n";
	const struct keeper_sandbox_start *s = l->start;
	bool first = !has_identity(root, s->machine_id);
	char text[512], gateway[INET_ADDRSTRLEN];
	struct in_addr gateway4 = conf_gateway4(l->conf);
	/* the machine id last: it says that the others are there */
	static const char *const files[] = { "etc/hostname", "etc/hosts", "etc/machine-id" };
	int r = 0;

	for (unsigned i = 0; first && i < ARRAY_SIZE(files); i++) {
		if (i == 0)
			snprintf(text, sizeof(text), "%s\n", s->hostname);
		else if (i == 1)
			snprintf(text, sizeof(text),
				 "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n"
				 "::1\tlocalhost ip6-localhost ip6-loopback\n",
				 s->hostname);
		else
			snprintf(text, sizeof(text), "%s\n", s->machine_id);
		r = inside_text(root, files[i], text);
		if (r && !is_full(r))
			return err_set(e, r, "write '/%s': %m", files[i]);
	}
	if (first || ours(root, "etc/resolv.conf", mark)) {
		inet_ntop(AF_INET, &gateway4, gateway, sizeof(gateway));
		snprintf(text, sizeof(text), "%snameserver %s\n", mark, gateway);
		r = inside_text(root, "etc/resolv.conf", text);
	}
	return r && !is_full(r) ? err_set(e, r, "write '/etc/resolv.conf': %m") : 0;
}

/* Puts the agreed descriptors in their places and closes every other. */
static int place_fds(const struct launch *l, int cgroup_dir, struct err *e)
{
	int want[INIT_FD_END], moved[INIT_FD_END];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; i < INIT_FD_END; i++)
		want[i] = -1;
	want[INIT_FD_NULL] = l->start ? null : l->in;
	want[INIT_FD_OUT] = l->start ? null : l->out;
	want[INIT_FD_ERR] = l->start ? null : l->err;
	want[INIT_FD_LISTEN] = l->listen;
	want[INIT_FD_CGROUP] = cgroup_dir;
	want[INIT_FD_PROCS] = l->cgroup ? l->cgroup->work_procs : -1;
	want[INIT_FD_CGNS] = l->cgns;
	want[INIT_FD_OOM] = l->cgroup ? l->cgroup->work_oom : -1;
	for (unsigned i = 0; l->cgroup && i < l->cgroup->v1_count; i++)
		want[INIT_FD_V1_FIRST + i] = l->cgroup->work_v1[i];
	/* first out of the way of all targets, then each to its own */
	for (int i = 0; i < INIT_FD_END; i++) {
		moved[i] = want[i] < 0 ? -1 : fcntl(want[i], F_DUPFD_CLOEXEC, 64);
		if (want[i] >= 0 && moved[i] < 0)
			return err_set(e, errno, "place descriptors: %m");
	}
	for (int i = 0; i < INIT_FD_END; i++) {
		if (moved[i] >= 0 ? dup2(moved[i], i) < 0 : close(i) < 0 && errno != EBADF)
			return err_set(e, errno, "place descriptors: %m");
	}
	return 0;
}

static int wait_for_go(int go)
{
	char byte;
	ssize_t n;

	do
		n = read(go, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -ECANCELED;
}

static void reset_process(void)
{
	struct rlimit files;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_DFL);
	umask(022);
	setsid();
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int prepare_sandbox(const struct launch *l, int *ret_cgroup_dir, struct err *e)
{
	_cleanup_close_ int root = own_root(e);
	int r;

	if (root < 0)
		return root;
	r = inside_mounts(root, l, e);
	if (!r)
		r = write_files(root, l, e);
	if (!r)
		r = enter_root(root, e);
	if (r)
		return r;
	if (sethostname(l->start->hostname, strlen(l->start->hostname)) < 0)
		return err_set(e, errno, "set the host name: %m");
	if (!cpuset_available())
		cpuset_affinity(0, l->start->cpu_milli, l->start->slot);
	if (l->cgns >= 0)
		*ret_cgroup_dir = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

static int prepare_target(struct err *e)
{
	_cleanup_close_ int root = own_root(e);

	return root < 0 ? root : enter_root(root, e);
}

int inside_run(const struct launch *l, struct err *e)
{
	char run[] = "run", unpack[] = "unpack", name[] = "skerry-init";
	char *argv[] = { name, l->start ? run : unpack, NULL };
	char *envp[] = { NULL };
	_cleanup_close_ int init = fcntl(l->init, F_DUPFD_CLOEXEC, 128);
	_cleanup_close_ int status = fcntl(l->status, F_DUPFD_CLOEXEC, 128);
	_cleanup_close_ int go = fcntl(l->go, F_DUPFD_CLOEXEC, 128);
	int cgroup_dir = -1;
	int r = become_root(e);

	if (!r && l->cgroup)
		r = cgroup_enter_agent(l->cgroup, e);
	if (!r)
		r = l->start ? prepare_sandbox(l, &cgroup_dir, e) : prepare_target(e);
	if (r)
		return r;
	reset_process();
	if (!l->start)
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* goes with the worker that waits for it */
	r = filter_load();
	if (r)
		return err_set(e, r, "load the system call filter: %m");
	r = place_fds(l, cgroup_dir, e);
	if (r)
		return r;
	if (wait_for_go(go))
		_exit(126); /* the keeper is gone: it knows nothing of us */
	execveat(init, "", argv, envp, AT_EMPTY_PATH);
	r = errno;
	/* the caller's status descriptor may have been replaced by an agreed one */
	err_set(e, r, "run skerry-init: %m");
	(void)write_all(status, e->text, strlen(e->text));
	_exit(127);
}
