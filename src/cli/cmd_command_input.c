/* command signal and command stdin: what a command that runs is sent. */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/str.h"

#include "api.h"
#include "fields.h"

static int command_path(struct cli *c, const struct args *a, const char *what, struct buf *path,
			struct err *e)
{
	return api_path(c, path, e, "sandboxes", a->pos[0], "commands", a->pos[1], what, NULL);
}

/* "int", "INT" and "SIGINT" are one. */
static int put_signal(json_t *body, const char *word, struct err *e)
{
	char name[32];

	if (!strncasecmp(word, "SIG", 3))
		word += 3;
	snprintf(name, sizeof(name), "%s", word);
	for (char *p = name; *p; p++)
		*p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
	return api_put(body, "signal", name, e);
}

int cmd_command_signal(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_json_ json_t *body = json_object();
	int r = put_signal(body, a->pos[2], e);

	if (r < 0 || (r = command_path(c, a, "signal", &path, e)) < 0)
		return r;
	return api_call(c, "POST", &path, body, CALL_TIMEOUT_MS, NULL, e);
}

static ssize_t read_stdin(void *arg, void *data, size_t len)
{
	int *failed = arg;
	ssize_t n;

	do
		n = read(STDIN_FILENO, data, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		*failed = -errno;
	return n < 0 ? *failed : n;
}

int cmd_command_stdin(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_LEN);
	_cleanup_answer_ struct answer answer = ANSWER_INIT;
	int failed = 0;
	struct request q = {
		.method = "POST",
		.type = "application/octet-stream",
		.source = read_stdin,
		.source_len = -1,
		.arg = &failed,
	};
	int r = command_path(c, a, "stdin", &path, e);

	if (r < 0)
		return r;
	api_query(&path, "eof", args_has(a, "eof") ? "true" : NULL);
	if (path.failed)
		return err_set(e, path.failed, "a name is too long");
	q.path = buf_str(&path);
	r = api_send(c, &q, &answer, e);
	if (r < 0 && failed)
		return err_set(e, failed, "read standard input: %s", strerror(-failed));
	return r;
}
