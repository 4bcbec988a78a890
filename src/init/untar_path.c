#include "untar_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

void tar_tree_init(struct tar_tree *t, int root)
{
	t->root = root;
	t->parent = -1;
	t->parent_path[0] = '\0';
}

static void forget_parent(struct tar_tree *t)
{
	close_p(&t->parent);
}

void tar_tree_release(struct tar_tree *t)
{
	forget_parent(t);
	t->root = -1;
}

int tar_clean(const char *name, char out[TAR_NAME_MAX + 1], struct err *e)
{
	size_t used = 0;
	unsigned depth = 0;

	for (;;) {
		size_t len;

		name += strspn(name, "/");
		if (!*name)
			break;
		len = strcspn(name, "/");
		if (len == 2 && name[0] == '.' && name[1] == '.')
			return err_set(e, EINVAL, "names with '..' are refused");
		if (len == 1 && name[0] == '.') {
			name++;
			continue;
		}
		if (++depth > TAR_DEPTH_MAX)
			return err_set(e, ENAMETOOLONG, "more than %d directories deep",
				       TAR_DEPTH_MAX);
		if (used + (used > 0) + len > TAR_NAME_MAX)
			return err_set(e, ENAMETOOLONG, "the name is too long");
		if (used)
			out[used++] = '/';
		memcpy(out + used, name, len);
		used += len;
		name += len;
	}
	out[used] = '\0';
	return 0;
}

static int no_parent(int code, struct err *e)
{
	if (code == -ELOOP)
		return err_set(e, ELOOP,
			       "a symbolic link is in the way, and links are not followed");
	return err_set(e, code, "open its directory: %m");
}

/* Component by component; the path is cleaned. The caller owns the descriptor. */
static int make_path(const struct tar_tree *t, const char *path, struct err *e)
{
	_cleanup_close_ int at = open_beneath(t->root, ".", O_PATH | O_DIRECTORY, 0);
	char part[NAME_MAX + 1];

	while (at >= 0 && *path) {
		size_t len = strcspn(path, "/");
		bool made;
		int next;

		if (len > NAME_MAX)
			return err_set(e, ENAMETOOLONG, "make its directory: %m");
		memcpy(part, path, len);
		part[len] = '\0';
		path += len + (path[len] == '/');
		made = mkdirat(at, part, 0755) == 0;
		if (!made && errno != EEXIST)
			return err_set(e, errno, "make its directory: %m");
		next = open_beneath(at, part, O_PATH | O_DIRECTORY, 0);
		if (made && next >= 0 && (t->uid || t->gid))
			(void)!fchownat(next, "", t->uid, t->gid, AT_EMPTY_PATH);
		close(at);
		at = next;
	}
	return at < 0 ? no_parent(at, e) : take_fd(&at);
}

/* Splits off the last component; `parent` is "." for the target itself. */
static const char *split(const char *path, char parent[TAR_NAME_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	memcpy(parent, path, len);
	parent[len] = '\0';
	return slash ? slash + 1 : path;
}

int tar_tree_parent(struct tar_tree *t, const char *path, const char **ret_leaf, struct err *e)
{
	char parent[TAR_NAME_MAX + 1];
	const char *leaf = split(path, parent);

	if (t->parent < 0 || !str_eq(parent, t->parent_path)) {
		forget_parent(t);
		t->parent = open_beneath(t->root, *parent ? parent : ".", O_PATH | O_DIRECTORY, 0);
		if (t->parent == -ENOENT)
			t->parent = make_path(t, parent, e);
		else if (t->parent < 0)
			no_parent(t->parent, e);
		if (t->parent < 0) {
			int code = t->parent;

			t->parent = -1;
			return code;
		}
		memcpy(t->parent_path, parent, sizeof(parent));
	}
	*ret_leaf = leaf;
	return t->parent;
}

int tar_tree_find(const struct tar_tree *t, const char *path, const char **ret_leaf, struct err *e)
{
	char parent[TAR_NAME_MAX + 1];
	const char *leaf = split(path, parent);
	int fd = open_beneath(t->root, *parent ? parent : ".", O_PATH | O_DIRECTORY, 0);

	if (fd < 0)
		return no_parent(fd, e);
	*ret_leaf = leaf;
	return fd;
}

int tar_remove(int dir, const char *leaf, struct err *e)
{
	if (unlinkat(dir, leaf, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_set(e, errno, "remove what is in the way: %m");
	if (unlinkat(dir, leaf, AT_REMOVEDIR) < 0)
		return err_set(e, errno, "remove the directory in the way: %m");
	return 0;
}

void tar_quote(const char *name, char out[TAR_QUOTED_SIZE])
{
	bool utf8 = utf8_valid(name, strlen(name));
	size_t used = 0;

	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;
		bool plain = c >= 0x20 && c != 0x7f && (c < 0x80 || utf8);

		/* a cut within a character would make the text bad UTF-8: cut before its start */
		if (used + 4 + 4 + 4 > TAR_QUOTED_SIZE && (!utf8 || (c & 0xc0) != 0x80)) {
			memcpy(out + used, "...", 3);
			used += 3;
			break;
		}
		if (plain)
			out[used++] = (char)c;
		else
			used += (size_t)snprintf(out + used, 5, "\\x%02x", c);
	}
	out[used] = '\0';
}
