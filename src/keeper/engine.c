#include "engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

enum { CP_MEMORY_MAX = 256 * 1024 * 1024 };

static const struct part {
	const char *path, *name; /* in the layer, in the engine */
} parts[] = {
	{ "var/lib/docker", "docker" },
	{ "var/lib/containerd", "containerd" },
};

/* The modes are what the sandbox sees. */
static const struct row {
	const char *parent, *name;
	mode_t mode;
} rows[] = {
	{ ".", "docker", 0710 },
	{ "docker", "overlay2", 0710 },
	/* there in advance, so that every Docker takes overlay2 and not its btrfs driver */
	{ "docker/overlay2", "l", 0700 },
	{ ".", "containerd", 0711 },
};

/* What an archive may have in the way of a directory. */
static bool no_dir(int fd)
{
	return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP;
}

static int has_entries(int layer, const char *path, struct err *e)
{
	int fd = open_beneath(layer, path, O_RDONLY | O_DIRECTORY, 0);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (no_dir(fd))
		return 0;
	if (!d) {
		int r = err_set(e, fd < 0 ? fd : errno, "look into the layer's '%s': %m", path);

		close_p(&fd);
		return r;
	}
	errno = 0;
	while ((entry = readdir(d))) {
		if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, ".."))
			return 1;
	}
	return errno ? err_set(e, errno, "look into the layer's '%s': %m", path) : 0;
}

int engine_brings(int layer, struct err *e)
{
	int r = 0;

	for (unsigned i = 0; !r && i < ARRAY_SIZE(parts); i++)
		r = has_entries(layer, parts[i].path, e);
	return r;
}

/* Takes from cp all that copying files does not need. It remembers every file with several names. */
static void confine_cp(void)
{
	static const uint64_t keep = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE |
				     1u << CAP_DAC_READ_SEARCH | 1u << CAP_FOWNER |
				     1u << CAP_FSETID | 1u << CAP_MKNOD | 1u << CAP_SETFCAP;
	const struct rlimit memory = { CP_MEMORY_MAX, CP_MEMORY_MAX };

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap) < 0)
			_exit(126);
	}
	if (setrlimit(RLIMIT_AS, &memory) < 0)
		_exit(126);
}

static void run_cp(int from, int to, int complaints)
{
	static char *const envp[] = { (char *)"LC_ALL=C", NULL };
	char source[32], target[32];

	/* a worker that is killed at its deadline leaves nobody who goes on */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	confine_cp();
	snprintf(source, sizeof(source), "/proc/self/fd/%d/.", from);
	snprintf(target, sizeof(target), "/proc/self/fd/%d/.", to);
	if (!fd_cloexec(from, 0) && !fd_cloexec(to, 0) && dup2(complaints, 1) >= 0 &&
	    dup2(complaints, 2) >= 0)
		execle("/bin/cp", "cp", "-aT", "--reflink=auto", source, target, (char *)NULL,
		       envp);
	_exit(127);
}

/* Closes `complaints`: a cp that has more to say than one line is ended. */
static int await_cp(pid_t pid, int *complaints, struct err *e)
{
	char text[160];
	ssize_t n = read_full(*complaints, text, sizeof(text) - 1);
	int status;

	close_p(complaints);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return err_set(e, errno, "wait for cp: %m");
	}
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(e, EIO, "copy what the image has for engines: %s",
			       *text ? text : "cp did not run to its end");
	return 0;
}

/*
 * The content of one directory into another, with owners, modes, times, links, attributes. Safe as
 * the host's root although an archive made the names: `cp -a` follows no link, both directories are
 * held, and nobody else can change either while it runs: the unpacker is gone, and engines of
 * layers are read-only.
 */
int engine_copy(int from, int to, struct err *e)
{
	_cleanup_close_ int complaints_r = -1, complaints_w = -1;
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, errno, "pipe: %m");
	complaints_r = p[0];
	complaints_w = p[1];
	pid = fork();
	if (pid < 0)
		return err_set(e, errno, "fork: %m");
	if (!pid)
		run_cp(from, to, complaints_w);
	close_p(&complaints_w);
	return await_cp(pid, &complaints_r, e);
}

static int take_part(int layer, int to, const struct part *p, struct err *e)
{
	_cleanup_close_ int from = open_beneath(layer, p->path, O_RDONLY | O_DIRECTORY, 0);
	_cleanup_close_ int part = -1;

	if (no_dir(from))
		return 0;
	if (from < 0)
		return err_set(e, from, "open the layer's '%s': %m", p->path);
	if (mkdirat(to, p->name, 0700) < 0)
		return err_set(e, errno, "make 'engine/%s': %m", p->name);
	part = open_beneath(to, p->name, O_RDONLY | O_DIRECTORY, 0);
	return part < 0 ? err_set(e, part, "open 'engine/%s': %m", p->name)
			: engine_copy(from, part, e);
}

int engine_take(int layer, int to, struct err *e)
{
	int r = 0;

	for (unsigned i = 0; !r && i < ARRAY_SIZE(parts); i++)
		r = take_part(layer, to, &parts[i], e);
	return r ? r : engine_tree(to, e);
}

int engine_tree(int to, struct err *e)
{
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *w = &rows[i];
		_cleanup_close_ int dir = open_beneath(to, w->parent, O_RDONLY | O_DIRECTORY, 0);

		if (no_dir(dir))
			continue; /* the archive has something else there, which stays */
		if (dir < 0)
			return err_set(e, dir, "open 'engine/%s': %m", w->parent);
		if (mkdirat(dir, w->name, w->mode) < 0) {
			if (errno == EEXIST)
				continue;
			return err_set(e, errno, "make 'engine/%s/%s': %m", w->parent, w->name);
		}
		if (fchmodat(dir, w->name, w->mode, 0) < 0)
			return err_set(e, errno, "make 'engine/%s/%s': %m", w->parent, w->name);
	}
	return 0;
}
