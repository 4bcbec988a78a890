#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h needs them first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "cli.h"

static char home[64];
static char file[128];

static int set_up(void **state)
{
	(void)state;
	str_copy(home, sizeof(home), "/tmp/test-cli-conf-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	snprintf(file, sizeof(file), "%s/.config/skerry/config.json", home);
	setenv("HOME", home, 1);
	unsetenv("SKERRY_URL");
	unsetenv("SKERRY_TOKEN");
	return 0;
}

static int tear_down(void **state)
{
	char path[128];

	(void)state;
	unlink(file);
	snprintf(path, sizeof(path), "%s/.config/skerry", home);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/.config", home);
	rmdir(path);
	return rmdir(home);
}

static void write_file(const char *text, mode_t mode)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/.config", home);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/.config/skerry", home);
	mkdir(path, 0700);
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int load(struct conf *c, struct conf_options o)
{
	struct err e = ERR_INIT;

	return conf_load(c, &o, &e);
}

static void defaults(void **state)
{
	struct conf c;

	(void)state;
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.url.text, CONF_DEFAULT_URL);
	assert_int_equal(c.url.source, FROM_DEFAULT);
	assert_null(c.token.text);
	assert_null(c.project.text);
	assert_string_equal(c.workspace.text, "default");
	assert_false(c.exists);
	conf_release(&c);
}

static void strongest_source_wins(void **state)
{
	struct conf c;

	(void)state;
	write_file("{\"current\":\"b\",\"contexts\":{"
		   "\"a\":{\"url\":\"http://a\",\"token\":\"ta\"},"
		   "\"b\":{\"url\":\"http://b\",\"token\":\"tb\",\"project\":\"p\"}}}",
		   0600);
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.url.text, "http://b");
	assert_string_equal(c.token.text, "tb");
	assert_string_equal(c.project.text, "p");
	conf_release(&c);

	assert_int_equal(load(&c, (struct conf_options){ .context = "a" }), 0);
	assert_string_equal(c.token.text, "ta");
	assert_null(c.project.text);
	conf_release(&c);

	setenv("SKERRY_URL", "http://env", 1);
	setenv("SKERRY_TOKEN", "te", 1);
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.url.text, "http://env");
	assert_string_equal(c.token.text, "te");
	assert_int_equal(c.token.source, FROM_ENVIRONMENT);
	conf_release(&c);

	assert_int_equal(load(&c, (struct conf_options){ .url = "http://opt" }), 0);
	assert_string_equal(c.url.text, "http://opt");
	conf_release(&c);
	setenv("SKERRY_URL", "", 1); /* as good as unset */
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.url.text, "http://b");
	conf_release(&c);
	unsetenv("SKERRY_URL");
	unsetenv("SKERRY_TOKEN");
}

static void no_such_context(void **state)
{
	struct conf c;

	(void)state;
	write_file("{\"contexts\":{}}", 0600);
	assert_int_equal(load(&c, (struct conf_options){ .context = "x" }), -ENOENT);
	conf_release(&c);
}

static void modes(void **state)
{
	static const mode_t bad[] = { 0640, 0604, 0620, 0602, 0610, 0666, 0777 };
	struct conf c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;
		struct conf_options o = { 0 };

		write_file("{\"contexts\":{\"default\":{\"token\":\"secret\"}}}", bad[i]);
		assert_int_equal(conf_load(&c, &o, &e), -EPERM);
		assert_string_equal(e.reason, REASON_CONFIG);
		assert_non_null(strstr(e.text, "can be used by others"));
		assert_non_null(strstr(e.hint, "chmod 600"));
		assert_null(c.token.text);
		conf_release(&c);
	}
	write_file("{\"contexts\":{\"default\":{\"token\":\"secret\"}}}", 0400);
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.token.text, "secret");
	conf_release(&c);
}

static void broken_files(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"3",
		"{\"current\":\"a\",\"current\":\"b\"}",
		"{} x",
		"{\"contexts\":{\"default\":{\"token\":\"a\\nX: y\"}}}",
	};
	/* wrong types are as good as absent */
	static const char *const mild[] = { "{\"contexts\":[]}", "{\"current\":3}",
					    "{\"contexts\":{\"default\":{\"url\":7}}}" };
	struct conf c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		write_file(texts[i], 0600);
		assert_int_equal(load(&c, (struct conf_options){ 0 }), -EINVAL);
		conf_release(&c);
	}
	for (size_t i = 0; i < ARRAY_SIZE(mild); i++) {
		write_file(mild[i], 0600);
		assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
		assert_string_equal(c.url.text, CONF_DEFAULT_URL);
		conf_release(&c);
	}
}

static void set_makes_a_private_file(void **state)
{
	struct err e = ERR_INIT;
	struct stat st;
	struct conf c;
	mode_t old;

	(void)state;
	unlink(file);
	old = umask(0);
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_int_equal(conf_set(&c, "token", "skry_x", &e), 0);
	umask(old);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(conf_set(&c, "url", "http://u", &e), 0);
	conf_release(&c);
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.token.text, "skry_x");
	assert_string_equal(c.url.text, "http://u");
	assert_int_equal(conf_set(&c, "url", NULL, &e), 0);
	assert_int_equal(conf_set(&c, "token", "two\nlines", &e), -EINVAL);
	conf_release(&c);
	assert_int_equal(load(&c, (struct conf_options){ 0 }), 0);
	assert_string_equal(c.token.text, "skry_x");
	assert_int_equal(c.url.source, FROM_DEFAULT);
	conf_release(&c);
}

static void local_urls(void **state)
{
	static const char *const local[] = { "unix:///run/x", "http://127.0.0.1:7070",
					     "http://localhost", "https://localhost/x",
					     "http://[::1]:7070" };
	static const char *const remote[] = { "http://10.0.0.1:7070", "https://localhost.example",
					      "http://127.0.0.1.example/", "nonsense", "" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		assert_true(conf_url_local(local[i]));
	for (size_t i = 0; i < ARRAY_SIZE(remote); i++)
		assert_false(conf_url_local(remote[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),        cmocka_unit_test(strongest_source_wins),
		cmocka_unit_test(no_such_context), cmocka_unit_test(modes),
		cmocka_unit_test(broken_files),    cmocka_unit_test(set_makes_a_private_file),
		cmocka_unit_test(local_urls),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
