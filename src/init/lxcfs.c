#include "init/lxcfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include "init/lxcfs_files.h"

enum { EVERY_MS = 2000 };

static int probe = -1; /* one of its files: a path could lead to what root inside has put there */
static uint64_t next_ns;

void lxcfs_init(void)
{
	probe = open("/proc/uptime", O_PATH | O_CLOEXEC);
}

/* In a process of its own: a path may lead to a file system that does not answer. */
static _Noreturn void take_away(void)
{
	char path[32];

	close_range(0, ~0U, 0);
	for (int i = 0; i < LXCFS_FILES; i++) {
		snprintf(path, sizeof(path), "/%s", lxcfs_files[i]);
		umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	_exit(0);
}

void lxcfs_check(void)
{
	uint64_t now = clock_mono_ns();
	struct statfs fs;

	if (probe < 0 || now < next_ns)
		return;
	next_ns = now + EVERY_MS * NS_PER_MS;
	/* what the kernel tells itself never answers so */
	if (fstatfs(probe, &fs) == 0 || errno != ENOTCONN)
		return;
	close_p(&probe);
	if (fork() == 0)
		take_away();
}
