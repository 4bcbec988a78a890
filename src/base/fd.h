#pragma once
/*
 * Descriptors: everything is close-on-exec and relative to a directory descriptor that is held.
 *
 * The functions return a descriptor or a count on success and a negative errno on failure; the
 * caller owns every descriptor returned.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* openat2 with RESOLVE_BENEATH and without following links; `flags` gets O_CLOEXEC added. */
int open_beneath(int dir, const char *path, int flags, mode_t mode);

/* Writes all of it, through short writes and EINTR. 0 or a negative errno. */
int write_all(int fd, const void *data, size_t len);

/* Reads until `len` bytes or end of file. The count, or a negative errno. */
ssize_t read_full(int fd, void *data, size_t len);

/* The whole file as NUL-terminated text in `out`; the length, or -EFBIG when it does not fit. */
ssize_t read_text_at(int dir, const char *path, char *out, size_t size);

/* Opens, writes at once, closes: for kernel files and small state. 0 or a negative errno. */
int write_text_at(int dir, const char *path, const char *text);

/* Writes a temporary name in `dir`, syncs and renames: the file is whole or as it was. */
int replace_file_at(int dir, const char *name, const void *data, size_t len, mode_t mode);

int fd_nonblock(int fd, int on);
int fd_cloexec(int fd, int on);

/* A listening or a connected Unix stream socket (type: SOCK_STREAM or SOCK_SEQPACKET). A path that
 * exceeds sun_path is reached through /proc/self/fd of its directory. `mode` is that of the
 * socket's file. An existing socket file is replaced. */
int unix_listen(const char *path, int type, mode_t mode, int backlog);
int unix_connect(const char *path, int type);

/* One message with at most FDS_MAX descriptors. recv returns the count of bytes, stores -1 in the
 * unused places of `fds`; -EMSGSIZE for a message or a descriptor list that was cut. */
enum { FDS_MAX = 4 };
ssize_t send_fds(int sock, const void *data, size_t len, const int *fds, unsigned n);
ssize_t recv_fds(int sock, void *data, size_t len, int fds[FDS_MAX], unsigned *ret_n, int flags);
