#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "doctor.h"

enum { KERNEL_LEAST = 519, KERNEL_QUOTA = 607, TEXT_SIZE = 64 * 1024 };

/* "6.1.0-18-amd64" → 601 */
static unsigned kernel_version(char *release, size_t size)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	if (uname(&u) < 0)
		return 0;
	snprintf(release, size, "%s", u.release);
	if (sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return 0;
	return major * 100 + minor;
}

static void check_kernel(struct findings *f)
{
	char release[sizeof(((struct utsname *)0)->release)] = "?";
	unsigned v = kernel_version(release, sizeof(release));

	if (v < KERNEL_LEAST)
		finding(f, CHECK_FAIL, "kernel", "boot Linux 6.1 or later (Debian 12 has it)",
			"%s cannot map ids of overlay layers", release);
	else if (v < KERNEL_QUOTA)
		finding(f, CHECK_OK, "kernel", NULL,
			"%s (data shared with a source counts against a disk limit; 6.7 ends that)",
			release);
	else
		finding(f, CHECK_OK, "kernel", NULL, "%s", release);
}

/* A controller list as the kernel prints it: words between blanks, or lines of /proc/cgroups. */
static bool has_controller(const char *path, const char *name)
{
	char text[4096];
	size_t len = strlen(name);

	if (read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	for (const char *p = text; (p = strstr(p, name)); p += len) {
		if ((p == text || strchr(" \n", p[-1])) && strchr(" \t\n", p[len]))
			return true;
	}
	return false;
}

static void check_controllers(struct findings *f, const char *list)
{
	static const char *const names[] = { "cpu", "cpuset", "memory", "pids" };
	char missing[64] = "";

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = strlen(missing);

		if (!has_controller(list, names[i]))
			snprintf(missing + len, sizeof(missing) - len, " %s", names[i]);
	}
	if (*missing)
		finding(f, CHECK_WARN, "limits",
			"enable them, on the kernel's command line or in the parent of this "
			"container",
			"no cgroup controller for:%s; such limits are not enforced", missing);
	else
		finding(f, CHECK_OK, "limits", NULL,
			"cgroup controllers cpu, cpuset, memory, pids");
}

static void check_cgroups(struct findings *f)
{
	struct statfs s;
	bool v2 = statfs("/sys/fs/cgroup", &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC;
	bool hybrid =
		!v2 && statfs("/sys/fs/cgroup/unified", &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC;

	if (v2)
		finding(f, CHECK_OK, "cgroups", NULL, "version 2");
	else if (hybrid)
		finding(f, CHECK_OK, "cgroups", NULL,
			"hybrid: limits by version 1, kill and freeze by 2");
	else if (access("/sys/fs/cgroup/memory", F_OK) == 0)
		finding(f, CHECK_WARN, "cgroups",
			"boot with systemd.unified_cgroup_hierarchy=1, or mount a cgroup2",
			"version 1 only: ending a process tree takes longer");
	else
		finding(f, CHECK_FAIL, "cgroups", "mount a cgroup2 at /sys/fs/cgroup",
			"none are mounted at /sys/fs/cgroup");
	check_controllers(f, v2 ? "/sys/fs/cgroup/cgroup.controllers" : "/proc/cgroups");
}

/* Is `needle` a word of one of the file's lines, or (a module) the end of a path in it? */
static bool file_names(const char *path, const char *needle)
{
	_cleanup_fclose_ FILE *file = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	size_t size = 0;

	while (file && getline(&line, &size, file) >= 0) {
		const char *at = strstr(line, needle);

		if (at && at > line && strchr("\t/", at[-1]) && strchr("\n.:", at[strlen(needle)]))
			return true;
	}
	return false;
}

static bool filesystem_known(const char *name, bool *ret_module)
{
	char path[256], module[64], release[128];

	*ret_module = false;
	if (file_names("/proc/filesystems", name))
		return true;
	kernel_version(release, sizeof(release));
	snprintf(module, sizeof(module), "%s.ko", name);
	for (int builtin = 0; builtin < 2; builtin++) {
		snprintf(path, sizeof(path), "/lib/modules/%s/modules.%s", release,
			 builtin ? "builtin" : "dep");
		if (file_names(path, module)) {
			*ret_module = !builtin;
			return true;
		}
	}
	return false;
}

static void check_filesystems(struct findings *f)
{
	static const char *const names[] = { "btrfs", "overlay" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		bool module;

		if (filesystem_known(names[i], &module))
			finding(f, CHECK_OK, names[i], NULL, "%s",
				module ? "a module, loaded when first used" : "in the kernel");
		else
			finding(f, CHECK_FAIL, names[i],
				"use a kernel that has it; Debian's cloud and generic kernels do",
				"this kernel does not know the file system");
	}
}

static void check_namespaces(struct findings *f)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	char path[64], text[32] = "";

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
		if (access(path, F_OK) == 0)
			continue;
		finding(f, CHECK_FAIL, "namespaces", "use a kernel that has them",
			"this kernel has no %s namespaces", kinds[i]);
		return;
	}
	read_text_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", text, sizeof(text));
	if (str_eq(text, "0\n"))
		finding(f, CHECK_FAIL, "namespaces", "sysctl user.max_user_namespaces=65536",
			"user namespaces are switched off (user.max_user_namespaces is 0)");
	else
		finding(f, CHECK_OK, "namespaces", NULL, "user, mount, pid, net, ipc, uts, cgroup");
}

static void check_seccomp(struct findings *f)
{
	char text[256];

	if (read_text_at(AT_FDCWD, "/proc/sys/kernel/seccomp/actions_avail", text, sizeof(text)) <
	    0)
		finding(f, CHECK_FAIL, "seccomp", "use a kernel with CONFIG_SECCOMP_FILTER",
			"this kernel has no seccomp filters");
	else
		finding(f, CHECK_OK, "seccomp", NULL, "filters are there");
}

static void check_devices(struct findings *f)
{
	if (access("/dev/loop-control", F_OK) == 0)
		finding(f, CHECK_OK, "loop", NULL, "loop devices, for a pool in a file");
	else
		finding(f, CHECK_WARN, "loop",
			"modprobe loop, or give the pool a partition: POOL=/dev/…",
			"no /dev/loop-control: a pool in a file cannot be attached");
	if (access("/dev/fuse", F_OK) < 0)
		finding(f, CHECK_WARN, "fuse", "modprobe fuse",
			"no /dev/fuse: file systems in user space do not work in sandboxes");
	else
		finding(f, CHECK_OK, "fuse", NULL, "/dev/fuse");
}

/* In the places where administration programs lie, whatever our PATH says. */
static bool program_find(const char *name, char *out, size_t size)
{
	static const char *const dirs[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
					    "/usr/bin",        "/sbin",          "/bin" };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(out, size, "%s/%s", dirs[i], name);
		if (access(out, X_OK) == 0)
			return true;
	}
	return false;
}

static void check_programs(struct findings *f)
{
	static const struct {
		const char *name, *package, *what;
		enum verdict without;
	} programs[] = {
		{ "haproxy", "haproxy", "the API has no TCP face", CHECK_FAIL },
		{ "nft", "nftables", "sandboxes have no network", CHECK_FAIL },
		{ "mkfs.btrfs", "btrfs-progs", "a pool cannot be made", CHECK_FAIL },
		{ "dnsmasq", "dnsmasq-base", "sandboxes cannot resolve names", CHECK_WARN },
		{ "lxcfs", "lxcfs", "free and uptime in sandboxes tell of the host", CHECK_WARN },
		{ "mmdebstrap", "mmdebstrap", "images cannot be built, only imported", CHECK_WARN },
	};
	char path[128], hint[64];

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		if (program_find(programs[i].name, path, sizeof(path))) {
			finding(f, CHECK_OK, programs[i].name, NULL, "%s", path);
			continue;
		}
		snprintf(hint, sizeof(hint), "apt install %s", programs[i].package);
		finding(f, programs[i].without, programs[i].name, hint, "not installed: %s",
			programs[i].what);
	}
}

static void check_forwarding(struct findings *f)
{
	char text[16];

	if (read_text_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", text, sizeof(text)) > 0 &&
	    text[0] == '1')
		finding(f, CHECK_OK, "forwarding", NULL, "net.ipv4.ip_forward is 1");
	else
		finding(f, CHECK_WARN, "forwarding",
			"sysctl net.ipv4.ip_forward=1 (make up sets it)",
			"net.ipv4.ip_forward is off: sandboxes do not reach the outside");
}

static void check_firewall(struct findings *f)
{
	char nft[128];

	if (program_find("nft", nft, sizeof(nft)))
		doctor_firewall(f, nft);
}

void doctor_host(struct findings *f)
{
	static void (*const checks[])(struct findings * f) = {
		check_kernel,     check_cgroups,     check_namespaces,
		check_seccomp,    check_filesystems, check_devices,
		check_forwarding, check_firewall,    check_programs,
	};

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		checks[i](f);
}
