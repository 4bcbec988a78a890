/*
 * A directory as a tar. Its names are relative to it; "./" comes first. No link is followed; file
 * systems of the kernel's own, devices and sockets are left out, and so is what is gone before its
 * turn. A file that gets shorter while it is read ends the archive with an error.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

#include "init/file_inodes.h"
#include "init/file_job.h"
#include "init/file_names.h"
#include "init/file_path.h"
#include "init/file_walk.h"
#include "init/tar_write.h"

enum {
	PAX_MOST = 1024 * 1024,
	XATTRS_MOST = 512 * 1024, /* of one entry; those beyond are left out */
	HEAD_MOST = 4 * 1024 * 1024,
	XATTR_NAMES = 64 * 1024,
	XATTR_VALUE = 64 * 1024,
};

struct pack {
	struct file_job *j;
	struct inodes inodes;
	struct buf head, pax;
	struct tarw_extent *extents;
	size_t len; /* bytes of `block` */
	char block[FILE_DATA_MAX];
	char path[FILE_PATH_MAX + 1]; /* of the entry */
};

/* -- bytes out ----------------------------------------------------------------------------------- */

static int push(struct pack *p)
{
	int r = p->len ? file_job_data(p->j, p->block, p->len) : 0;

	p->len = 0;
	return r;
}

static int add(struct pack *p, const char *data, size_t len)
{
	while (len) {
		size_t n = sizeof(p->block) - p->len < len ? sizeof(p->block) - p->len : len;
		int r;

		memcpy(p->block + p->len, data, n);
		p->len += n;
		data += n;
		len -= n;
		r = p->len == sizeof(p->block) ? push(p) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_padding(struct pack *p, uint64_t content)
{
	static const char none[TARW_BLOCK];

	return add(p, none, tarw_padding(content));
}

static int out_of_memory(struct err *e)
{
	return err_set(e, ENOMEM, "out of memory");
}

static int add_head(struct pack *p, const struct tarw_entry *n, uint64_t *ret_content,
		    struct err *e)
{
	int r;

	buf_clear(&p->head);
	tarw_head(&p->head, &p->pax, n, ret_content);
	if (p->head.failed || p->pax.failed)
		return out_of_memory(e);
	r = add(p, p->head.data, p->head.len);
	buf_clear(&p->pax);
	return r;
}

/* Straight into the block. */
static int add_bytes(struct pack *p, int fd, uint64_t offset, uint64_t left, struct err *e)
{
	while (left) {
		size_t most = sizeof(p->block) - p->len;
		ssize_t n = pread(fd, p->block + p->len, left < most ? (size_t)left : most,
				  (off_t)offset);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return file_err(e, errno, "read", p->path);
		if (n == 0)
			return file_err(e, EIO, "cut while it was read:", p->path);
		p->len += (size_t)n;
		offset += (uint64_t)n;
		left -= (uint64_t)n;
		r = p->len == sizeof(p->block) ? push(p) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* -- one entry ----------------------------------------------------------------------------------- */

static bool xattr_wanted(const char *name)
{
	return str_starts(name, "user.") || str_eq(name, "security.capability");
}

static void add_xattrs(struct pack *p, int fd)
{
	static char names[XATTR_NAMES], value[XATTR_VALUE];
	ssize_t n = flistxattr(fd, names, sizeof(names));

	for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
		ssize_t len = xattr_wanted(name) ? fgetxattr(fd, name, value, sizeof(value)) : -1;

		if (len >= 0 && p->pax.len + (size_t)len < XATTRS_MOST)
			tarw_xattr(&p->pax, name, value, (size_t)len);
	}
}

static struct tarw_entry entry(const struct pack *p, char type, const struct stat *st)
{
	return (struct tarw_entry){
		.name = p->path,
		.type = type,
		.st = st,
		.user = file_user_name(st->st_uid),
		.group = file_group_name(st->st_gid),
	};
}

/* Where the data of a file with holes lies. The count, 0: it is taken as a whole. */
static size_t find_extents(struct pack *p, int fd, const struct stat *st)
{
	off_t at = 0, data;
	size_t n = 0;

	if (st->st_blocks >= (st->st_size + 511) / 512)
		return 0;
	while (at < st->st_size && (data = lseek(fd, at, SEEK_DATA)) >= 0 && data < st->st_size) {
		at = lseek(fd, data, SEEK_HOLE);
		if (at < 0 || n + 1 >= TARW_SPARSE_MOST)
			return 0;
		if (at > st->st_size)
			at = st->st_size;
		p->extents[n++] = (struct tarw_extent){ (uint64_t)data, (uint64_t)(at - data) };
	}
	if (n == 1 && p->extents[0].length == (uint64_t)st->st_size)
		return 0;
	/* its size is told by an empty piece at its end */
	if (!n || p->extents[n - 1].offset + p->extents[n - 1].length < (uint64_t)st->st_size)
		p->extents[n++] = (struct tarw_extent){ (uint64_t)st->st_size, 0 };
	return n;
}

static int pack_content(struct pack *p, int fd, const struct stat *st, struct err *e)
{
	struct tarw_entry n = entry(p, '0', st);
	uint64_t content;
	int r;

	n.extents_count = find_extents(p, fd, st);
	n.extents = n.extents_count ? p->extents : NULL;
	add_xattrs(p, fd);
	r = add_head(p, &n, &content, e);
	if (r < 0)
		return r;
	r = n.extents_count ? 0 : add_bytes(p, fd, 0, content, e);
	for (size_t i = 0; i < n.extents_count && !r; i++)
		r = add_bytes(p, fd, p->extents[i].offset, p->extents[i].length, e);
	return r < 0 ? r : add_padding(p, content);
}

static int pack_file(struct pack *p, int dir, const char *name, struct err *e)
{
	_cleanup_close_ int fd = file_openat(
		dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0, RESOLVE_BENEATH);
	const char *first;
	struct stat st;

	if (fd == -ENOENT || fd == -ELOOP || fd == -ENXIO)
		return 0; /* gone, or another thing by now */
	if (fd < 0 || fstat(fd, &st) < 0)
		return file_err(e, fd < 0 ? fd : errno, "open", p->path);
	if (!S_ISREG(st.st_mode))
		return 0;
	first = st.st_nlink > 1 ? inodes_name(&p->inodes, st.st_dev, st.st_ino, p->path) : NULL;
	if (first) {
		struct tarw_entry n = entry(p, '1', &st);
		uint64_t content;

		n.link = first;
		return add_head(p, &n, &content, e);
	}
	return pack_content(p, fd, &st, e);
}

static int pack_link(struct pack *p, int dir, const char *name, const struct stat *st,
		     struct err *e)
{
	char target[FILE_PATH_MAX + 1];
	ssize_t len = readlinkat(dir, name, target, sizeof(target) - 1);
	struct tarw_entry n = entry(p, '2', st);
	uint64_t content;

	if (len < 0)
		return errno == ENOENT || errno == EINVAL
			       ? 0
			       : file_err(e, errno, "read the link", p->path);
	target[len] = '\0';
	n.link = target;
	return add_head(p, &n, &content, e);
}

static int pack_head(struct pack *p, char type, const struct stat *st, struct err *e)
{
	const struct tarw_entry n = entry(p, type, st);
	uint64_t content;

	return add_head(p, &n, &content, e);
}

/* -- the tree ------------------------------------------------------------------------------------ */

static int pack_below(struct pack *p, int dir, size_t len, struct err *e);

static int pack_dir(struct pack *p, int dir, const char *name, struct err *e)
{
	_cleanup_close_ int fd = file_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
					     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	struct stat st;
	int r;

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return file_err(e, fd < 0 ? fd : errno, "open", p->path);
	add_xattrs(p, fd);
	r = pack_head(p, '5', &st, e);
	if (r < 0 || file_of_kernel(fd))
		return r;
	return pack_below(p, fd, strlen(p->path), e);
}

static int pack_one(struct pack *p, int dir, const char *name, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : file_err(e, errno, "look at", p->path);
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return pack_file(p, dir, name, e);
	case S_IFDIR:
		return pack_dir(p, dir, name, e);
	case S_IFLNK:
		return pack_link(p, dir, name, &st, e);
	case S_IFIFO:
		return pack_head(p, '6', &st, e);
	default:
		return 0;
	}
}

static int read_error(const struct pack *p, struct err *e)
{
	return file_err(e, errno, "read", p->path);
}

/* All in `dir`, whose own path is the first `len` bytes of `p->path`. */
static int pack_below(struct pack *p, int dir, size_t len, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	const struct dirent *entry;
	int fd = file_openat(dir, ".", O_RDONLY | O_DIRECTORY, 0, 0), r = 0;
	size_t at = len ? len + 1 : 0;

	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return file_err(e, fd < 0 ? fd : ENOMEM, "open", p->path);
	}
	for (errno = 0; !r && (entry = readdir(d)); errno = 0) {
		size_t n = strlen(entry->d_name);

		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
			continue;
		if (at + n > FILE_PATH_MAX)
			return file_err(e, ENAMETOOLONG, "pack below", p->path);
		if (len)
			p->path[len] = '/';
		memcpy(p->path + at, entry->d_name, n + 1);
		r = pack_one(p, dir, entry->d_name, e);
		p->path[len] = '\0';
	}
	return r || !errno ? r : read_error(p, e);
}

static int pack_all(struct pack *p, int dir, struct err *e)
{
	struct stat st;
	int r;

	if (fstat(dir, &st) < 0)
		return read_error(p, e);
	str_copy(p->path, sizeof(p->path), ".");
	add_xattrs(p, dir);
	r = pack_head(p, '5', &st, e);
	p->path[0] = '\0';
	if (!r)
		r = pack_below(p, dir, 0, e);
	if (r < 0)
		return r;
	buf_clear(&p->head);
	tarw_end(&p->head);
	r = p->head.failed ? out_of_memory(e) : add(p, p->head.data, p->head.len);
	return r < 0 ? r : push(p);
}

int file_pack(struct file_job *j, int dir, struct err *e)
{
	struct pack *p = calloc(1, sizeof(*p));
	int r = -ENOMEM;

	if (p)
		p->extents = malloc(TARW_SPARSE_MOST * sizeof(*p->extents));
	if (p && p->extents) {
		p->j = j;
		buf_init(&p->head, HEAD_MOST);
		buf_init(&p->pax, PAX_MOST);
		r = pack_all(p, dir, e);
		inodes_release(&p->inodes);
		buf_release(&p->head);
		buf_release(&p->pax);
	} else {
		out_of_memory(e);
	}
	if (p)
		free(p->extents);
	free(p);
	return r;
}
