#include "init/file_names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "init/file_path.h"

enum { FILE_MOST = 4 * 1024 * 1024, NAME_MOST = 255 };

struct name {
	uint32_t id;
	const char *name;
};

struct names {
	const char *file;
	bool read;
	struct name *list; /* by id; of two names of one id the first of the file */
	size_t count;
	const struct name *last;
};

static struct names users = { .file = "/etc/passwd" }, groups = { .file = "/etc/group" };

/* The third field of "name:x:id:…". */
static bool parse_line(char *line, struct name *ret)
{
	char *rest = line, *name = strsep(&rest, ":"), *password = strsep(&rest, ":");
	char *id = strsep(&rest, ":");
	uint64_t value;

	if (!password || !id || !*name || strlen(name) > NAME_MOST ||
	    str_u64(id, 0, UINT32_MAX - 1, &value) < 0)
		return false;
	*ret = (struct name){ (uint32_t)value, name };
	return true;
}

static int by_id(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return (x->name > y->name) - (x->name < y->name); /* as in the file */
}

static char *read_file(const char *path)
{
	struct stat st;
	struct err ignored = ERR_INIT;
	_cleanup_close_ int fd = file_open(AT_FDCWD, path, O_RDONLY, &st, &ignored);
	char *text;
	ssize_t n;

	if (fd < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MOST)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	n = text ? read_full(fd, text, (size_t)st.st_size) : -1;
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

static void load(struct names *n)
{
	char *text = read_file(n->file), *line;
	size_t room = 0;

	n->read = true;
	while (text && (line = strsep(&text, "\n"))) {
		struct name one;

		if (!parse_line(line, &one))
			continue;
		if (n->count == room) {
			size_t more = room ? 2 * room : 64;
			struct name *list = realloc(n->list, more * sizeof(*list));

			if (!list)
				break;
			n->list = list;
			room = more;
		}
		n->list[n->count++] = one;
	}
	if (n->count)
		qsort(n->list, n->count, sizeof(*n->list), by_id);
}

static const char *find(struct names *n, uint32_t id)
{
	size_t low = 0, high;

	if (!n->read)
		load(n);
	if (n->last && n->last->id == id)
		return n->last->name;
	high = n->count;
	while (low < high) {
		size_t mid = (low + high) / 2;

		if (n->list[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == n->count || n->list[low].id != id)
		return "";
	n->last = &n->list[low];
	return n->last->name;
}

const char *file_user_name(uid_t uid)
{
	return find(&users, uid);
}

const char *file_group_name(gid_t gid)
{
	return find(&groups, gid);
}

static int id_of(struct names *n, const char *what, const char *name, uint32_t *ret, struct err *e)
{
	uint64_t value;

	if (!n->read)
		load(n);
	for (size_t i = 0; i < n->count; i++) {
		if (str_eq(n->list[i].name, name)) {
			*ret = n->list[i].id;
			return 0;
		}
	}
	if (str_u64(name, 0, UINT32_MAX - 1, &value) < 0) {
		err_reason(e, EINVAL, "user_not_found", "%s '%s' does not exist", what, name);
		return err_field(e, "owner");
	}
	*ret = (uint32_t)value;
	return 0;
}

int file_owner_parse(const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
	char copy[2 * NAME_MOST + 2], *group = copy, *user;
	int r = 0;

	*ret_uid = (uid_t)-1;
	*ret_gid = (gid_t)-1;
	if (!str_copy(copy, sizeof(copy), text))
		return err_set(e, EINVAL, "the owner's name is too long");
	user = strsep(&group, ":");
	if (*user)
		r = id_of(&users, "user", user, ret_uid, e);
	if (!r && group && *group)
		r = id_of(&groups, "group", group, ret_gid, e);
	return r;
}
