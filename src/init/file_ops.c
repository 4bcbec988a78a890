#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "init/file_job.h"
#include "init/file_names.h"
#include "init/file_path.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum { DIR_MODE = 0755 };

int file_put_object(struct file_job *j, int dir, const char *leaf, const char *path, struct err *e)
{
	struct agent_entry entry;
	int r = file_entry(dir, leaf, path, &entry);

	if (r < 0)
		return file_err(e, r, "look at", path);
	file_put_entry(&j->out, &entry);
	return 0;
}

/* Where the object stands: O_PATH of its directory and its name there; "" where the path has none
 * ("/", ".." at the end): the object is that directory then. */
static int locate(const char *path, char leaf[FILE_NAME_MAX + 1], struct err *e)
{
	char parent[FILE_PATH_MAX + 1];
	int fd;

	if (file_split(path, parent, leaf) != -EINVAL)
		return file_parent(path, leaf, e);
	leaf[0] = '\0';
	fd = file_openat(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, 0);
	return fd < 0 ? file_err(e, fd, "open", path) : fd;
}

int file_stat(struct file_job *j, struct err *e)
{
	char leaf[FILE_NAME_MAX + 1];
	_cleanup_close_ int dir = locate(j->req.path, leaf, e);

	return dir < 0 ? dir : file_put_object(j, dir, leaf, j->req.path, e);
}

static bool is_directory(int dir, const char *leaf)
{
	struct stat st;

	return fstatat(dir, leaf, &st, AT_EMPTY_PATH) == 0 && S_ISDIR(st.st_mode);
}

int file_make(struct file_job *j, struct err *e)
{
	const struct agent_file *f = &j->req;
	mode_t mode = f->flags & FILE_HAS_MODE ? f->mode : DIR_MODE;
	_cleanup_close_ int dir = -1;
	char leaf[FILE_NAME_MAX + 1];
	int r = file_job_owner(j, e);

	if (r < 0)
		return r;
	if (f->flags & FILE_PARENTS)
		dir = file_parent_make(f->path, j->uid, j->gid, leaf, e);
	if (!(f->flags & FILE_PARENTS) || dir == -EINVAL)
		dir = locate(f->path, leaf, e);
	if (dir < 0)
		return dir;
	if (!*leaf || mkdirat(dir, leaf, mode) < 0) {
		int code = *leaf ? errno : EEXIST;

		if (code != EEXIST || !(f->flags & FILE_PARENTS) || !is_directory(dir, leaf))
			return file_err(e, code, "make the directory", f->path);
	} else if (fchownat(dir, leaf, j->uid, j->gid, AT_SYMLINK_NOFOLLOW) < 0) {
		return file_err(e, errno, "set the owner of", f->path);
	}
	return file_put_object(j, dir, leaf, f->path, e);
}

/* Before Linux 6.6 a mode is set only through a descriptor that was opened for real. */
static int set_mode(int object, const struct agent_file *f, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (syscall(SYS_fchmodat2, object, "", f->mode, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOSYS && errno != EINVAL)
		return file_err(e, errno, "set the mode of", f->path);
	fd = file_open(AT_FDCWD, f->path, O_RDONLY, &st, e);
	if (fd < 0)
		return fd;
	return fchmod(fd, f->mode) < 0 ? file_err(e, errno, "set the mode of", f->path) : 0;
}

int file_set(struct file_job *j, struct err *e)
{
	const struct agent_file *f = &j->req;
	struct stat st;
	_cleanup_close_ int object = file_find(f->path, true, &st, e);
	uid_t uid;
	gid_t gid;
	int r = object < 0 ? object : file_owner_parse(f->owner, &uid, &gid, e);

	if (r < 0)
		return r;
	/* the owner first: a change of it takes set-uid bits away */
	if ((uid != (uid_t)-1 || gid != (gid_t)-1) &&
	    fchownat(object, "", uid, gid, AT_EMPTY_PATH) < 0)
		return file_err(e, errno, "set the owner of", f->path);
	if (f->flags & FILE_HAS_MODE)
		r = set_mode(object, f, e);
	return r < 0 ? r : file_put_object(j, object, "", f->path, e);
}

int file_move(struct file_job *j, struct err *e)
{
	const struct agent_file *f = &j->req;
	unsigned flags = f->flags & FILE_OVERWRITE ? 0 : RENAME_NOREPLACE;
	char parent[FILE_PATH_MAX + 1], from[FILE_NAME_MAX + 1], to[FILE_NAME_MAX + 1];
	_cleanup_close_ int from_dir = -1, to_dir = -1;
	char quoted[2][FILE_QUOTED_SIZE];
	int code;

	if (file_split(f->path, parent, from) == -EINVAL)
		return file_err(e, EBUSY, "move", f->path);
	from_dir = file_parent(f->path, from, e);
	if (from_dir < 0)
		return from_dir;
	to_dir = file_parent(f->to, to, e);
	if (to_dir < 0)
		return to_dir;
	if (renameat2(from_dir, from, to_dir, to, flags) < 0) {
		code = errno;
		return err_set(e, code, "move %s to %s: %m", file_quote(f->path, quoted[0]),
			       file_quote(f->to, quoted[1]));
	}
	return file_put_object(j, to_dir, to, f->to, e);
}
