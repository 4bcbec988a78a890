#pragma once
/*
 * The files of /proc that lxcfs tells truthfully for a sandbox: by its limits, and from its start. The
 * keeper puts them in their places, skerry-init takes them away where lxcfs has died.
 */
enum { LXCFS_FILES = 4 };

static const char *const lxcfs_files[LXCFS_FILES] = {
	"proc/meminfo",
	"proc/cpuinfo",
	"proc/uptime",
	"proc/loadavg",
};
