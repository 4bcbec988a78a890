/*
 * skerry-quota DIR: turn quotas on for the btrfs that DIR lies on, simple ones where the kernel
 * has them (6.7), else classic ones, and print which. Called by skerry-setup as root; the btrfs
 * tools of Debian 12 know only the classic kind.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA, newer than the headers this is built with */
enum { QUOTA_CLASSIC = BTRFS_QUOTA_CTL_ENABLE, QUOTA_SIMPLE = 4 };

static const struct {
	unsigned long long command;
	const char *name;
} kinds[] = {
	{ QUOTA_SIMPLE, "simple" },
	{ QUOTA_CLASSIC, "classic" },
};

int main(int argc, char **argv)
{
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: skerry-quota DIR\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "skerry-quota: open '%s': %s\n", argv[1], strerror(errno));
		return 1;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct btrfs_ioctl_quota_ctl_args args = { .cmd = kinds[i].command };

		if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) == 0) {
			puts(kinds[i].name);
			close(fd);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		if (errno != EINVAL)
			break;
	}
	fprintf(stderr, "skerry-quota: enable quotas on '%s': %s\n", argv[1], strerror(errno));
	close(fd);
	return 1;
}
