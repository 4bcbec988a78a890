#pragma once
/*
 * procfs, where a file call must not meet itself: its process is a copy of PID 1, and to itself the
 * kernel shows what it hides from everybody else (the layout of its memory).
 *
 * Nothing in procfs is written; what lies below this process's own directory is not read, by
 * whatever name, but for what is the sandbox's and not the process's: its mounts and its network.
 */
#include <stdbool.h>
#include <sys/stat.h>

/* `fd` may be an O_PATH one. */
bool file_is_proc(int fd);

/* `dir` lies in this process's own directory, whose links tell of the host. */
bool file_proc_is_own(int dir);

/* 0 where `fd`, opened as `path` below `dir`, may be read: all outside of procfs. -EPERM, or -EAGAIN
 * when the path leads elsewhere by now. */
int file_proc_may_read(int fd, int dir, const char *path, const struct stat *st);
