/*
 * Tries, inside a sandbox, what must not work there. One word says what to try; each line of the
 * answer is what was tried and the errno that came of it, 0 where it worked. Static, so that it
 * runs in any image. It knows nothing of what is right: the test does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/tiocl.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static void tell(const char *what, long result)
{
	printf("%s %d\n", what, result < 0 ? errno : 0);
}

/* Numbers given as arguments; none of their arguments makes sense to the kernel. */
static int calls(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		long nr = strtol(argv[i], NULL, 0);

		tell(argv[i], syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L));
	}
	return 0;
}

static int families(int argc, char **argv)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET };
	char text[32];

	(void)argc;
	(void)argv;
	for (int family = 0; family < 64; family++) {
		int fd = -1, error = 0;

		for (unsigned t = 0; t < LENGTH(types) && fd < 0; t++) {
			fd = socket(family, types[t], 0);
			error = fd < 0 && error != EAFNOSUPPORT ? errno : error;
		}
		errno = error;
		snprintf(text, sizeof(text), "%d", family);
		tell(text, fd);
		close(fd);
	}
	return 0;
}

/* A directory of the file system, then request numbers. The argument is big enough for all. */
static int ioctls(int argc, char **argv)
{
	static char argument[65536];
	int fd = argc ? open(argv[0], O_RDONLY) : -1;

	if (fd < 0)
		return 1;
	for (int i = 1; i < argc; i++) {
		unsigned long request = strtoul(argv[i], NULL, 0);

		memset(argument, 0, sizeof(argument));
		((struct btrfs_ioctl_vol_args *)argument)->fd = fd;
		snprintf(argument + 8, 32, "made-%d", i);
		tell(argv[i], syscall(SYS_ioctl, fd, request, argument));
	}
	return 0;
}

static int terminals(int argc, char **argv)
{
	char letter = 'x', paste = TIOCL_PASTESEL;
	int master, slave;

	(void)argc;
	(void)argv;
	if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
		return 1;
	tell("TIOCSTI", ioctl(slave, TIOCSTI, &letter));
	tell("TIOCSTI-high", syscall(SYS_ioctl, slave, TIOCSTI | 1UL << 32, &letter));
	tell("TIOCLINUX", ioctl(slave, TIOCLINUX, &paste));
	return 0;
}

/* Each in a child, which the kernel may kill; then the signal's number stands negative. */
static void in_child(const char *what, long (*try)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(try() < 0 ? errno : 0);
	waitpid(pid, &status, 0);
	printf("%s %d\n", what, WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
}

#if defined(__x86_64__)
static long call_x32(void)
{
	return syscall(0x40000000 | SYS_getpid);
}

static long call_i386(void)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(20L)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}
#endif

static int foreign(int argc, char **argv)
{
	(void)argc;
	(void)argv;
#if defined(__x86_64__)
	in_child("x32", call_x32);
	in_child("i386", call_i386);
#endif
	return 0;
}

static long hold_handle(void)
{
	struct {
		struct file_handle h;
		unsigned char bytes[MAX_HANDLE_SZ];
	} x = { .h.handle_bytes = MAX_HANDLE_SZ };
	int id, dir = open("/", O_RDONLY | O_DIRECTORY);

	if (name_to_handle_at(AT_FDCWD, "/etc", &x.h, &id, 0) < 0) {
		/* the root directory of a btrfs subvolume, as exploits guess it */
		x.h.handle_bytes = 20;
		x.h.handle_type = 0x4d;
		memcpy(x.bytes, "\0\1\0\0\0\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0", 20);
	}
	return open_by_handle_at(dir, &x.h, O_RDONLY);
}

static int handles(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	in_child("open_by_handle_at", hold_handle);
	return 0;
}

/* Directories; makes nodes of the given device there and opens them. */
static int nodes(int argc, char **argv)
{
	unsigned major_nr = (unsigned)atoi(argv[0]), minor_nr = (unsigned)atoi(argv[1]);
	char path[4096], byte;

	for (int i = 2; i < argc; i++) {
		snprintf(path, sizeof(path), "%s/node", argv[i]);
		unlink(path);
		for (int block = 0; block < 2; block++) {
			int made = mknod(path, (block ? S_IFBLK : S_IFCHR) | 0666,
					 makedev(major_nr, minor_nr));
			int fd = made < 0 ? -1 : open(path, O_RDONLY);
			long got = fd < 0 ? -1 : read(fd, &byte, 1);

			tell(argv[i], got);
			unlink(path);
		}
	}
	return 0;
}

/* Opens and reads one byte. */
static int reads(int argc, char **argv)
{
	char buffer[64];

	for (int i = 0; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY | O_NONBLOCK);

		tell(argv[i], fd < 0 ? -1 : read(fd, buffer, sizeof(buffer)));
		close(fd);
	}
	return 0;
}

static int writes(int argc, char **argv)
{
	for (int i = 0; i + 1 < argc; i += 2) {
		int fd = open(argv[i], O_WRONLY | O_NONBLOCK);

		tell(argv[i], fd < 0 ? -1 : write(fd, argv[i + 1], strlen(argv[i + 1])));
		close(fd);
	}
	return 0;
}

static int links_of(int argc, char **argv)
{
	char target[4096];

	for (int i = 0; i < argc; i++)
		tell(argv[i], readlink(argv[i], target, sizeof(target)));
	return 0;
}

/* What one process does to another of the number given. */
static int intrude(int argc, char **argv)
{
	pid_t pid = argc ? atoi(argv[0]) : 1;
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)0x400000, 1 };
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	tell("attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
	tell("seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
	tell("readv", process_vm_readv(pid, &here, 1, &there, 1, 0));
	tell("writev", process_vm_writev(pid, &here, 1, &there, 1, 0));
	for (int fd = 0; fd < 16; fd++) {
		long got = pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, fd, 0);

		if (got >= 0 || errno != EBADF)
			tell("getfd", got);
	}
	return 0;
}

/* Type and place of a mount; the place is a directory made for it. */
static int mounts(int argc, char **argv)
{
	mkdir("/tmp/at", 0700);
	for (int i = 0; i < argc; i++) {
		int done = mount("none", "/tmp/at", argv[i], 0, NULL);

		tell(argv[i], done);
		if (!done)
			umount2("/tmp/at", MNT_DETACH);
	}
	return 0;
}

/* Place and flags to be left after a remount. */
static int remounts(int argc, char **argv)
{
	for (int i = 0; i + 1 < argc; i += 2)
		tell(argv[i], mount(NULL, argv[i], NULL,
				    MS_REMOUNT | MS_BIND | strtoul(argv[i + 1], NULL, 0), NULL));
	return 0;
}

/* Descriptors that are open, and where they lead. */
static int fds(int argc, char **argv)
{
	char path[64], target[4096];

	(void)argc;
	(void)argv;
	for (int fd = 0; fd < 4096; fd++) {
		ssize_t n;

		if (fcntl(fd, F_GETFD) < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		printf("%d %s\n", fd, target);
	}
	return 0;
}

/* All inotify instances there are for this user, held while standard input is open. */
static int inotify(int argc, char **argv)
{
	char byte;
	int n = 0;

	(void)argc;
	(void)argv;
	while (n < 100000 && inotify_init1(0) >= 0)
		n++;
	printf("instances %d\n", n);
	fflush(stdout);
	return argc && strcmp(argv[0], "hold") == 0 ? (pause(), 0) : (int)read(0, &byte, 1) < 0;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} tries[] = {
	{ "calls", calls },       { "families", families }, { "ioctls", ioctls },
	{ "tty", terminals },     { "foreign", foreign },   { "handles", handles },
	{ "nodes", nodes },       { "reads", reads },       { "writes", writes },
	{ "links", links_of },    { "intrude", intrude },   { "mounts", mounts },
	{ "remounts", remounts }, { "fds", fds },           { "inotify", inotify },
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc > 1 && i < LENGTH(tries); i++) {
		if (strcmp(argv[1], tries[i].name) == 0)
			return tries[i].run(argc - 2, argv + 2);
	}
	return 2;
}
