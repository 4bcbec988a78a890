#include "untar.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "file_nameless.h"
#include "untar_path.h"
#include "untar_read.h"

struct untar {
	struct tar_tree tree;
	struct tar_reader reader;
	struct untar_result done;
	const struct untar_files *files; /* NULL: a layer */
	FILE *times; /* a struct dir_time and the path of each directory so far */
};

/* Times of directories are set last, because what is put into one changes them. */
struct dir_time {
	struct tar_time mtime;
	uint32_t path_len;
};

static ssize_t read_archive(void *ctx, void *data, size_t len)
{
	ssize_t n;

	do
		n = read(*(int *)ctx, data, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void times_of(const struct tar_entry *n, struct timespec out[2])
{
	out[0] = out[1] = (struct timespec){
		.tv_sec = n->mtime.seconds,
		.tv_nsec = n->mtime.ns,
	};
}

static int failed(struct err *e, const char *what)
{
	return err_set(e, errno, "%s: %m", what);
}

static int bad_owner(const struct tar_entry *n, struct err *e)
{
	if (errno == EINVAL)
		return err_set(e, EINVAL, "owner %u:%u is outside of the sandbox's ids", n->uid,
			       n->gid);
	return failed(e, "set the owner");
}

/* Which attributes an archive may set. */
static bool xattr_wanted(const struct untar *u, const char *name)
{
	return str_starts(name, "user.") ||
	       (str_eq(name, "security.capability") && (!u->files || u->files->trusted));
}

static uid_t owner_of(const struct untar *u, const struct tar_entry *n)
{
	return u->files ? u->files->uid : n->uid;
}

static gid_t group_of(const struct untar *u, const struct tar_entry *n)
{
	return u->files ? u->files->gid : n->gid;
}

static mode_t mode_of(const struct untar *u, const struct tar_entry *n)
{
	return n->mode & (u->files && !u->files->trusted ? ~(mode_t)(S_ISUID | S_ISGID) : ~0u);
}

static int set_xattrs(struct untar *u, int fd, const struct tar_entry *n, struct err *e)
{
	for (size_t i = 0; i < n->xattrs_count; i++) {
		const struct tar_xattr *x = &n->xattrs[i];

		if (xattr_wanted(u, x->name) && fsetxattr(fd, x->name, x->value, x->len, 0) == 0)
			continue;
		if (xattr_wanted(u, x->name) &&
		    (errno == ENOSPC || errno == EDQUOT || errno == EIO))
			return failed(e, "set an attribute");
		u->done.attributes++;
	}
	return 0;
}

/* Owner first: changing it takes set-uid bits and capabilities away. What is right already is left
 * alone: each change is a transaction of the file system, and most of an image is root's. In a
 * sandbox that lives a directory that was there (`old`) keeps its owner. */
static int set_meta(struct untar *u, int fd, const struct tar_entry *n, bool old, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return failed(e, "look at it");
	if ((!old || !u->files) && (st.st_uid != owner_of(u, n) || st.st_gid != group_of(u, n))) {
		if (fchown(fd, owner_of(u, n), group_of(u, n)) < 0)
			return bad_owner(n, e);
		st.st_mode &= ~(mode_t)(S_ISUID | S_ISGID);
	}
	if ((st.st_mode & 07777) != mode_of(u, n) && fchmod(fd, mode_of(u, n)) < 0)
		return failed(e, "set the mode");
	return set_xattrs(u, fd, n, e);
}

/* The same for objects that are not opened: links, FIFOs. What stands there by now may be another
 * thing, put there by who may: only the kind that was made is touched, and only by its one name. */
static int set_link_meta(struct untar *u, int dir, const char *leaf, const struct tar_entry *n,
			 mode_t kind, struct err *e)
{
	_cleanup_close_ int fd = openat(dir, leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct timespec times[2];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return failed(e, "look at it");
	if ((st.st_mode & S_IFMT) != kind || st.st_nlink > 1)
		return err_set(e, EBUSY, "it was replaced as soon as it was made");
	if (fchownat(fd, "", owner_of(u, n), group_of(u, n), AT_EMPTY_PATH) < 0)
		return bad_owner(n, e);
	times_of(n, times);
	if (utimensat(fd, "", times, AT_EMPTY_PATH) < 0)
		return failed(e, "set the time");
	u->done.attributes += n->xattrs_count;
	return 0;
}

static int write_at(int fd, const char *data, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t n = pwrite(fd, data, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int copy_content(struct untar *u, int fd, const struct tar_entry *n, struct err *e)
{
	uint64_t offset, end = 0;
	const void *data;
	ssize_t len;
	int f;

	while ((len = tar_data(&u->reader, &data, &offset, e)) > 0) {
		f = write_at(fd, data, (size_t)len, offset);
		if (f < 0)
			return err_set(e, f, "write: %m");
		end = offset + (uint64_t)len;
		u->done.bytes += (uint64_t)len;
	}
	if (len == 0 && end < n->size && ftruncate(fd, (off_t)n->size) < 0)
		return failed(e, "make the hole at its end");
	return (int)len;
}

static bool is_dir(int dir, const char *leaf)
{
	struct stat st;

	return fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* What has the name of an entry that is no directory goes; a directory of a client's stays. */
static int make_way(const struct untar *u, int dir, const char *leaf, struct err *e)
{
	if (u->files && is_dir(dir, leaf))
		return err_set(e, EISDIR, "a directory has its name");
	return tar_remove(dir, leaf, e);
}

static int fill(struct untar *u, int fd, const struct tar_entry *n, struct err *e)
{
	struct timespec times[2];
	int f = copy_content(u, fd, n, e);

	if (!f)
		f = set_meta(u, fd, n, false, e);
	if (f < 0)
		return f;
	times_of(n, times);
	return futimens(fd, times) < 0 ? failed(e, "set the time") : 0;
}

/* In a sandbox that lives: whole, or not at all. */
static int make_whole(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
		      struct err *e)
{
	struct nameless file;
	int f;

	if (is_dir(dir, leaf))
		return err_set(e, EISDIR, "a directory has its name");
	nameless_init(&file);
	f = nameless_open(&file, dir);
	f = f < 0 ? err_set(e, f, "create: %m") : fill(u, file.fd, n, e);
	if (!f) {
		f = nameless_link(&file, leaf, false);
		if (f < 0)
			err_set(e, f, "give it its name: %m");
	}
	nameless_release(&file);
	return f;
}

static int make_file(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
		     struct err *e)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
	_cleanup_close_ int fd = -1;
	int f;

	if (u->files)
		return make_whole(u, n, dir, leaf, e);
	fd = open_beneath(dir, leaf, flags, n->mode & 0777);
	if (fd == -EEXIST) {
		f = tar_remove(dir, leaf, e);
		if (f < 0)
			return f;
		fd = open_beneath(dir, leaf, flags, n->mode & 0777);
	}
	return fd < 0 ? err_set(e, fd, "create: %m") : fill(u, fd, n, e);
}

static int remember_time(struct untar *u, const char *path, const struct tar_entry *n,
			 struct err *e)
{
	struct dir_time d = { n->mtime, (uint32_t)strlen(path) };

	if (fwrite(&d, sizeof(d), 1, u->times) != 1 ||
	    fwrite(path, 1, d.path_len, u->times) != d.path_len)
		return failed(e, "note the time");
	return 0;
}

/* A directory that is there already takes the entry's mode; anything else makes way. */
static int make_dir(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
		    struct err *e)
{
	_cleanup_close_ int fd = -1;
	bool old = false;
	struct stat st;
	int f;

	if (mkdirat(dir, leaf, 0700) < 0) {
		if (errno != EEXIST)
			return failed(e, "create");
		if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return failed(e, "look at what is there");
		old = S_ISDIR(st.st_mode);
		if (!old && u->files && !S_ISLNK(st.st_mode))
			return err_set(e, ENOTDIR, "something that is no directory has its name");
		if (!old) {
			f = tar_remove(dir, leaf, e);
			if (f < 0)
				return f;
			if (mkdirat(dir, leaf, 0700) < 0)
				return failed(e, "create");
		}
	}
	fd = open_beneath(dir, leaf, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return err_set(e, fd, "open: %m");
	return set_meta(u, fd, n, old, e);
}

static int make_symlink(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
			struct err *e)
{
	int f;

	if (symlinkat(n->link, dir, leaf) < 0) {
		if (errno != EEXIST)
			return failed(e, "create");
		f = make_way(u, dir, leaf, e);
		if (f < 0)
			return f;
		if (symlinkat(n->link, dir, leaf) < 0)
			return failed(e, "create");
	}
	return set_link_meta(u, dir, leaf, n, S_IFLNK, e);
}

static bool same_object(int dir_a, const char *a, int dir_b, const char *b)
{
	struct stat x, y;

	return fstatat(dir_a, a, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(dir_b, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_ino == y.st_ino &&
	       x.st_dev == y.st_dev;
}

static int no_link(const char *target, struct err *e)
{
	int code = errno;
	char quoted[TAR_QUOTED_SIZE];

	tar_quote(target, quoted);
	return err_set(e, code, "link to '%.60s': %m", quoted);
}

static int make_hardlink(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
			 struct err *e)
{
	char path[TAR_NAME_MAX + 1];
	_cleanup_close_ int from = -1;
	const char *target;
	int f = tar_clean(n->link, path, e);

	if (f < 0)
		return err_wrap(e, "link target");
	if (!*path)
		return err_set(e, EPERM, "a link to the root directory");
	from = tar_tree_find(&u->tree, path, &target, e);
	if (from < 0)
		return err_wrap(e, "link target");
	if (linkat(from, target, dir, leaf, 0) == 0)
		return 0;
	if (errno != EEXIST)
		return no_link(n->link, e);
	if (same_object(from, target, dir, leaf))
		return 0;
	f = make_way(u, dir, leaf, e);
	if (f < 0)
		return f;
	return linkat(from, target, dir, leaf, 0) < 0 ? no_link(n->link, e) : 0;
}

/* With its mode from the beginning: the kernel has no chmod of a name that does not follow it. */
static int make_fifo(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
		     struct err *e)
{
	const mode_t mode = S_IFIFO | (n->mode & 0777);
	int f;

	if (mknodat(dir, leaf, mode, 0) < 0) {
		if (errno != EEXIST)
			return failed(e, "create");
		f = make_way(u, dir, leaf, e);
		if (f < 0)
			return f;
		if (mknodat(dir, leaf, mode, 0) < 0)
			return failed(e, "create");
	}
	return set_link_meta(u, dir, leaf, n, S_IFIFO, e);
}

/* A whiteout hides what lower layers have under the name, not what its own archive brings. */
static int make_whiteout(struct untar *u, int dir, const char *name, struct err *e)
{
	if (!*name || str_eq(name, ".") || str_eq(name, ".."))
		return err_set(e, EINVAL, "a whiteout of no name");
	if (mknodat(dir, name, S_IFCHR, makedev(0, 0)) < 0) {
		if (errno != EEXIST)
			return failed(e, "make a whiteout");
		return 0;
	}
	u->done.entries++;
	return 0;
}

#define WHITEOUT ".wh."

static int take_whiteout(struct untar *u, int dir, const char *leaf, struct err *e)
{
	if (str_eq(leaf, WHITEOUT WHITEOUT ".opq"))
		return err_set(e, EOPNOTSUPP, "an opaque directory cannot be kept in a layer");
	if (str_starts(leaf, WHITEOUT WHITEOUT))
		return 0;
	return make_whiteout(u, dir, leaf + strlen(WHITEOUT), e);
}

static int (*const makers[])(struct untar *u, const struct tar_entry *n, int dir, const char *leaf,
			     struct err *e) = {
	[TAR_FILE] = make_file,         [TAR_DIR] = make_dir,   [TAR_SYMLINK] = make_symlink,
	[TAR_HARDLINK] = make_hardlink, [TAR_FIFO] = make_fifo,
};

/* "", "." and "/": the target itself. */
static int take_root(struct untar *u, const struct tar_entry *n, struct err *e)
{
	int f;

	if (n->kind != TAR_DIR)
		return err_set(e, EINVAL, "the root of the archive is no directory");
	if (u->files)
		return 0;
	f = set_meta(u, u->tree.root, n, true, e);
	if (!f)
		f = remember_time(u, "", n, e);
	if (!f)
		u->done.entries++;
	return f;
}

static int take_entry(struct untar *u, const struct tar_entry *n, struct err *e)
{
	char path[TAR_NAME_MAX + 1];
	const char *leaf;
	int dir, f = tar_clean(n->name, path, e);

	if (f < 0)
		return f;
	if (n->kind == TAR_DEVICE) {
		u->done.devices++;
		return 0;
	}
	if (!*path)
		return take_root(u, n, e);
	dir = tar_tree_parent(&u->tree, path, &leaf, e);
	if (dir < 0)
		return dir;
	if (!u->files && str_starts(leaf, WHITEOUT))
		return take_whiteout(u, dir, leaf, e);
	f = makers[n->kind](u, n, dir, leaf, e);
	if (!f && n->kind == TAR_DIR)
		f = remember_time(u, path, n, e);
	if (!f)
		u->done.entries++;
	return f;
}

static int take_entries(struct untar *u, struct err *e)
{
	struct tar_entry n;
	int more;

	for (uint64_t count = 0; (more = tar_next(&u->reader, &n, e)) > 0; count++) {
		char name[TAR_QUOTED_SIZE];
		int f;

		if (count == UNTAR_ENTRIES_MAX)
			return err_set(e, EMSGSIZE, "more than %d entries", UNTAR_ENTRIES_MAX);
		f = take_entry(u, &n, e);
		if (f < 0) {
			tar_quote(n.name, name);
			err_wrap(e, "'%s'", name);
			return f;
		}
	}
	return more < 0 ? more : tar_drain(&u->reader, e);
}

/* A directory that was replaced since is passed over. */
static int set_dir_times(struct untar *u, struct err *e)
{
	char path[TAR_NAME_MAX + 1];
	struct dir_time d;

	if (fflush(u->times) != 0 || fseeko(u->times, 0, SEEK_SET) < 0)
		return failed(e, "note the times of directories");
	while (fread(&d, sizeof(d), 1, u->times) == 1) {
		_cleanup_close_ int fd = -1;
		struct timespec times[2] = {
			{ d.mtime.seconds, d.mtime.ns },
			{ d.mtime.seconds, d.mtime.ns },
		};

		if (d.path_len > TAR_NAME_MAX || fread(path, 1, d.path_len, u->times) != d.path_len)
			return err_set(e, EIO, "the times of directories cannot be read back");
		path[d.path_len] = '\0';
		fd = open_beneath(u->tree.root, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0);
		if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
			continue;
		if (fd < 0 || futimens(fd, times) < 0)
			return err_set(e, fd < 0 ? fd : errno, "set the time of a directory: %m");
	}
	return ferror(u->times) ? err_set(e, EIO, "read the times of directories") : 0;
}

/* A file without a name, on the disk that is being filled: memory is the scarcer thing. */
static FILE *open_times(int target)
{
	_cleanup_close_ int fd = openat(target, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	FILE *f;

	if (fd < 0)
		fd = memfd_create("times", MFD_CLOEXEC);
	f = fd < 0 ? NULL : fdopen(fd, "w+");
	if (f)
		take_fd(&fd);
	return f;
}

static int unpack(int target, struct untar *u, struct err *e)
{
	_cleanup_close_ int root = open_beneath(target, ".", O_RDONLY | O_DIRECTORY, 0);
	_cleanup_fclose_ FILE *times = NULL;
	mode_t mask;
	int f;

	if (root < 0)
		return err_set(e, root, "open the target: %m");
	times = open_times(root);
	if (!times)
		return failed(e, "make a temporary file");
	tar_tree_init(&u->tree, root);
	if (u->files) {
		u->tree.uid = u->files->uid;
		u->tree.gid = u->files->gid;
	}
	u->times = times;
	mask = umask(0); /* files get their mode when they are made */
	f = take_entries(u, e);
	umask(mask);
	if (!f)
		f = set_dir_times(u, e);
	if (!f && syncfs(root) < 0)
		f = failed(e, "sync what was unpacked");
	tar_tree_release(&u->tree);
	return f;
}

int untar_run(int target, int archive, struct untar_result *ret, struct err *e)
{
	struct untar u = { 0 };
	int f = tar_reader_init(&u.reader, read_archive, &archive);

	if (f < 0)
		return err_set(e, f, "unpack: %m");
	f = unpack(target, &u, e);
	tar_reader_release(&u.reader);
	if (!f)
		*ret = u.done;
	return f;
}

int untar_files(int target, const struct untar_files *files, struct err *e)
{
	struct untar u = { .files = files };
	int f = tar_reader_init(&u.reader, files->read, files->ctx);

	if (f < 0)
		return err_set(e, f, "unpack: %m");
	f = unpack(target, &u, e);
	tar_reader_release(&u.reader);
	return f;
}

int untar_main(void)
{
	_cleanup_close_ int target = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err e = ERR_INIT;
	struct untar_result done;
	uint64_t reply[2];
	int f;

	(void)fcntl(STDIN_FILENO, F_SETPIPE_SZ, 1 << 20); /* fewer switches where it is a pipe */
	if (target < 0)
		f = failed(&e, "open the current directory");
	else
		f = untar_run(target, STDIN_FILENO, &done, &e);
	if (!f) {
		reply[0] = htole64(done.bytes);
		reply[1] = htole64(done.entries);
		f = write_all(STDOUT_FILENO, reply, sizeof(reply));
		if (f < 0)
			err_set(&e, f, "write the result: %m");
	}
	if (f < 0)
		dprintf(STDERR_FILENO, "%s\n", e.text);
	return f < 0;
}
