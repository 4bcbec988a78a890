/*
 * The unpacker against archives that GNU tar makes of a nasty tree: what comes out is what went in.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "init/untar_path.h"
#include "test_untar_kit.h"
#include "unit.h"

enum tree_part {
	TREE_FIFO = 1 << 0,
	TREE_LONG = 1 << 1,   /* names beyond what a header holds */
	TREE_TIMES = 1 << 2,  /* before 1970 */
	TREE_SPARSE = 1 << 3, /* files with holes */
	TREE_XATTR = 1 << 4,
};

static void put_file(int dir, const char *name, const void *data, size_t len, mode_t mode)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, data, len), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void put_big(int dir, const char *name, size_t len)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 22);
	uint32_t x = 12345;

	while (b.len < len) {
		x = x * 1664525 + 1013904223;
		assert_int_equal(buf_addc(&b, (char)(x >> 24)), 0);
	}
	put_file(dir, name, b.data, b.len, 0640);
}

static void put_plain(int dir)
{
	put_file(dir, "empty", "", 0, 0644);
	put_file(dir, "small", "hello\n", 6, 0600);
	put_file(dir, "no mode", "x", 1, 0);
	put_file(dir, "-dash", "x", 1, 0444);
	put_file(dir, "new\nline", "x", 1, 0644);
	put_file(dir, "bad\xff\xfeutf8", "x", 1, 0644);
	put_file(dir, "caf\xc3\xa9", "x", 1, 0644);
	put_file(dir, "setuid", "#!", 2, 04755);
	put_file(dir, "setgid", "#!", 2, 02755);
	put_file(dir, "owned", "mine", 4, 04711);
	assert_int_equal(fchownat(dir, "owned", 1000, 65534, 0), 0);
	assert_int_equal(fchmodat(dir, "owned", 06711, 0), 0); /* chown took it away */
	put_big(dir, "block", 512);
	put_big(dir, "window", 128 * 1024 + 1);
	put_big(dir, "megabyte", 1 << 20);
}

static void put_links(int dir)
{
	assert_int_equal(symlinkat("small", dir, "link"), 0);
	assert_int_equal(symlinkat("../../nowhere", dir, "dangling"), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir, "absolute"), 0);
	assert_int_equal(symlinkat("sub", dir, "to-dir"), 0);
	assert_int_equal(fchownat(dir, "to-dir", 7, 8, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(mkdirat(dir, "sub", 0755), 0);
	assert_int_equal(linkat(dir, "small", dir, "second", 0), 0);
	assert_int_equal(linkat(dir, "small", dir, "sub/third", 0), 0);
	assert_int_equal(linkat(dir, "dangling", dir, "sub/same-link", 0), 0);
	assert_int_equal(linkat(dir, "empty", dir, "sub/empty too", 0), 0);
}

static void put_dirs(int dir)
{
	char path[128] = "deep";

	for (int i = 0; i < 20; i++) {
		assert_int_equal(mkdirat(dir, path, 0750), 0);
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "/d%d", i % 10);
	}
	put_file(dir, path, "bottom", 6, 0644);
	assert_int_equal(mkdirat(dir, "sticky", 0777), 0);
	assert_int_equal(fchmodat(dir, "sticky", 03777, 0), 0);
	put_file(dir, "sticky/in", "x", 1, 0644);
	assert_int_equal(mkdirat(dir, "locked", 0700), 0);
	put_file(dir, "locked/in", "x", 1, 0644);
	assert_int_equal(fchownat(dir, "locked", 1000, 1000, 0), 0);
	assert_int_equal(fchmodat(dir, "locked", 0, 0), 0);
	assert_int_equal(mkdirat(dir, "none", 0755), 0);
}

static void put_long(int dir)
{
	static const int lengths[] = { 99, 100, 101, 154, 155, 156, 255 };
	char name[NAME_MAX + 1], target[2000];

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		memset(name, 'a' + (int)i, sizeof(name));
		name[lengths[i]] = '\0';
		put_file(dir, name, name, (size_t)lengths[i], 0644);
		name[0] = '@';
		assert_int_equal(mkdirat(dir, name, 0755), 0);
	}
	memset(target, 't', sizeof(target));
	target[sizeof(target) - 1] = '\0';
	assert_int_equal(symlinkat(target, dir, "long-link"), 0);
	memset(name, 'g', 255); /* 'a' + 6 */
	name[255] = '\0';
	assert_int_equal(linkat(dir, name, dir, "hard-to-long", 0), 0);
}

static void put_hole(int dir, const char *name, const off_t *at, size_t count, off_t size)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(pwrite(fd, "content", 7, at[i]), 7);
	assert_int_equal(ftruncate(fd, size), 0);
}

static void put_sparse(int dir)
{
	static const off_t one[] = { 16 << 20 };
	off_t many[100];

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (off_t)i << 20;
	put_hole(dir, "sparse-hole", NULL, 0, 64 << 20);
	put_hole(dir, "sparse-one", one, 1, 64 << 20);
	put_hole(dir, "sparse-end", one, 1, one[0] + 7);
	put_hole(dir, "sparse-many", many, ARRAY_SIZE(many), 100 << 20);
	put_hole(dir, "sparse-huge", one, 1, (off_t)1 << 36);
}

static void put_xattrs(const char *path)
{
	/* version 2, cap_net_bind_service+ep */
	static const unsigned char capability[20] = { 1, 0, 0, 2, 0, 4 };
	char name[128];

	snprintf(name, sizeof(name), "%s/small", path);
	assert_int_equal(setxattr(name, "user.note", "a=b\n\0c", 6, 0), 0);
	assert_int_equal(setxattr(name, "user.a=b%3D", "odd", 3, 0), 0);
	assert_int_equal(setxattr(name, "user.empty", "", 0, 0), 0);
	assert_int_equal(setxattr(name, "trusted.gone", "x", 1, 0), 0);
	snprintf(name, sizeof(name), "%s/setgid", path);
	assert_int_equal(setxattr(name, "security.capability", capability, 20, 0), 0);
	snprintf(name, sizeof(name), "%s/sub", path);
	assert_int_equal(setxattr(name, "user.dir", "d", 1, 0), 0);
}

static void put_times(int dir)
{
	static const struct timespec old[2] = { { -86400, 0 }, { -86400, 0 } };
	static const struct timespec fine[2] = { { 1, 5 }, { 1234567890, 123456789 } };

	assert_int_equal(utimensat(dir, "small", old, 0), 0);
	assert_int_equal(utimensat(dir, "window", fine, 0), 0);
	assert_int_equal(utimensat(dir, "link", fine, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(utimensat(dir, "sticky", fine, 0), 0);
	assert_int_equal(utimensat(dir, "sub", old, 0), 0);
	assert_int_equal(utimensat(dir, ".", fine, 0), 0);
}

static bool have_xattrs(int dir)
{
	return fsetxattr(dir, "user.try", "", 0, 0) == 0 && fremovexattr(dir, "user.try") == 0;
}

/* Makes the tree, packs it, unpacks it, compares. `options`: of tar. */
static void round_trip(unsigned parts, bool ns, const char *const options[])
{
	const char *argv[16] = { "tar", "--numeric-owner", "--sort=name" };
	char tree[80], archive[80], target[80];
	_cleanup_close_ int fd = -1, dir = -1;
	struct untar_result done;
	struct err e = ERR_INIT;
	struct kit_place p;
	size_t n = 3, count;

	kit_place_make(&p);
	snprintf(tree, sizeof(tree), "%s/outside/tree", p.path);
	snprintf(target, sizeof(target), "%s/target", p.path);
	snprintf(archive, sizeof(archive), "%s/outside/tar", p.path);
	assert_int_equal(mkdir(tree, 0711), 0);
	dir = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put_plain(dir);
	put_links(dir);
	put_dirs(dir);
	if (parts & TREE_FIFO)
		assert_int_equal(mkfifoat(dir, "fifo", 0620), 0);
	if (parts & TREE_LONG)
		put_long(dir);
	if (parts & TREE_SPARSE)
		put_sparse(dir);
	if (parts & TREE_XATTR && have_xattrs(dir))
		put_xattrs(tree);
	if (parts & TREE_TIMES)
		put_times(dir);
	while (*options)
		argv[n++] = *options++;
	argv[n++] = "-cf";
	argv[n++] = archive;
	argv[n++] = "-C";
	argv[n++] = tree;
	argv[n++] = ".";
	assert_int_equal(kit_run(argv), 0);

	fd = open(archive, O_RDONLY | O_CLOEXEC);
	if (untar_run(p.target, fd, &done, &e) < 0)
		fail_msg("%s", e.text);
	count = kit_compare(tree, target, ns);
	assert_int_equal(done.entries, count);
	assert_int_equal(done.devices, 0);
	if (parts & TREE_SPARSE) {
		struct stat st;

		assert_int_equal(fstatat(p.target, "sparse-huge", &st, 0), 0);
		assert_int_equal(st.st_size, (off_t)1 << 36);
		assert_true(st.st_blocks < 2048);
		assert_true(done.bytes < 16 << 20);
	}
	kit_place_drop(&p);
}

#define OPTIONS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_v7(void **state)
{
	(void)state;
	round_trip(0, false, OPTIONS("--format=v7"));
}

static void test_ustar(void **state)
{
	(void)state;
	round_trip(TREE_FIFO, false, OPTIONS("--format=ustar"));
}

static void test_gnu(void **state)
{
	(void)state;
	round_trip(TREE_FIFO | TREE_LONG | TREE_TIMES, false, OPTIONS("--format=gnu"));
}

static void test_gnu_sparse(void **state)
{
	(void)state;
	round_trip(TREE_LONG | TREE_SPARSE, false, OPTIONS("--format=gnu", "--sparse"));
}

static void test_pax(void **state)
{
	(void)state;
	round_trip(TREE_FIFO | TREE_LONG | TREE_TIMES | TREE_XATTR, true,
		   OPTIONS("--format=pax", "--xattrs", "--xattrs-include=*"));
}

static void test_pax_sparse(void **state)
{
	static const char *const versions[] = { "0.0", "0.1", "1.0" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		char option[32];

		snprintf(option, sizeof(option), "--sparse-version=%s", versions[i]);
		round_trip(TREE_LONG | TREE_SPARSE, true,
			   OPTIONS("--format=pax", "--sparse", option));
	}
}

/* Fed in pieces that never fit a block, through a pipe, with much after the end mark. */
static void test_pipe(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 22);
	struct untar_result done;
	struct err e = ERR_INIT;
	struct kit_place p;
	char text[16];
	int ends[2], status;
	pid_t pid;

	(void)state;
	kit_file(&b, "a", "first");
	kit_file(&b, "b", "second");
	kit_end(&b);
	for (int i = 0; i < 300000; i++)
		assert_int_equal(buf_addc(&b, (char)i), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		alarm(60); /* a reader that stops must not leave it waiting */
		for (size_t at = 0; at < b.len; at += 509) {
			size_t len = b.len - at < 509 ? b.len - at : 509;

			if (write_all(ends[1], b.data + at, len) < 0)
				_exit(1);
		}
		_exit(0);
	}
	close(ends[1]);
	kit_place_make(&p);
	assert_int_equal(untar_run(p.target, ends[0], &done, &e), 0);
	assert_int_equal(done.entries, 2);
	assert_int_equal(done.bytes, 11);
	assert_int_equal(read_text_at(p.target, "b", text, sizeof(text)), 6);
	assert_string_equal(text, "second");
	close(ends[0]);
	/* what followed the end mark was read, so that nothing stopped the writer */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	kit_place_check(&p);
	kit_place_drop(&p);
}

/* What comes later in an archive takes the place of what came before. */
static void test_replaced(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct kit_place p;
	struct stat st;
	struct err e;
	char text[16];

	(void)state;
	kit_file(&b, "file", "one");
	kit_file(&b, "file", "two");
	kit_link(&b, '2', "was-link", "file");
	kit_dir(&b, "was-link");
	kit_file(&b, "was-link/in", "x");
	kit_dir(&b, "was-dir");
	kit_link(&b, '2', "was-dir", "was-link");
	kit_link(&b, '2', "over", "file");
	kit_file(&b, "over", "own");
	kit_link(&b, '1', "over2", "file");
	kit_file(&b, "over2", "own");
	kit_link(&b, '1', "file", "file");
	kit_file(&b, "hard", "x");
	kit_link(&b, '1', "hard", "file");
	kit_file(&b, "made/by/name", "x");
	kit_end(&b);
	kit_place_make(&p);
	umask(022);
	if (kit_unpack(&b, &p, NULL, &e) < 0)
		fail_msg("%s", e.text);
	read_text_at(p.target, "file", text, sizeof(text));
	assert_string_equal(text, "two");
	assert_int_equal(fstatat(p.target, "was-link", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(fstatat(p.target, "was-dir", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(fstatat(p.target, "over", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(fstatat(p.target, "hard", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(fstatat(p.target, "made/by", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0755);
	kit_place_check(&p);
	kit_place_drop(&p);
}

static void test_whiteouts(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct untar_result done;
	struct kit_place p;
	struct stat st;
	struct err e;

	(void)state;
	kit_dir(&b, "d");
	kit_file(&b, "d/kept", "x");
	kit_file(&b, "d/.wh.gone", "");
	kit_file(&b, "d/.wh.kept", "");
	kit_file(&b, "d/.wh..wh.plnk", "");
	kit_file(&b, "d/.wh.back", "");
	kit_file(&b, "d/back", "again");
	kit_end(&b);
	kit_place_make(&p);
	if (kit_unpack(&b, &p, &done, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(fstatat(p.target, "d/gone", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(st.st_rdev, 0);
	assert_int_equal(fstatat(p.target, "d/kept", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(fstatat(p.target, "d/back", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(fstatat(p.target, "d/.wh..wh.plnk", &st, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(done.entries, 5);
	kit_place_drop(&p);
}

static void test_devices(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct untar_result done;
	struct kit_place p;
	struct stat st;
	struct err e;

	(void)state;
	kit_header(&b, &(struct kit_head){ .name = "null", .type = '3' });
	kit_header(&b, &(struct kit_head){ .name = "sda", .type = '4', .size = 4096 });
	kit_file(&b, "after", "x");
	kit_end(&b);
	kit_place_make(&p);
	if (kit_unpack(&b, &p, &done, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(done.devices, 2);
	assert_int_equal(done.entries, 1);
	assert_int_equal(fstatat(p.target, "null", &st, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(fstatat(p.target, "sda", &st, AT_SYMLINK_NOFOLLOW), -1);
	kit_place_drop(&p);
}

static void test_clean(void **state)
{
	static const struct {
		const char *name, *want; /* NULL: refused */
	} rows[] = {
		{ "a", "a" },         { "/a", "a" },
		{ "//a//b/", "a/b" }, { "./a/./b/.", "a/b" },
		{ ".", "" },          { "/", "" },
		{ "./", "" },         { "..", NULL },
		{ "../a", NULL },     { "a/..", NULL },
		{ "a/../b", NULL },   { "/..", NULL },
		{ "...", "..." },     { "..a/b..", "..a/b.." },
		{ ".a/.b", ".a/.b" }, { "a\nb", "a\nb" },
	};
	char out[TAR_NAME_MAX + 1], deep[2 * TAR_DEPTH_MAX + 3];
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!rows[i].want) {
			assert_int_equal(tar_clean(rows[i].name, out, &e), -EINVAL);
			continue;
		}
		assert_int_equal(tar_clean(rows[i].name, out, &e), 0);
		assert_string_equal(out, rows[i].want);
	}
	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i & 1 ? '/' : 'd';
	deep[2 * TAR_DEPTH_MAX] = '\0';
	assert_int_equal(tar_clean(deep, out, &e), 0);
	deep[2 * TAR_DEPTH_MAX] = 'd';
	deep[2 * TAR_DEPTH_MAX + 1] = '\0';
	assert_int_equal(tar_clean(deep, out, &e), -ENAMETOOLONG);
}

static void test_quote(void **state)
{
	char out[TAR_QUOTED_SIZE], name[400];

	(void)state;
	tar_quote("plain \xc3\xa9", out);
	assert_string_equal(out, "plain \xc3\xa9");
	tar_quote("a\nb\x1b[31m\x7f", out);
	assert_string_equal(out, "a\\x0ab\\x1b[31m\\x7f");
	tar_quote("\xc3\xa9\xff", out);
	assert_string_equal(out, "\\xc3\\xa9\\xff");
	for (size_t i = 0; i < sizeof(name) - 1; i += 3)
		memcpy(name + i, "\xe2\x82\xac", 3);
	name[399] = '\0';
	for (size_t shift = 0; shift < 3; shift++) {
		name[0] = 'a';
		tar_quote(shift ? name + 3 * shift : name, out);
		assert_true(strlen(out) < sizeof(out));
		assert_string_equal(out + strlen(out) - 3, "...");
		if (shift)
			assert_true(utf8_valid(out, strlen(out)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v7),        cmocka_unit_test(test_ustar),
		cmocka_unit_test(test_gnu),       cmocka_unit_test(test_gnu_sparse),
		cmocka_unit_test(test_pax),       cmocka_unit_test(test_pax_sparse),
		cmocka_unit_test(test_pipe),      cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_whiteouts), cmocka_unit_test(test_devices),
		cmocka_unit_test(test_clean),     cmocka_unit_test(test_quote),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
