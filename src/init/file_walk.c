#include "init/file_walk.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include "base/banned.h"
#include "base/cleanup.h"

bool file_of_kernel(int fd)
{
	static const long magics[] = {
		PROC_SUPER_MAGIC,        SYSFS_MAGIC,         DEVPTS_SUPER_MAGIC,
		CGROUP_SUPER_MAGIC,      CGROUP2_SUPER_MAGIC, TRACEFS_MAGIC,
		DEBUGFS_MAGIC,           SECURITYFS_MAGIC,    BPF_FS_MAGIC,
		0x19800202 /* mqueue */,
	};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
		if (fs.f_type == magics[i])
			return true;
	}
	return false;
}
