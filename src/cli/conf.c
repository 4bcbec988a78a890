#include "conf.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "cli.h"
#include "json.h"

enum { FILE_MAX = 256 * 1024 };

const char conf_keys[] = "current url token project workspace";

const char *conf_source_name(enum conf_source from)
{
	static const char *const names[] = {
		[FROM_NOWHERE] = "not set",         [FROM_DEFAULT] = "default",
		[FROM_FILE] = "configuration file", [FROM_ENVIRONMENT] = "environment",
		[FROM_OPTION] = "option",
	};

	return names[from];
}

bool conf_url_local(const char *url)
{
	static const char *const hosts[] = { "127.0.0.1", "localhost", "[::1]" };
	const char *host = strstr(url, "://");

	if (str_starts(url, "unix:"))
		return true;
	if (!host)
		return false;
	host += 3;
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		size_t len = strlen(hosts[i]);

		if (!strncmp(host, hosts[i], len) && strchr(":/", host[len]))
			return true; /* strchr finds the end of the text too */
	}
	return false;
}

static char *file_path(void)
{
	const char *home = getenv("HOME");
	struct passwd *pw;
	char *path;

	if (!home || !*home) {
		pw = getpwuid(getuid());
		home = pw ? pw->pw_dir : "/";
	}
	return asprintf(&path, "%s/.config/skerry/config.json", home) < 0 ? NULL : path;
}

static int file_safe(int fd, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "stat '%s': %m", path);
	if (!S_ISREG(st.st_mode))
		return err_reason(e, EINVAL, REASON_CONFIG, "'%s' is not a file", path);
	if (st.st_mode & 077) {
		err_reason(e, EPERM, REASON_CONFIG,
			   "'%s' holds a token and can be used by others (mode %04o)", path,
			   st.st_mode & 07777);
		return err_hint(e, "chmod 600 %s", path);
	}
	if (geteuid() != 0 && st.st_uid != geteuid())
		return err_reason(e, EPERM, REASON_CONFIG, "'%s' belongs to another user", path);
	return 0;
}

/* `*ret` stays NULL where there is no file. */
static int file_read(const char *path, json_t **ret, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_free_ char *text = NULL;
	json_error_t je;
	ssize_t n;
	int r;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0)
		return err_reason(e, errno, REASON_CONFIG, "open '%s': %s", path, strerror(errno));
	r = file_safe(fd, path, e);
	if (r < 0)
		return r;
	text = malloc(FILE_MAX);
	if (!text)
		return err_set(e, ENOMEM, "out of memory");
	n = read_full(fd, text, FILE_MAX);
	if (n < 0)
		return err_set(e, (int)n, "read '%s': %s", path, strerror((int)-n));
	if (n == FILE_MAX)
		return err_reason(e, EFBIG, REASON_CONFIG, "'%s' is too large", path);
	*ret = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &je);
	if (!*ret || !json_is_object(*ret)) {
		json_decref(*ret);
		*ret = NULL;
		return err_reason(e, EINVAL, REASON_CONFIG, "'%s' is not valid JSON, line %d", path,
				  je.line);
	}
	return 0;
}

/* The strongest source that has a value wins; an empty variable counts as none. */
static int pick(struct conf_value *v, const char *option, const char *env, const char *file,
		const char *fallback, struct err *e)
{
	const char *const texts[] = {
		[FROM_NOWHERE] = NULL,  [FROM_DEFAULT] = fallback,
		[FROM_FILE] = file,     [FROM_ENVIRONMENT] = env && *env ? env : NULL,
		[FROM_OPTION] = option,
	};

	for (int from = FROM_OPTION; from > FROM_NOWHERE; from--) {
		if (!texts[from])
			continue;
		v->text = strdup(texts[from]);
		if (!v->text)
			return err_set(e, ENOMEM, "out of memory");
		v->source = (enum conf_source)from;
		return 0;
	}
	return 0;
}

/* A token goes into a header line: nothing may end that line. */
static int token_check(const char *token, struct err *e)
{
	for (const char *p = token; p && *p; p++) {
		if (*p <= ' ' || *p > '~')
			return err_reason(e, EINVAL, REASON_CONFIG,
					  "the token holds characters a token cannot have");
	}
	return 0;
}

int conf_load(struct conf *c, const struct conf_options *o, struct err *e)
{
	_cleanup_json_ json_t *file = NULL;
	json_t *ctx;
	int r, bad = 0;

	*c = (struct conf){ .path = file_path() };
	if (!c->path)
		return err_set(e, ENOMEM, "out of memory");
	bad = file_read(c->path, &file, e);
	c->exists = file || bad;
	r = pick(&c->context, o->context, NULL, json_text(file, "current"), CONF_DEFAULT_CONTEXT,
		 e);
	if (r < 0)
		return r;
	ctx = json_object_get(json_object_get(file, "contexts"), c->context.text);
	if (!ctx && o->context && !bad) {
		bad = err_reason(e, ENOENT, REASON_CONFIG, "no context '%s' in '%s'", o->context,
				 c->path);
	}
	if ((r = pick(&c->url, o->url, getenv("SKERRY_URL"), json_text(ctx, "url"),
		      CONF_DEFAULT_URL, e)) < 0 ||
	    (r = pick(&c->token, NULL, getenv("SKERRY_TOKEN"), json_text(ctx, "token"), NULL, e)) <
		    0 ||
	    (r = pick(&c->project, o->project, NULL, json_text(ctx, "project"), NULL, e)) < 0 ||
	    (r = pick(&c->workspace, o->workspace, NULL, json_text(ctx, "workspace"),
		      CONF_DEFAULT_WORKSPACE, e)) < 0)
		return r;
	return bad ? bad : token_check(c->token.text, e);
}

void conf_release(struct conf *c)
{
	free(c->path);
	free(c->context.text);
	free(c->url.text);
	if (c->token.text)
		explicit_bzero(c->token.text, strlen(c->token.text));
	free(c->token.text);
	free(c->project.text);
	free(c->workspace.text);
	*c = (struct conf){ 0 };
}

/* The object at `key`, made when missing. Belongs to `parent`. */
static json_t *object_at(json_t *parent, const char *key)
{
	json_t *o = json_object_get(parent, key);

	if (json_is_object(o))
		return o;
	o = json_object();
	return o && !json_object_set_new(parent, key, o) ? o : NULL;
}

static int file_write(const char *path, const json_t *file, struct err *e)
{
	_cleanup_free_ char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));
	_cleanup_free_ char *text = json_dumps(file, JSON_INDENT(2));
	_cleanup_close_ int fd = -1;
	int r;

	if (!dir || !text)
		return err_set(e, ENOMEM, "out of memory");
	for (char *p = dir + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		mkdir(dir, 0755);
	}
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make directory '%s': %s", dir, strerror(errno));
	fd = open(dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "open '%s': %s", dir, strerror(errno));
	r = replace_file_at(fd, strrchr(path, '/') + 1, text, strlen(text), 0600);
	return r < 0 ? err_set(e, r, "write '%s': %s", path, strerror(-r)) : 0;
}

/* The default context needs no entry: everything in it has a default or comes from elsewhere. */
static int check_context(const struct conf *c, const json_t *file, const char *name, struct err *e)
{
	if (json_object_get(json_object_get(file, "contexts"), name) ||
	    str_eq(name, CONF_DEFAULT_CONTEXT))
		return 0;
	err_reason(e, ENOENT, REASON_CONFIG, "no context '%s' in '%s'", name, c->path);
	return err_hint(e, "make it: skerry config set url URL --context %s", name);
}

int conf_set(const struct conf *c, const char *key, const char *value, struct err *e)
{
	_cleanup_json_ json_t *file = NULL;
	json_t *at;
	int r = file_read(c->path, &file, e);

	if (r < 0)
		return r;
	if (str_eq(key, "token") && (r = token_check(value, e)) < 0)
		return r;
	if (!file && !(file = json_object()))
		return err_set(e, ENOMEM, "out of memory");
	if (value && str_eq(key, "current") && (r = check_context(c, file, value, e)) < 0)
		return r;
	if (!json_text(file, "current") &&
	    json_object_set_new(file, "current", json_string(c->context.text)) < 0)
		return err_set(e, ENOMEM, "out of memory");
	at = str_eq(key, "current") ? file
				    : object_at(object_at(file, "contexts"), c->context.text);
	if (!at)
		return err_set(e, ENOMEM, "out of memory");
	if (!value)
		json_object_del(at, key);
	else if (json_object_set_new(at, key, json_string(value)) < 0)
		return usage(e, "%s: the value is not UTF-8", key);
	return file_write(c->path, file, e);
}
