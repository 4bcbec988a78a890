/*
 * Names by glob, lines by the bytes they have. Depth first, in the order of the names' bytes; no link
 * below the start is followed. What is left out for a bound of time, size or number is told at the
 * end.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include "init/file_job.h"
#include "init/file_path.h"
#include "init/file_walk.h"

enum {
	TIME_MS = 20 * 1000,
	SIZE_MOST = 64 * 1024 * 1024, /* bytes of one file */
	BINARY_WITHIN = 8 * 1024,     /* a NUL here makes a file a binary one */
	WINDOW = 256 * 1024,
	NAMES_MOST = 64 * 1024 * 1024, /* bytes of the directories under way */
	LEAD = 128, /* bytes of a line before a match that lies far behind its start */
};

struct search {
	struct file_job *j;
	size_t text_len;
	uint32_t left; /* matches */
	uint64_t until_ns;
	bool more;   /* something was left out … */
	bool done;   /* … and nothing else is looked at */
	size_t base; /* bytes of `path` before what is relative to the start */
	char path[FILE_PATH_MAX + 1];
	char window[WINDOW];
};

static bool over(struct search *s)
{
	if (clock_mono_ns() >= s->until_ns)
		s->more = s->done = true;
	return s->done;
}

/* Something was not looked at: for want of descriptors or memory it is left out, else it is not there
 * or not to be read. */
static int without(struct search *s, int code)
{
	s->more |= code == -EMFILE || code == -ENFILE || code == -ENOMEM;
	return 0;
}

static bool name_wanted(const struct search *s, const char *name)
{
	const char *glob = s->j->req.name;

	if (!*glob)
		return true;
	return fnmatch(glob, strchr(glob, '/') ? s->path + s->base : name, 0) == 0;
}

static int put_match(struct search *s, uint64_t line, const char *text, size_t len)
{
	const struct agent_match m = {
		.path = s->path, .line = line, .text = text, .text_len = len
	};

	if (!s->left) {
		s->more = s->done = true;
		return 0;
	}
	s->left--;
	file_put_match(&s->j->out, &m);
	return file_job_push(s->j);
}

/* A line that has the text at `hit`, or as much around it as is told. */
static int put_line(struct search *s, uint64_t number, const char *line, size_t len, size_t hit)
{
	size_t from = 0;

	if (hit + s->text_len > FILE_TEXT_MAX)
		from = s->text_len + LEAD > FILE_TEXT_MAX ? hit : hit - LEAD;
	while (from && from < hit && ((unsigned char)line[from] & 0xc0) == 0x80)
		from++; /* not in the middle of a character */
	len -= from;
	if (len > FILE_TEXT_MAX) {
		len = FILE_TEXT_MAX;
		for (size_t back = 0; back < 4; back++) {
			if (utf8_valid(line + from, len - back)) {
				len -= back;
				break;
			}
		}
	}
	return put_match(s, number, line + from, len);
}

/* The lines of what is in the window; a line that is longer than it is taken in pieces. */
struct lines {
	uint64_t number; /* of the line that begins the window */
	bool told;       /* this line has matched already */
};

/* All whole lines in `len` bytes, and with `last` what follows them. The bytes that are done with. */
static ssize_t search_lines(struct search *s, struct lines *l, size_t len, bool last)
{
	size_t at = 0;

	while (at < len && !s->done) {
		const char *line = s->window + at;
		const char *end = memchr(line, '\n', len - at);
		size_t n = end ? (size_t)(end - line) : len - at;
		const char *hit;
		int r;

		if (!end && !last && at)
			break; /* its rest comes */
		hit = l->told ? NULL : memmem(line, n, s->j->req.text, s->text_len);
		if (hit) {
			r = put_line(s, l->number, line, n, (size_t)(hit - line));
			if (r < 0)
				return r;
		}
		l->told = end ? false : l->told || hit;
		l->number += end != NULL;
		at += n + (end != NULL);
		if (!end && !last) { /* the window is one line: its end may begin a match */
			at -= s->text_len - 1 < n ? s->text_len - 1 : 0;
			break;
		}
	}
	return (ssize_t)at;
}

static int search_text(struct search *s, int fd)
{
	struct lines l = { .number = 1 };
	size_t have = 0;
	uint64_t total = 0;

	while (!over(s)) {
		ssize_t n = read(fd, s->window + have, sizeof(s->window) - have), used;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return 0; /* one that cannot be read has no lines */
		if (!total &&
		    memchr(s->window, '\0', n < BINARY_WITHIN ? (size_t)n : BINARY_WITHIN))
			return 0;
		total += (uint64_t)n;
		have += (size_t)n;
		if (n && have < sizeof(s->window) / 2 && !memchr(s->window, '\n', have))
			continue;
		used = search_lines(s, &l, have, !n);
		if (used < 0)
			return (int)used;
		if (!n)
			return 0;
		have -= (size_t)used;
		memmove(s->window, s->window + used, have);
		if (total > SIZE_MOST) {
			s->more = true;
			return 0;
		}
	}
	return 0;
}

static int look(struct search *s, int dir, const char *name, bool is_file)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	struct err ignored = ERR_INIT;

	if (!name_wanted(s, name))
		return 0;
	if (!s->text_len)
		return put_match(s, 0, NULL, 0);
	if (!is_file)
		return 0;
	fd = file_open(dir, name, O_RDONLY | O_NOFOLLOW, &st, &ignored);
	if (fd < 0)
		return without(s, fd);
	return S_ISREG(st.st_mode) ? search_text(s, fd) : 0;
}

static int search_below(struct search *s, int dir, size_t len, struct err *e);

static int search_one(struct search *s, int dir, const char *name, size_t len, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = look(s, dir, name, S_ISREG(st.st_mode));
	if (r < 0 || !S_ISDIR(st.st_mode) || s->done)
		return r;
	fd = file_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd < 0)
		return without(s, fd);
	return file_of_kernel(fd) ? 0 : search_below(s, fd, len, e);
}

/* Names held by all levels; scandir tells its filter nothing but the entry. */
static size_t names_held;
static struct search *names_for;

static size_t name_cost(const struct dirent *entry)
{
	return entry->d_reclen + 3 * sizeof(void *);
}

static int name_fits(const struct dirent *entry)
{
	if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
		return 0;
	if (names_held + name_cost(entry) > NAMES_MOST || over(names_for)) {
		names_for->more = true;
		return 0;
	}
	names_held += name_cost(entry);
	return 1;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int search_below(struct search *s, int dir, size_t len, struct err *e)
{
	struct dirent **names;
	int count = scandirat(dir, ".", &names, name_fits, by_bytes), r = 0;
	size_t at = len + (len > 0 && s->path[len - 1] != '/');

	if (count < 0)
		return errno == ENOMEM ? err_set(e, ENOMEM, "out of memory") : without(s, -errno);
	for (int i = 0; i < count; i++) {
		const char *name = names[i]->d_name;
		size_t n = strlen(name);

		if (!r && !over(s)) {
			if (at + n > FILE_PATH_MAX) {
				s->more = true;
			} else {
				if (at > len)
					s->path[len] = '/';
				memcpy(s->path + at, name, n + 1);
				r = search_one(s, dir, name, at + n, e);
				s->path[len] = '\0';
			}
		}
		names_held -= name_cost(names[i]);
		free(names[i]);
	}
	free(names);
	return r;
}

static int start(struct search *s, struct err *e)
{
	const char *path = s->j->req.path, *last = strrchr(path, '/');
	struct stat st;
	_cleanup_close_ int fd = file_open(AT_FDCWD, path, O_RDONLY, &st, e);
	size_t len = strlen(path);

	if (fd < 0)
		return fd;
	str_copy(s->path, sizeof(s->path), path);
	if (!S_ISDIR(st.st_mode)) {
		s->base = (size_t)(last - path) + 1;
		if (!name_wanted(s, last + 1))
			return 0;
		return s->text_len ? search_text(s, fd) : put_match(s, 0, NULL, 0);
	}
	while (len && s->path[len - 1] == '/')
		s->path[--len] = '\0';
	s->base = len + 1;
	if (!len)
		s->path[len++] = '/';
	return file_of_kernel(fd) ? 0 : search_below(s, fd, len, e);
}

int file_search(struct file_job *j, struct err *e)
{
	static struct search s;
	int r;

	s = (struct search){
		.j = j,
		.text_len = strlen(j->req.text),
		.left = j->req.limit,
		.until_ns = clock_mono_ns() + TIME_MS * NS_PER_MS,
	};
	names_for = &s;
	r = start(&s, e);
	return r < 0 ? r : s.more ? FILE_MORE : 0;
}
