#include "record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include "cgroup.h"

enum { MAGIC = 0x736b7231 };

static int record_dir = -1;
static char boot_id[37];

int record_init(const char *run_dir, struct err *e)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/keeper", PATH_MAX - 16, run_dir);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make '%s': %m", path);
	record_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (record_dir < 0)
		return err_set(e, errno, "open '%s': %m", path);
	if (read_text_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", path, sizeof(path)) < 36)
		return err_set(e, EIO, "read the boot id");
	memcpy(boot_id, path, 36);
	return 0;
}

const char *record_boot_id(void)
{
	return boot_id;
}

uint64_t record_start_time(int pid)
{
	char path[64], text[2048];
	unsigned long long ticks = 0;
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (read_text_at(AT_FDCWD, path, text, sizeof(text)) <= 0 || !(p = strrchr(text, ')')))
		return 0;
	/* from field 3, after the name */
	if (sscanf(p + 1,
		   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
		   "%*d %llu",
		   &ticks) != 1)
		return 0;
	return ticks;
}

/* Younger than the headers of Debian 12. */
struct pidfd_exit_info {
	uint64_t mask, cgroup_id;
	uint32_t ids[11];
	int32_t exit_code;
};
#define PIDFD_EXIT_INFO      _IOWR(0xFF, 11, struct pidfd_exit_info)
#define PIDFD_EXIT_INFO_CODE (1ull << 3)

int record_exit_status(int pidfd)
{
	struct pidfd_exit_info info = { .mask = PIDFD_EXIT_INFO_CODE };

	if (ioctl(pidfd, PIDFD_EXIT_INFO, &info) < 0)
		return -errno;
	return info.mask & PIDFD_EXIT_INFO_CODE ? info.exit_code : -ENODATA;
}

/* Not synced: after a crash of the host the boot id says that it means nothing. */
static int put(const struct record *r)
{
	_cleanup_close_ int fd = -1;
	char temp[ID_SIZE + 8];
	int status;

	snprintf(temp, sizeof(temp), "%s.new", r->id);
	fd = openat(record_dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	status = write_all(fd, r, sizeof(*r));
	if (!status && renameat(record_dir, temp, record_dir, r->id) < 0)
		status = -errno;
	return status;
}

int record_write(struct record *r, struct err *e)
{
	int status;

	r->magic = MAGIC;
	r->size = sizeof(*r);
	memcpy(r->boot_id, boot_id, sizeof(boot_id));
	r->start_time = record_start_time(r->pid);
	status = r->start_time ? put(r) : -ESRCH;
	return status ? err_set(e, status, "write the record of '%s': %m", r->id) : 0;
}

void record_remove(const char *id)
{
	(void)unlinkat(record_dir, id, 0);
}

static int read_record(const char *name, struct record *r)
{
	_cleanup_close_ int fd = open_beneath(record_dir, name, O_RDONLY, 0);

	if (fd < 0 || read_full(fd, r, sizeof(*r)) != (ssize_t)sizeof(*r))
		return -EINVAL;
	r->id[sizeof(r->id) - 1] = '\0';
	return r->magic == MAGIC && r->size == sizeof(*r) && str_eq(r->id, name) ? 0 : -EINVAL;
}

static bool lives(const struct record *r)
{
	return !memcmp(r->boot_id, boot_id, sizeof(boot_id)) && r->pid > 1 &&
	       record_start_time(r->pid) == r->start_time && cgroup_holds(r->id, r->pid);
}

int record_each(void (*each)(const struct record *r), void (*dead)(const struct record *r),
		struct err *e)
{
	int fd = openat(record_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d)
		return err_set(e, errno, "list the records: %m");
	while ((entry = readdir(d))) {
		struct record r;

		if (!id_valid(entry->d_name, "sb") || read_record(entry->d_name, &r)) {
			if (entry->d_name[0] != '.' || str_ends(entry->d_name, ".new"))
				(void)unlinkat(record_dir, entry->d_name, 0);
		} else if (lives(&r)) {
			each(&r);
		} else {
			dead(&r);
			record_remove(r.id);
		}
	}
	return 0;
}
