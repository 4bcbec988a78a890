#include "test_untar_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "unit.h"

void kit_checksum(char *block)
{
	unsigned sum = 0;

	memset(block + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)block[i];
	snprintf(block + 148, 8, "%06o", sum);
}

static void put(char *at, size_t size, const char *s)
{
	size_t len = s ? strlen(s) : 0;

	assert_true(len <= size);
	if (len)
		memcpy(at, s, len);
}

void kit_header(struct buf *b, const struct kit_head *h)
{
	char block[512 + 1] = { 0 }; /* one more for snprintf's NUL */

	put(block, 100, h->name);
	snprintf(block + 100, 8, "%07o", (h->mode ? h->mode : 0644) & 07777777);
	snprintf(block + 108, 8, "%07o", h->uid & 07777777);
	snprintf(block + 116, 8, "%07o", h->gid & 07777777);
	snprintf(block + 124, 13, "%012llo", (unsigned long long)h->size);
	snprintf(block + 136, 13, "%012llo", (unsigned long long)h->mtime);
	block[156] = h->type ? h->type : '0';
	put(block + 157, 100, h->link);
	memcpy(block + 257, h->magic ? h->magic : "ustar\00000", 8);
	put(block + 345, 155, h->prefix);
	kit_checksum(block);
	assert_int_equal(buf_add(b, block, 512), 0);
}

void kit_content(struct buf *b, const void *data, size_t len)
{
	static const char zeros[512];

	assert_int_equal(buf_add(b, data, len), 0);
	assert_int_equal(buf_add(b, zeros, -len & 511), 0);
}

void kit_file(struct buf *b, const char *name, const char *content)
{
	kit_header(b, &(struct kit_head){ .name = name, .size = strlen(content) });
	kit_content(b, content, strlen(content));
}

void kit_dir(struct buf *b, const char *name)
{
	kit_header(b, &(struct kit_head){ .name = name, .type = '5', .mode = 0755 });
}

void kit_link(struct buf *b, char type, const char *name, const char *target)
{
	kit_header(b, &(struct kit_head){ .name = name, .type = type, .link = target });
}

void kit_extended(struct buf *b, char type, const void *data, size_t len)
{
	kit_header(b, &(struct kit_head){ .name = "extended", .type = type, .size = len });
	kit_content(b, data, len);
}

void kit_record(struct buf *b, const char *key, const void *value, size_t len)
{
	size_t rest = strlen(key) + len + 3, total = rest + 1;

	while ((size_t)snprintf(NULL, 0, "%zu", total) + rest != total)
		total++;
	buf_addf(b, "%zu %s=", total, key);
	buf_add(b, value, len);
	assert_int_equal(buf_addc(b, '\n'), 0);
}

void kit_pax(struct buf *b, const char *key, const char *value)
{
	_cleanup_buf_ struct buf records = BUF_INIT(1 << 22);

	kit_record(&records, key, value, strlen(value));
	kit_extended(b, 'x', records.data, records.len);
}

void kit_end(struct buf *b)
{
	static const char zeros[1024];

	assert_int_equal(buf_add(b, zeros, sizeof(zeros)), 0);
}

void kit_place_make(struct kit_place *p)
{
	snprintf(p->path, sizeof(p->path), "/tmp/untar-XXXXXX");
	assert_non_null(mkdtemp(p->path));
	p->top = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(p->top >= 0);
	assert_int_equal(mkdirat(p->top, "target", 0755), 0);
	assert_int_equal(mkdirat(p->top, "outside", 0777), 0);
	p->target = openat(p->top, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(replace_file_at(p->target, "secret", "secret", 6, 0666), 0);
	close(p->target);
	p->target = openat(p->top, "target", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(p->target >= 0);
}

static unsigned count_names(int dir, const char *path)
{
	_cleanup_dir_ DIR *d = fdopendir(openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	return n - 2;
}

void kit_place_check(const struct kit_place *p)
{
	char text[16];
	struct stat st;

	assert_int_equal(count_names(p->top, "."), 2);
	assert_int_equal(count_names(p->top, "outside"), 1);
	assert_int_equal(read_text_at(p->top, "outside/secret", text, sizeof(text)), 6);
	assert_string_equal(text, "secret");
	assert_int_equal(fstatat(p->top, "outside/secret", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_mode & 07000, 0);
	assert_int_equal(fstatat(p->top, "target", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISDIR(st.st_mode));
}

void kit_place_drop(struct kit_place *p)
{
	const char *const argv[] = { "rm", "-rf", "--", p->path, NULL };

	close(p->target);
	close(p->top);
	assert_int_equal(kit_run(argv), 0);
}

int kit_unpack(const struct buf *archive, const struct kit_place *p, struct untar_result *ret,
	       struct err *e)
{
	_cleanup_close_ int fd = memfd_create("archive", MFD_CLOEXEC);
	struct untar_result unused;

	assert_true(fd >= 0);
	assert_int_equal(archive->failed, 0);
	assert_int_equal(write_all(fd, archive->data, archive->len), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	*e = (struct err)ERR_INIT;
	return untar_run(p->target, fd, ret ? ret : &unused, e);
}

int kit_run(const char *const argv[])
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* One pair of trees while it is compared. */
struct pair {
	const char *want, *got;
	bool ns;
	size_t count;
	struct {
		ino_t want, got;
	} links[64];
	size_t links_count;
};

static void compare_links(struct pair *p, const struct stat *a, const struct stat *b)
{
	for (size_t i = 0; i < p->links_count; i++) {
		if (p->links[i].want == a->st_ino) {
			assert_int_equal(p->links[i].got, b->st_ino);
			return;
		}
		assert_int_not_equal(p->links[i].got, b->st_ino);
	}
	assert_true(p->links_count < ARRAY_SIZE(p->links));
	p->links[p->links_count].want = a->st_ino;
	p->links[p->links_count++].got = b->st_ino;
}

static off_t next_data(int fd, off_t from)
{
	off_t at = lseek(fd, from, SEEK_DATA);

	return at < 0 ? lseek(fd, 0, SEEK_END) : at;
}

/* What is a hole in both is not read. */
static void compare_content(const char *a, const char *b)
{
	_cleanup_close_ int x = open(a, O_RDONLY | O_CLOEXEC), y = open(b, O_RDONLY | O_CLOEXEC);
	static char left[65536], right[65536];
	off_t at = 0;
	ssize_t n;

	assert_true(x >= 0 && y >= 0);
	do {
		off_t in_x = next_data(x, at), in_y = next_data(y, at);

		at = in_x < in_y ? in_x : in_y;
		n = pread(x, left, sizeof(left), at);
		assert_true(n >= 0);
		assert_int_equal(pread(y, right, sizeof(right), at), n);
		assert_memory_equal(left, right, n);
		at += n;
	} while (n > 0);
}

static bool counts(const char *attribute)
{
	return str_starts(attribute, "user.") || str_eq(attribute, "security.capability");
}

static size_t compare_xattrs(const char *a, const char *b)
{
	char names[4096], left[4096], right[4096];
	ssize_t len = llistxattr(a, names, sizeof(names));
	size_t n = 0;

	for (const char *s = names; s < names + len; s += strlen(s) + 1) {
		ssize_t size;

		if (!counts(s))
			continue;
		size = lgetxattr(a, s, left, sizeof(left));
		assert_true(size >= 0);
		assert_int_equal(lgetxattr(b, s, right, sizeof(right)), size);
		assert_memory_equal(left, right, size);
		n++;
	}
	return n;
}

static void compare_one(struct pair *p, const char *a, const char *b)
{
	char left[PATH_MAX] = "", right[PATH_MAX] = "";
	struct stat x, y;

	p->count++;
	assert_int_equal(lstat(a, &x), 0);
	if (lstat(b, &y) < 0)
		fail_msg("missing: %s", b);
	if (x.st_mode != y.st_mode)
		fail_msg("mode of %s: %o, not %o", b, y.st_mode, x.st_mode);
	assert_int_equal(x.st_uid, y.st_uid);
	assert_int_equal(x.st_gid, y.st_gid);
	if (x.st_mtim.tv_sec != y.st_mtim.tv_sec)
		fail_msg("time of %s: %lld, not %lld", b, (long long)y.st_mtim.tv_sec,
			 (long long)x.st_mtim.tv_sec);
	if (p->ns)
		assert_int_equal(x.st_mtim.tv_nsec, y.st_mtim.tv_nsec);
	assert_int_equal(compare_xattrs(a, b), compare_xattrs(b, a));
	if (!S_ISDIR(x.st_mode)) {
		assert_int_equal(x.st_size, y.st_size);
		assert_int_equal(x.st_nlink, y.st_nlink);
		if (x.st_nlink > 1)
			compare_links(p, &x, &y);
	}
	if (S_ISREG(x.st_mode))
		compare_content(a, b);
	if (S_ISLNK(x.st_mode)) {
		assert_true(readlink(a, left, sizeof(left) - 1) > 0);
		assert_true(readlink(b, right, sizeof(right) - 1) > 0);
		assert_string_equal(left, right);
	}
}

static void compare_dir(struct pair *p, const char *below)
{
	char a[PATH_MAX], b[PATH_MAX], next[PATH_MAX];
	const struct dirent *entry;
	DIR *d;

	snprintf(a, sizeof(a), "%s%s", p->want, below);
	snprintf(b, sizeof(b), "%s%s", p->got, below);
	compare_one(p, a, b);
	d = opendir(a);
	assert_non_null(d);
	assert_int_equal(count_names(AT_FDCWD, a), count_names(AT_FDCWD, b));
	while ((entry = readdir(d))) {
		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
			continue;
		assert_true(snprintf(next, sizeof(next), "%s/%s", below, entry->d_name) < PATH_MAX);
		if (entry->d_type == DT_DIR) {
			compare_dir(p, next);
			continue;
		}
		assert_true(snprintf(a, sizeof(a), "%s%s", p->want, next) < PATH_MAX);
		assert_true(snprintf(b, sizeof(b), "%s%s", p->got, next) < PATH_MAX);
		compare_one(p, a, b);
	}
	closedir(d);
}

size_t kit_compare(const char *want, const char *got, bool ns)
{
	struct pair *p = calloc(1, sizeof(*p));
	size_t count;

	assert_non_null(p);
	p->want = want;
	p->got = got;
	p->ns = ns;
	compare_dir(p, "");
	count = p->count;
	free(p);
	return count;
}
