#include "init/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

enum {
	FILE_MAX = 4 * 1024 * 1024,
	FIELDS_MAX = 7,
};

#define ID_LARGEST 0xfffffffeu /* the one above means "none" to the kernel */

/* The text of a regular file of at most FILE_MAX bytes; NUL bytes in it end the text. */
static int read_regular(const char *dir, const char *name, char **ret)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	char path[256];
	struct stat st;
	ssize_t len;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	/* O_NONBLOCK: a FIFO put in its place must not hold us up before fstat can refuse it */
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > FILE_MAX)
		return -EFBIG;
	/* one more than it says, so that a file that grows is noticed */
	text = malloc((size_t)st.st_size + 2);
	if (!text)
		return -ENOMEM;
	len = read_full(fd, text, (size_t)st.st_size + 1);
	if (len < 0)
		return (int)len;
	text[len] = '\0';
	*ret = take_ptr(text);
	return 0;
}

/* Cuts one line into its fields at ':'. The count, at most `most`; the last keeps the rest. */
static size_t split_line(char *line, char *fields[], size_t most)
{
	size_t n = 0;

	while (line && n < most) {
		fields[n++] = line;
		if (n == most)
			break;
		line = strchr(line, ':');
		if (line)
			*line++ = '\0';
	}
	return n;
}

static bool parse_id(const char *s, unsigned *ret)
{
	uint64_t v;

	if (str_u64(s, 0, ID_LARGEST, &v) < 0)
		return false;
	*ret = (unsigned)v;
	return true;
}

static bool parse_user(char *line, struct user *u)
{
	char *f[FIELDS_MAX];

	if (split_line(line, f, FIELDS_MAX) != FIELDS_MAX || !f[0][0])
		return false;
	if (!parse_id(f[2], &u->uid) || !parse_id(f[3], &u->gid))
		return false;
	if (!str_copy(u->name, sizeof(u->name), f[0]))
		return false;
	if (f[5][0] != '/' || !str_copy(u->home, sizeof(u->home), f[5]))
		str_copy(u->home, sizeof(u->home), "/");
	if (f[6][0] != '/' || !str_copy(u->shell, sizeof(u->shell), f[6]))
		str_copy(u->shell, sizeof(u->shell), "/bin/sh");
	return true;
}

static bool is_member(const char *members, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = members; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == '\0'))
			return true;
	}
	return false;
}

static void add_group(struct user *u, gid_t gid)
{
	for (size_t i = 0; i < u->groups_count; i++) {
		if (u->groups[i] == gid)
			return;
	}
	if (u->groups_count < USER_GROUPS_MAX)
		u->groups[u->groups_count++] = gid;
}

/* A sandbox without a group file has users with one group each. */
static void read_groups(const char *etc, struct user *u)
{
	_cleanup_free_ char *text = NULL;
	char *rest, *line;

	add_group(u, u->gid);
	if (read_regular(etc, "group", &text) < 0)
		return;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *f[4];
		gid_t gid;

		if (split_line(line, f, 4) == 4 && parse_id(f[2], &gid) && is_member(f[3], u->name))
			add_group(u, gid);
	}
}

int user_lookup(const char *etc, const char *who, struct user *ret)
{
	_cleanup_free_ char *text = NULL;
	unsigned id = 0;
	bool number = parse_id(who, &id), found = false;
	char *rest, *line;
	int r = read_regular(etc, "passwd", &text);

	if (r < 0)
		return r;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		struct user u = { 0 };

		if (!parse_user(line, &u))
			continue;
		if (str_eq(u.name, who)) { /* a name that looks like a number is a name first */
			*ret = u;
			found = true;
			break;
		}
		if (number && u.uid == id && !found) {
			*ret = u;
			found = true;
		}
	}
	if (!found)
		return -ENOENT;
	read_groups(etc, ret);
	return 0;
}

void user_root(struct user *ret)
{
	*ret = (struct user){ .groups_count = 1 };
	str_copy(ret->name, sizeof(ret->name), "root");
	str_copy(ret->home, sizeof(ret->home), "/root");
	str_copy(ret->shell, sizeof(ret->shell), "/bin/sh");
}
