/*
 * The unpacker against archives nobody honest makes: each is an error that names its entry, or is
 * harmless, and nothing beside the target changes.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "failing_alloc.h"
#include "init/untar_read.h"
#include "test_untar_kit.h"
#include "unit.h"

/* Ends the archive, unpacks it, checks the surroundings. */
static int attack(struct buf *b, struct err *e)
{
	struct kit_place p;
	int r;

	kit_end(b);
	kit_place_make(&p);
	r = kit_unpack(b, &p, NULL, e);
	kit_place_check(&p);
	kit_place_drop(&p);
	assert_true(r == 0 || (r == -e->code && e->text[0]));
	buf_clear(b);
	return r;
}

static void expect(struct buf *b, int code, const char *part)
{
	struct err e;
	int r = attack(b, &e);

	if (r != -code || !strstr(e.text, part))
		fail_msg("%d, not %d: '%s' without '%s'", r, -code, e.text, part);
}

static void test_dotdot(void **state)
{
	static const char *const names[] = {
		"../outside/new", "a/../../outside/new", "..", "./..", "/../x", "a/.."
	};
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		kit_file(&b, names[i], "x");
		expect(&b, EINVAL, "'..'");
		kit_dir(&b, names[i]);
		expect(&b, EINVAL, names[i]);
		kit_link(&b, '2', names[i], "x");
		expect(&b, EINVAL, "'..'");
		kit_header(&b, &(struct kit_head){ .name = names[i], .type = '3' });
		expect(&b, EINVAL, "'..'");
		kit_pax(&b, "path", names[i]);
		kit_file(&b, "innocent", "x");
		expect(&b, EINVAL, names[i]);
		kit_extended(&b, 'L', names[i], strlen(names[i]) + 1);
		kit_file(&b, "innocent", "x");
		expect(&b, EINVAL, names[i]);
		kit_file(&b, "here", "x");
		kit_link(&b, '1', "hard", names[i]);
		expect(&b, EINVAL, "'hard': link target");
	}
	kit_header(&b, &(struct kit_head){ .prefix = "..", .name = "outside/new" });
	expect(&b, EINVAL, "'..'");
}

static void test_absolute(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct kit_place p;
	struct stat st;
	struct err e;

	(void)state;
	kit_file(&b, "/untar-escape/file", "x");
	kit_link(&b, '1', "/untar-escape/hard", "/untar-escape/file");
	kit_end(&b);
	kit_place_make(&p);
	assert_int_equal(kit_unpack(&b, &p, NULL, &e), 0);
	assert_int_equal(fstatat(p.target, "untar-escape/hard", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(lstat("/untar-escape", &st), -1);
	kit_place_check(&p);
	kit_place_drop(&p);
}

/* A link, and then something through it: of each kind, relative and absolute. */
static void test_through_link(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct kit_place p;
	char absolute[80];

	(void)state;
	kit_place_make(&p);
	snprintf(absolute, sizeof(absolute), "%s/outside", p.path);
	for (int i = 0; i < 12; i++) {
		const char *to = i & 1 ? absolute : "../outside";
		struct err e;

		buf_clear(&b);
		kit_link(&b, '2', "link", to);
		switch (i / 2) {
		case 0:
			kit_file(&b, "link/new", "x");
			break;
		case 1:
			kit_dir(&b, "link/new");
			break;
		case 2:
			kit_link(&b, '2', "link/new", "x");
			break;
		case 3:
			kit_link(&b, '1', "stolen", "link/secret");
			break;
		case 4:
			kit_file(&b, "link/deep/er/new", "x");
			break;
		default:
			kit_file(&b, "link/.wh.secret", "");
			break;
		}
		kit_end(&b);
		assert_int_equal(kit_unpack(&b, &p, NULL, &e), -ELOOP);
		assert_non_null(strstr(e.text, "symbolic link"));
		kit_place_check(&p);
	}
	kit_place_drop(&p);
}

/* A file, a FIFO and a hard link where a link to an outside file stands replace the link. */
static void test_over_link(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct kit_place p;
	struct stat st;
	struct err e;

	(void)state;
	for (int i = 0; i < 4; i++) {
		static const mode_t want[] = { S_IFREG, S_IFIFO, S_IFREG, S_IFDIR };

		buf_clear(&b);
		kit_file(&b, "other", "x");
		kit_link(&b, '2', "link", i == 3 ? "../outside" : "../outside/secret");
		if (i == 0)
			kit_header(&b, &(struct kit_head){ .name = "link", .mode = 04777 });
		else if (i == 1)
			kit_header(&b, &(struct kit_head){
					       .name = "link", .type = '6', .mode = 04777 });
		else if (i == 2)
			kit_link(&b, '1', "link", "other");
		else
			kit_header(&b, &(struct kit_head){
					       .name = "link", .type = '5', .mode = 04777 });
		kit_end(&b);
		kit_place_make(&p);
		if (kit_unpack(&b, &p, NULL, &e) < 0)
			fail_msg("%s", e.text);
		assert_int_equal(fstatat(p.target, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(st.st_mode & S_IFMT, want[i]);
		kit_place_check(&p);
		kit_place_drop(&p);
	}
}

/* The parent is kept open from one entry to the next: it is swapped for a link in between. */
static void test_swapped_parent(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	kit_dir(&b, "d");
	kit_dir(&b, "d/sub");
	kit_link(&b, '2', "d/sub", "../../outside");
	kit_file(&b, "d/sub/new", "x");
	expect(&b, ELOOP, "'d/sub/new'");
	kit_dir(&b, "d");
	kit_file(&b, "d/x", "x");
	kit_link(&b, '2', "d", "../outside");
	expect(&b, ENOTEMPTY, "'d'");
	kit_file(&b, "f", "x");
	kit_file(&b, "f/below", "x");
	expect(&b, ENOTDIR, "'f/below'");
	/* its time is set at the end, when it has become a link */
	kit_dir(&b, "late");
	kit_link(&b, '2', "late", "../outside");
	expect(&b, 0, "");
}

static void test_hard_links(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	kit_link(&b, '1', "a", "missing");
	expect(&b, ENOENT, "missing");
	kit_dir(&b, "d");
	kit_link(&b, '1', "a", "d");
	expect(&b, EPERM, "'a'");
	kit_link(&b, '1', "a", "/");
	expect(&b, EPERM, "'a'");
	kit_link(&b, '1', "a", "/etc/passwd");
	expect(&b, ENOENT, "'a'");
	/* a link to a link stays one: nothing is opened through it */
	kit_link(&b, '2', "sym", "../outside/secret");
	kit_link(&b, '1', "hard", "sym");
	kit_header(&b, &(struct kit_head){ .name = "hard", .mode = 04777 });
	expect(&b, 0, "");
	kit_header(&b, &(struct kit_head){ .name = "a", .type = '1' });
	expect(&b, EBADMSG, "link target");
	kit_header(&b, &(struct kit_head){ .name = "a", .type = '2' });
	expect(&b, EBADMSG, "link target");
}

static void test_whiteout_names(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	kit_file(&b, ".wh.", "");
	expect(&b, EINVAL, "'.wh.'");
	kit_file(&b, ".wh..", "");
	expect(&b, EINVAL, "'.wh..'");
	kit_file(&b, "d/.wh...", "");
	expect(&b, EINVAL, "'d/.wh...'");
	kit_file(&b, "d/.wh..wh..opq", "");
	expect(&b, EOPNOTSUPP, "'d/.wh..wh..opq'");
}

/* Writes a field of the last header and makes its checksum right again. */
static void patch(struct buf *b, size_t at, const void *bytes, size_t len)
{
	memcpy(b->data + b->len - 512 + at, bytes, len);
	kit_checksum(b->data + b->len - 512);
}

static void test_numbers(void **state)
{
	static const struct {
		size_t at, len;
		const char *bytes;
		int code;
	} rows[] = {
		{ 124, 12, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", EBADMSG }, /* cut short */
		{ 124, 12, "\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", EBADMSG },
		{ 124, 12, "\x80\x01\0\0\0\0\0\0\0\0\0\0", EBADMSG },
		{ 124, 12, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", EBADMSG }, /* -1 */
		{ 124, 12, "\x80\0\0\0\0\0\0\0\0\0\0\0", 0 },
		{ 124, 12, "777777777777", EBADMSG },
		{ 124, 12, "-0000000001\0", EBADMSG },
		{ 124, 12, "0000000000x\0", EBADMSG },
		{ 124, 12, "0000000008\0\0", EBADMSG },
		{ 124, 12, "           0", 0 },
		{ 124, 12, "            ", 0 },
		{ 124, 12, "\0\0\0\0\0\0\0\0\0\0\0\0", 0 },
		{ 108, 8, "\x80\0\0\0\xff\xff\xff\xff", EBADMSG }, /* "leave it" to chown */
		{ 116, 8, "\x80\0\0\0\xff\xff\xff\xff", EBADMSG },
		{ 108, 8, "\x80\0\0\x01\0\0\0\0", EBADMSG },
		{ 108, 8, "\xff\xff\xff\xff\xff\xff\xff\xfe", EBADMSG },
		{ 108, 8, "\x80\0\0\0\0\0\x03\xe8", 0 },
		{ 136, 12, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 0 }, /* 1969 */
		{ 136, 12, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 0 },
		{ 136, 12, "\x80\0\0\x01\0\0\0\0\0\0\0\0", EBADMSG },
		{ 136, 12, "zzzzzzzzzzz\0", EBADMSG },
		{ 100, 8, "0009999\0", EBADMSG },
		{ 156, 1, "Z", EBADMSG },
		{ 156, 1, "M", EBADMSG },
	};
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err e;
		int r;

		kit_header(&b, &(struct kit_head){ .name = "n" });
		patch(&b, rows[i].at, rows[i].bytes, rows[i].len);
		r = attack(&b, &e);
		if (r != -rows[i].code)
			fail_msg("row %zu: %d, %s", i, r, e.text);
	}
}

/* Of an archive with one of everything, cut at each block and near it, no piece is accepted. */
static void test_cut(void **state)
{
	static const char content[2000] = "x";
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct buf piece;
	struct kit_place p;
	struct err e;

	(void)state;
	kit_dir(&b, "d");
	kit_pax(&b, "path", "d/long");
	kit_file(&b, "short", "content");
	kit_extended(&b, 'L', "d/other", 8);
	kit_file(&b, "short", "more than one block follows here");
	kit_header(&b, &(struct kit_head){ .name = "big", .size = 2000 });
	kit_content(&b, content, 2000);
	kit_extended(&b, 'g', "", 0);
	kit_link(&b, '2', "l", "d");
	kit_end(&b);
	kit_place_make(&p);
	assert_int_equal(kit_unpack(&b, &p, NULL, &e), 0);
	for (size_t at = 0; at < b.len; at += 512) {
		for (int shift = -1; shift <= 1; shift++) {
			if (at == 0 && shift < 0)
				continue;
			piece = b;
			piece.len = at + (size_t)shift;
			assert_int_equal(kit_unpack(&piece, &p, NULL, &e), -EBADMSG);
		}
	}
	kit_place_check(&p);
	kit_place_drop(&p);
}

static void test_checksum(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	int sum = 0;

	(void)state;
	for (size_t at = 0; at < 512; at += 7) {
		kit_file(&b, "n", "x");
		b.data[at] ^= 0x11;
		expect(&b, EBADMSG, "");
	}
	/* added up as signed bytes, as old writers did */
	kit_header(&b, &(struct kit_head){ .name = "\xff\xfe\xfd" });
	memset(b.data + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (signed char)b.data[i];
	snprintf(b.data + 148, 8, "%06o", (unsigned)sum);
	expect(&b, 0, "");
	kit_end(&b);
	b.len -= 512;
	kit_file(&b, "n", "x");
	expect(&b, EBADMSG, "end mark");
	buf_add(&b, "not a tar", 9);
	expect(&b, EBADMSG, "");
}

static void test_pax_lies(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		int code;
	} rows[] = {
		{ "12 path=abc\n", 12, 0 },
		{ "12 path=abcd", 12, EBADMSG },
		{ "11 path=abc\n", 12, EBADMSG },
		{ "13 path=abc\n", 12, EBADMSG },
		{ "0 path=abc\n", 11, EBADMSG },
		{ "path=abc\n", 9, EBADMSG },
		{ "-12 path=abc\n", 13, EBADMSG },
		{ "99999999999999999999999 path=abc\n", 33, EBADMSG },
		{ "18446744073709551628 path=abc\n", 30, EBADMSG },
		{ "12 path abc\n", 12, EBADMSG },
		{ "5 =a\n", 5, EBADMSG },
		{ "5", 1, EBADMSG },
		{ "5 ", 2, EBADMSG },
		{ "12 path=a\0c\n", 12, EBADMSG },
		{ "12 pa\0h=abc\n", 12, EBADMSG },
		{ "9 path=\n", 8, EBADMSG },
		{ "8 path=\n", 8, 0 },
		{ "11 size=-1\n", 11, EBADMSG },
		{ "12 size=1e3\n", 12, EBADMSG },
		{ "28 size=9223372036854775808\n", 28, EBADMSG },
		{ "28 size=9223372036854775807\n", 28, EBADMSG }, /* cut short */
		{ "18 uid=4294967295\n", 18, EBADMSG },
		{ "18 gid=4294967296\n", 18, EBADMSG },
		{ "11 mtime=x\n", 11, EBADMSG },
		{ "11 mtime=-\n", 11, EBADMSG },
		{ "14 mtime=1.2x\n", 14, EBADMSG },
		{ "14 mtime=-1.5\n", 14, 0 },
		{ "11 mtime=9\n", 11, 0 },
		{ "18 SCHILY.xattr.=\n", 18, EBADMSG },
		{ "24 GNU.sparse.offset=10\n", 24, EBADMSG },
		{ "25 GNU.sparse.numbytes=1\n", 25, EBADMSG },
		{ "23 GNU.sparse.map=0,1,2\n", 24, EBADMSG },
		{ "22 GNU.sparse.map=0,1\n", 22, EBADMSG },
		{ "22 GNU.sparse.major=7\n", 22, EBADMSG },
		{ "22 GNU.sparse.major=1\n", 22, EBADMSG },
		{ "21 GNU.sparse.size=5\n", 21, 0 }, /* nothing but a hole */
	};
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err e;
		int r;

		kit_extended(&b, 'x', rows[i].text, rows[i].len);
		kit_file(&b, "n", "");
		r = attack(&b, &e);
		if (r != -rows[i].code)
			fail_msg("row %zu: %d, %s", i, r, e.text);
	}
}

static void test_sparse_lies(void **state)
{
	static const struct {
		const char *map;
		const char *size;
		uint64_t stored;
		int code;
	} rows[] = {
		{ "0,5,100,5", "200", 10, 0 },
		{ "0,5,100,5", "105", 10, 0 },
		{ "0,5,100,5", "104", 10, EBADMSG },
		{ "0,5,4,5", "200", 10, EBADMSG },   /* overlapping */
		{ "100,5,0,5", "200", 10, EBADMSG }, /* falling */
		{ "0,5,100,6", "200", 10, EBADMSG }, /* more than is there */
		{ "0,5,100,4", "200", 10, EBADMSG }, /* less */
		{ "0,9223372036854775807,9223372036854775807,9223372036854775807",
		  "9223372036854775807", 10, EBADMSG },
		{ "9223372036854775807,5", "9223372036854775807", 5, EBADMSG },
	};
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20), x = BUF_INIT(4096);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err e;
		int r;

		buf_clear(&x);
		kit_record(&x, "GNU.sparse.map", rows[i].map, strlen(rows[i].map));
		kit_record(&x, "GNU.sparse.size", rows[i].size, strlen(rows[i].size));
		kit_extended(&b, 'x', x.data, x.len);
		kit_header(&b, &(struct kit_head){ .name = "s", .size = rows[i].stored });
		kit_content(&b, "0123456789", rows[i].stored);
		r = attack(&b, &e);
		if (r != -rows[i].code)
			fail_msg("row %zu: %d, %s", i, r, e.text);
	}
}

static void test_ceilings(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 23), x = BUF_INIT(1 << 22);
	static char name[TAR_NAME_MAX + 2];
	char key[64];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	for (size_t i = 200; i < sizeof(name) - 1; i += 200)
		name[i] = '/';
	kit_extended(&b, 'L', name, sizeof(name));
	kit_file(&b, "n", "x");
	expect(&b, EMSGSIZE, "too long");
	kit_pax(&b, "path", name);
	kit_file(&b, "n", "x");
	expect(&b, EBADMSG, "bad name");
	name[TAR_NAME_MAX] = '\0';
	kit_pax(&b, "path", name);
	kit_file(&b, "n", "x");
	expect(&b, 0, "");
	while (x.len <= TAR_PAX_MAX)
		kit_record(&x, "comment", name, TAR_NAME_MAX);
	kit_extended(&b, 'x', x.data, x.len);
	expect(&b, EMSGSIZE, "too long");
	for (int i = 0; i < 40; i++)
		kit_extended(&b, 'g', x.data, 4096);
	expect(&b, EBADMSG, "extended header");
	buf_clear(&x);
	kit_record(&x, "comment", name, 4000);
	for (int i = 0; i < 40; i++)
		kit_extended(&b, 'g', x.data, x.len);
	expect(&b, EMSGSIZE, "too long");
	buf_clear(&x);
	for (int i = 0; i <= TAR_XATTRS_MAX; i++) {
		snprintf(key, sizeof(key), "SCHILY.xattr.user.n%d", i);
		kit_record(&x, key, "v", 1);
	}
	kit_extended(&b, 'x', x.data, x.len);
	kit_file(&b, "n", "x");
	expect(&b, EMSGSIZE, "too much of an attribute");
	name[300] = '\0';
	memset(name, 'n', 300);
	kit_pax(&b, "path", name);
	kit_file(&b, "n", "x");
	expect(&b, ENAMETOOLONG, "...'");
}

/* A global header holds for all that follow, an own one before it. */
static void test_global(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20), x = BUF_INIT(4096);
	struct kit_place p;
	struct stat st;
	struct err e;

	(void)state;
	kit_record(&x, "uid", "7", 1);
	kit_record(&x, "mtime", "1000.25", 7);
	kit_extended(&b, 'g', x.data, x.len);
	kit_file(&b, "a", "x");
	kit_pax(&b, "uid", "8");
	kit_file(&b, "b", "x");
	kit_pax(&b, "uid", "");
	kit_file(&b, "c", "x");
	kit_file(&b, "d", "x");
	kit_end(&b);
	kit_place_make(&p);
	if (kit_unpack(&b, &p, NULL, &e) < 0)
		fail_msg("%s", e.text);
	for (int i = 0; i < 4; i++) {
		static const uid_t want[] = { 7, 8, 0, 7 };
		const char name[] = { (char)('a' + i), '\0' };

		assert_int_equal(fstatat(p.target, name, &st, 0), 0);
		assert_int_equal(st.st_uid, want[i]);
		assert_int_equal(st.st_mtim.tv_sec, 1000);
		assert_int_equal(st.st_mtim.tv_nsec, 250000000);
	}
	kit_place_drop(&p);
	buf_clear(&b);
	buf_clear(&x);
	kit_record(&x, "GNU.sparse.map", "0,1", 3);
	kit_extended(&b, 'g', x.data, x.len);
	expect(&b, EBADMSG, "GNU.sparse.map");
}

/* What is told to a person holds no control characters, whatever the name. */
static void test_error_text(void **state)
{
	static const char *const names[] = { "../a\nb\x1b[2J", "../\xff\xfe", "../\xc3\xa9" };
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct err e;

		kit_file(&b, names[i], "x");
		assert_int_equal(attack(&b, &e), -EINVAL);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		for (const char *s = e.text; *s; s++)
			assert_true((unsigned char)*s >= 0x20 && *s != 0x7f);
	}
}

static void test_disk_full(void **state)
{
	static const char content[8192] = "x";
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	const struct rlimit small = { 4096, RLIM_INFINITY };
	struct rlimit old;

	(void)state;
	/* a limit on the size of files stands in for a full disk: EFBIG for a write beyond it */
	kit_header(&b, &(struct kit_head){ .name = "big", .size = 8192 });
	kit_content(&b, content, sizeof(content));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	kit_end(&b);
	{
		_cleanup_close_ int fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
		struct untar_result done;
		struct err e = ERR_INIT;
		struct kit_place p;

		assert_int_equal(write_all(fd, b.data, b.len), 0);
		lseek(fd, 0, SEEK_SET);
		kit_place_make(&p);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_int_equal(untar_run(p.target, fd, &done, &e), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_non_null(strstr(e.text, "'big': write"));
		kit_place_drop(&p);
	}
}

/* Each allocation fails once, with all that follow: an error each time, and nothing is lost. */
static void test_no_memory(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20), x = BUF_INIT(4096);
	struct kit_place p;
	struct err e;
	int r;

	(void)state;
	kit_record(&x, "GNU.sparse.map", "0,5,100,5", 9);
	kit_record(&x, "GNU.sparse.size", "200", 3);
	kit_extended(&b, 'g', "", 0);
	kit_extended(&b, 'x', x.data, x.len);
	kit_header(&b, &(struct kit_head){ .name = "sparse", .size = 10 });
	kit_content(&b, "0123456789", 10);
	kit_extended(&b, 'L', "long", 5);
	kit_extended(&b, 'K', "target", 7);
	kit_link(&b, '2', "short", "x");
	kit_end(&b);
	kit_place_make(&p);
	for (long n = 0;; n++) {
		failing_alloc_after(n);
		r = kit_unpack(&b, &p, NULL, &e);
		if (!failing_alloc_hit())
			break;
		failing_alloc_after(-1);
		assert_int_equal(r, -ENOMEM);
		assert_true(n < 100);
	}
	failing_alloc_after(-1);
	assert_int_equal(r, 0);
	kit_place_drop(&p);
}

/* After failures and successes alike, as many descriptors are open as before. */
static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static unsigned fds_before;

static int count_before(void **state)
{
	(void)state;
	fds_before = open_fds();
	return 0;
}

static int count_after(void **state)
{
	(void)state;
	return open_fds() == fds_before ? 0 : -1;
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, count_before, count_after)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ROW(test_dotdot),         ROW(test_absolute),   ROW(test_through_link),
		ROW(test_over_link),      ROW(test_hard_links), ROW(test_swapped_parent),
		ROW(test_whiteout_names), ROW(test_numbers),    ROW(test_cut),
		ROW(test_checksum),       ROW(test_pax_lies),   ROW(test_sparse_lies),
		ROW(test_ceilings),       ROW(test_global),     ROW(test_error_text),
		ROW(test_disk_full),      ROW(test_no_memory),
	};

	signal(SIGXFSZ, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
