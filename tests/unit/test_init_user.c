#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include "init/user.h"
#include "unit.h"

static char dir[] = "/tmp/test-user-XXXXXX";
static struct user u;

static const char *in_dir(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const char *text, size_t len)
{
	_cleanup_close_ int fd = -1;

	unlink(in_dir(name));
	fd = open(in_dir(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, len), 0);
}

static void puts_file(const char *name, const char *text)
{
	put(name, text, strlen(text));
}

static void test_found(void **state)
{
	(void)state;
	puts_file("passwd", "root:x:0:0:root:/root:/bin/bash\n"
			    "1000:x:7:7::/seven:/bin/sh\n"
			    "skerry:x:1000:1001:,,,:/home/skerry:/bin/zsh\n"
			    "last:x:1002:1002::/home/last:");
	puts_file("group", "root:x:0:\n"
			   "sudo:x:27:skerry,last\n"
			   "near:x:30:xskerry,skerryx,skerr\n"
			   "two:x:31:last,skerry\n"
			   "again:x:1001:skerry\n"
			   "bad:x:99999999999:skerry\n"
			   "short:x:32\n");
	assert_int_equal(user_lookup(dir, "skerry", &u), 0);
	assert_int_equal(u.uid, 1000);
	assert_int_equal(u.gid, 1001);
	assert_string_equal(u.home, "/home/skerry");
	assert_string_equal(u.shell, "/bin/zsh");
	assert_int_equal(u.groups_count, 3);
	assert_int_equal(u.groups[0], 1001);
	assert_int_equal(u.groups[1], 27);
	assert_int_equal(u.groups[2], 31);
	/* a name that is a number wins over the number */
	assert_int_equal(user_lookup(dir, "1000", &u), 0);
	assert_int_equal(u.uid, 7);
	assert_int_equal(user_lookup(dir, "1002", &u), 0);
	assert_string_equal(u.name, "last");
	assert_string_equal(u.shell, "/bin/sh");
	assert_int_equal(user_lookup(dir, "nosuch", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "skerry:x", &u), -ENOENT);
}

static void test_hostile_lines(void **state)
{
	static char big[70000];
	size_t n;

	(void)state;
	memset(big, 'a', sizeof(big));
	n = (size_t)snprintf(big, sizeof(big),
			     ":x:0:0:::\na:x:-1:0::/:\nb:x:4294967295:0::/:\n"
			     "c:x:0x0:0::/:\nd:x:1:2\n\n:::::::\n"
			     "e:x:1:2::relative:relative\nlong:x:5:5::/");
	big[n] = 'h';
	memcpy(big + sizeof(big) - 20, ":/bin/sh\nz:x:6:6::/:", 20);
	put("passwd", big, sizeof(big));
	assert_int_equal(user_lookup(dir, "a", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "b", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "c", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "d", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "0", &u), -ENOENT);
	assert_int_equal(user_lookup(dir, "e", &u), 0);
	assert_string_equal(u.home, "/");
	assert_string_equal(u.shell, "/bin/sh");
	assert_int_equal(user_lookup(dir, "long", &u), 0);
	assert_string_equal(u.home, "/");
	assert_int_equal(user_lookup(dir, "z", &u), 0);
	assert_int_equal(u.uid, 6);
}

static void test_many_groups(void **state)
{
	struct buf b = BUF_INIT(1 << 20);

	(void)state;
	puts_file("passwd", "u:x:5:5::/:/bin/sh\n");
	for (int i = 0; i < 5000; i++)
		buf_addf(&b, "g%d:x:%d:u\n", i, 100 + i);
	put("group", b.data, b.len);
	buf_release(&b);
	assert_int_equal(user_lookup(dir, "u", &u), 0);
	assert_int_equal(u.groups_count, USER_GROUPS_MAX);
}

static void test_not_a_file(void **state)
{
	(void)state;
	unlink(in_dir("group"));
	unlink(in_dir("passwd"));
	assert_int_equal(user_lookup(dir, "root", &u), -ENOENT);
	assert_int_equal(mkfifo(in_dir("passwd"), 0600), 0);
	assert_int_equal(user_lookup(dir, "root", &u), -EINVAL);
	unlink(in_dir("passwd"));
	assert_int_equal(mkdir(in_dir("passwd"), 0700), 0);
	assert_int_equal(user_lookup(dir, "root", &u), -EINVAL);
	rmdir(in_dir("passwd"));
	assert_int_equal(symlink("/dev/zero", in_dir("passwd")), 0);
	assert_int_equal(user_lookup(dir, "root", &u), -EINVAL);
	unlink(in_dir("passwd"));
	puts_file("passwd", "root:x:0:0::/:\n");
	assert_int_equal(truncate(in_dir("passwd"), 1ll << 40), 0);
	assert_int_equal(user_lookup(dir, "root", &u), -EFBIG);
	/* without a group file there is the primary group; a FIFO is as none */
	puts_file("passwd", "u:x:5:6::/:/bin/sh\n");
	assert_int_equal(mkfifo(in_dir("group"), 0600), 0);
	assert_int_equal(user_lookup(dir, "u", &u), 0);
	assert_int_equal(u.groups_count, 1);
	assert_int_equal(u.groups[0], 6);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	unlink(in_dir("passwd"));
	unlink(in_dir("group"));
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found),
		cmocka_unit_test(test_hostile_lines),
		cmocka_unit_test(test_many_groups),
		cmocka_unit_test(test_not_a_file),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
