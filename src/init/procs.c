#include "init/procs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

static int proc_dir = -1;

void procs_init(void)
{
	long fd = syscall(SYS_open_tree, AT_FDCWD, "/proc", OPEN_TREE_CLONE | O_CLOEXEC);

	if (fd < 0)
		fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	proc_dir = (int)fd;
}

int procs_dir(void)
{
	return proc_dir;
}

/* "pid (comm) state ppid pgrp session …"; comm may hold anything, ')' too. */
static bool read_proc(const char *name, struct proc *ret)
{
	char path[300], text[1024];
	const char *p;
	char state;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/stat", name);
	n = read_text_at(proc_dir, path, text, sizeof(text));
	p = n < 0 ? NULL : strrchr(text, ')');
	if (!p || sscanf(p, ") %c %d %d %d", &state, &ret->parent, &ret->group, &ret->session) != 4)
		return false;
	return state != 'Z' && state != 'X';
}

ssize_t procs_list(struct proc **ret)
{
	_cleanup_free_ struct proc *list = NULL;
	_cleanup_dir_ DIR *d = NULL;
	size_t n = 0, room = 0;
	struct dirent *ent;
	int fd = proc_dir < 0 ? -1 : openat(proc_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return proc_dir < 0 ? -ENOENT : -errno;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while ((ent = readdir(d))) {
		struct proc p;
		uint64_t pid;

		if (str_u64(ent->d_name, 2, INT32_MAX, &pid) < 0 || !read_proc(ent->d_name, &p))
			continue;
		p.pid = (pid_t)pid;
		if (n == room) {
			struct proc *more =
				realloc(list, (room = room ? 2 * room : 64) * sizeof(p));

			if (!more)
				return -ENOMEM;
			list = more;
		}
		list[n++] = p;
	}
	*ret = take_ptr(list);
	return (ssize_t)n;
}

int procs_signal_tree(pid_t pid, int sig)
{
	_cleanup_free_ struct proc *list = NULL;
	_cleanup_free_ bool *in = NULL;
	ssize_t n = procs_list(&list);
	int count = 0;

	in = list && n > 0 ? calloc((size_t)n, sizeof(*in)) : NULL;
	if (!in)
		return 0;
	for (bool more = true; more;) {
		more = false;
		for (ssize_t i = 0; i < n; i++) {
			bool hit = list[i].pid == pid || list[i].group == pid ||
				   list[i].session == pid;

			for (ssize_t j = 0; !hit && !in[i] && j < n; j++)
				hit = in[j] && list[j].pid == list[i].parent;
			more |= hit && !in[i];
			in[i] |= hit;
		}
	}
	for (ssize_t i = 0; i < n; i++)
		count += in[i] && kill(list[i].pid, sig) == 0;
	return count;
}
