/* image list, import and rm. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "each.h"
#include "out.h"

static const char *size_text(const json_t *image, char *out, size_t size)
{
	const json_t *bytes = json_object_get(image, "size_bytes");

	if (!json_is_number(bytes))
		return NULL;
	snprintf(out, size, "%.0f MiB", json_number_value(bytes) / 1024 / 1024);
	return out;
}

int cmd_image_list(struct cli *c, const struct args *a, struct err *e)
{
	static const char *const titles[] = { "NAME", "SIZE", "USER", "WORKDIR", "CREATED", NULL };
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_table_ struct table t;
	_cleanup_json_ json_t *all = NULL;
	const json_t *image;
	size_t i;
	int r;

	(void)a;
	table_init(&t, titles);
	r = api_path(c, &path, e, "images", NULL);
	if (r < 0 || (r = api_call(c, "GET", &path, NULL, CALL_TIMEOUT_MS, &all, e)) < 0)
		return r;
	if (c->json)
		return out_json(all, e);
	json_array_foreach(json_object_get(all, "images"), i, image)
	{
		char size[32];

		table_cell(&t, json_text(image, "name"));
		table_cell(&t, size_text(image, size, sizeof(size)));
		table_cell(&t, json_text(image, "user"));
		table_cell(&t, json_text(image, "work_dir"));
		table_cell(&t, json_text(image, "create_date"));
	}
	return table_print(&t, isatty(STDOUT_FILENO), e);
}

struct upload {
	int fd;
	int failed; /* a negative errno of read */
};

static ssize_t read_upload(void *arg, void *data, size_t len)
{
	struct upload *u = arg;
	ssize_t n;

	do
		n = read(u->fd, data, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		u->failed = -errno;
	return n < 0 ? u->failed : n;
}

/* How long the file is, -1 where only its end will tell. */
static int64_t upload_size(int fd)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	struct stat st;

	if (at < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < at)
		return -1;
	return st.st_size - at;
}

static int open_upload(const char *file, int *ret, struct err *e)
{
	bool standard = !file || str_eq(file, "-");
	int fd;

	if (standard && isatty(STDIN_FILENO))
		return usage(e, "standard input is a terminal; name a FILE or pipe a tar in");
	fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "open '%s': %s", standard ? "standard input" : file,
			       strerror(errno));
	*ret = fd;
	return 0;
}

int cmd_image_import(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	_cleanup_json_ json_t *image = NULL;
	_cleanup_close_ int fd = -1;
	struct upload u = { 0 };
	struct request q = {
		.method = "POST", .type = "application/x-tar", .source = read_upload, .arg = &u
	};
	int r = open_upload(a->n_pos > 1 ? a->pos[1] : NULL, &fd, e);

	if (r < 0 || (r = api_path(c, &path, e, "images", NULL)) < 0)
		return r;
	api_query(&path, "name", a->pos[0]);
	api_query(&path, "user", args_get(a, "user"));
	api_query(&path, "work_dir", args_get(a, "work-dir"));
	if (path.failed)
		return err_set(e, path.failed, "a name is too long");
	u.fd = fd;
	q.path = buf_str(&path);
	q.source_len = upload_size(fd);
	r = api_send(c, &q, &answer, e);
	if (r < 0 && u.failed)
		return err_set(e, u.failed, "read the tar: %s", strerror(-u.failed));
	if (r < 0)
		return r;
	image = json_loadb(buf_str(&answer.body), answer.body.len, JSON_ALLOW_NUL, NULL);
	if (c->json && image)
		return out_json(image, e);
	if (!c->json)
		out_line("%s", json_text_or(image, "name", a->pos[0]));
	return 0;
}

static int remove_one(struct cli *c, const struct args *a, const char *name, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	int r = api_path(c, &path, e, "images", name, NULL);

	(void)a;
	return r < 0 ? r : api_call(c, "DELETE", &path, NULL, CALL_TIMEOUT_MS, NULL, e);
}

int cmd_image_rm(struct cli *c, const struct args *a, struct err *e)
{
	return each_arg(c, a, remove_one, e);
}
