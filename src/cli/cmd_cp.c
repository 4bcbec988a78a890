/* cp: between this machine and a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "api.h"
#include "cp.h"
#include "signals.h"

/* The last name of a path, without slashes behind it; "" of the root. */
static void base_name(const char *path, char *out, size_t size)
{
	size_t end = strlen(path), start;

	while (end && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	snprintf(out, size, "%.*s", (int)(end - start), path + start);
}

/* A directory that is new may be named with slashes behind it. */
static int unslash(char *out, const char *path, struct err *e)
{
	size_t end = strlen(path);

	while (end > 1 && path[end - 1] == '/')
		end--;
	if (end >= COPY_PATHS)
		return err_set(e, ENAMETOOLONG, "'%.40s…' is too long", path);
	snprintf(out, COPY_PATHS, "%.*s", (int)end, path);
	return 0;
}

/* `name` in the directory `dir`; the directory itself for "". */
static int below(char *out, const char *dir, const char *name, struct err *e)
{
	size_t len = strlen(dir);
	const char *slash = !*name || (len && dir[len - 1] == '/') ? "" : "/";

	if (snprintf(out, COPY_PATHS, "%s%s%s", dir, slash, name) >= COPY_PATHS)
		return err_set(e, ENAMETOOLONG, "the path below '%s' is too long", dir);
	return 0;
}

static int named_below(char *out, const char *dir, const char *name, struct err *e)
{
	if (!*name || str_eq(name, ".") || str_eq(name, ".."))
		return usage(e, "give the copy a name in '%s'", dir);
	return below(out, dir, name, e);
}

/* `ret` -1: it is a directory. */
static int open_source(const struct copy *p, int *ret, struct err *e)
{
	struct stat st;
	int fd;

	*ret = -1;
	if (str_eq(p->local, "-")) {
		*ret = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		return *ret < 0 ? err_set(e, errno, "open standard input: %s", strerror(errno)) : 0;
	}
	fd = copy_open(p, p->local, O_RDONLY);
	if (fd < 0)
		return copy_failed(p, fd, "open", e);
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		close(fd);
		return 0;
	}
	*ret = fd;
	return 0;
}

/* "dir/.": what is in it, not under its name. */
static bool means_content(const char *path)
{
	return str_eq(path, ".") || str_ends(path, "/.");
}

/* Where a directory goes: below one that is there, else under the name that was given. */
static int tree_target(const struct copy *p, char *path, struct err *e)
{
	char name[256];

	if (!remote_is_dir(p->item))
		return unslash(path, p->remote.path, e);
	if (means_content(p->local))
		return below(path, p->remote.path, "", e);
	base_name(p->local, name, sizeof(name));
	return named_below(path, p->remote.path, name, e);
}

static int copy_up(struct copy *p, struct err *e)
{
	_cleanup_close_ int fd = -1;
	char name[256];
	bool slash = p->remote.path[strlen(p->remote.path) - 1] == '/';
	int r = open_source(p, &fd, e);

	if (!r)
		r = remote_stat(p->c, &p->remote, &p->item, e);
	if (r < 0)
		return r;
	r = 0;
	if (fd < 0) {
		r = tree_target(p, p->there, e);
		p->remote.path = p->there;
	} else if (remote_is_dir(p->item) || slash) {
		base_name(str_eq(p->local, "-") ? "" : p->local, name, sizeof(name));
		r = named_below(p->there, p->remote.path, name, e);
		p->remote.path = p->there;
	}
	if (r < 0)
		return r;
	return fd < 0 ? copy_tree_up(p, e) : copy_file_up(p, fd, e);
}

static int copy_down(struct copy *p, struct err *e)
{
	char name[256];
	bool content = means_content(p->remote.path);
	struct stat st;
	int r = unslash(p->there, p->remote.path, e);

	if (!r && content) /* a dot is no name to the API */
		p->there[strlen(p->there) - 1] = '\0';
	p->remote.path = p->there;
	if (!r)
		r = remote_stat(p->c, &p->remote, &p->item, e);
	if (r < 0)
		return r;
	if (!r)
		return err_reason(e, ENOENT, "file_not_found", "there is no '%s' in sandbox '%s'",
				  p->remote.path, p->remote.sandbox);
	if (content && !remote_is_dir(p->item))
		return err_set(e, ENOTDIR, "'%s' is no directory", p->remote.path);
	if (!str_eq(p->local, "-") && stat(p->local, &st) == 0 && S_ISDIR(st.st_mode)) {
		base_name(p->remote.path, name, sizeof(name));
		r = content ? below(p->here, p->local, "", e)
			    : named_below(p->here, p->local, name, e);
	} else if (remote_is_dir(p->item)) {
		r = unslash(p->here, p->local, e);
	} else {
		return copy_file_down(p, e);
	}
	if (r < 0)
		return r;
	p->local = p->here;
	return remote_is_dir(p->item) ? copy_tree_down(p, e) : copy_file_down(p, e);
}

/* The two do not make a copy. */
static int bad_pair(const char *from, const char *to, struct err *e)
{
	const char *words[] = { from, to };

	for (int i = 0; i < 2; i++) {
		size_t n = strcspn(words[i], ":/");

		if (n && words[i][n] == ':' && words[i][n + 1] != '/')
			return usage(e, "a path in a sandbox begins with a slash: %.*s:/%s", (int)n,
				     words[i], words[i] + n + 1);
	}
	if (remote_is(from))
		return usage(
			e,
			"one of the two is a file here: copy from a sandbox, then into the other");
	return usage(e, "one of the two is SANDBOX:/path, the other a file here or -");
}

int cmd_cp(struct cli *c, const struct args *a, struct err *e)
{
	const char *from = a->pos[0], *to = a->pos[1];
	bool up = remote_is(to);
	struct copy p = {
		.c = c,
		.local = up ? from : to,
		.user = args_get(a, "user"),
		.quiet = args_has(a, "quiet") || c->json,
	};
	int r;

	if (up == remote_is(from))
		return bad_pair(from, to, e);
	if (!up && p.user)
		return usage(e, "--user is whose the copy in the sandbox is");
	r = remote_parse(up ? to : from, &p.remote, e);
	if (!r)
		r = signals_hold(c, e);
	if (!r)
		r = up ? copy_up(&p, e) : copy_down(&p, e);
	if (r < 0)
		signals_taken(c);
	json_decref(p.item);
	return r;
}
