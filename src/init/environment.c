#include "init/environment.h"

#include <errno.h>
#include <linux/binfmts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/buf.h"
#include "base/cleanup.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum {
	ARG_MAX_ONE =
		128 * 1024, /* the kernel's MAX_ARG_STRLEN: bytes of one argument, NUL included */
	PIECE_MAX = 96 * 1024,
	PIECES_MAX = AGENT_STRING_MAX / (PIECE_MAX / 2) + 2,
	COMMAND_PATH_MAX = 4096,
	PATH_NAME_MAX = 256,
};

/* How a script is handed over. A script that is too long for one argument is cut into several,
 * which `joined` puts together again: no file, no descriptor, and standard input stays free. */
static const struct runtime {
	const char *programs[2];
	const char *before[2]; /* arguments up to the script */
	const char *joined;    /* the script's place is taken by this … */
	const char *after;     /* … followed by this, then the pieces */
	bool shell;            /* `joined` is made for the number of pieces */
} runtimes[] = {
	[RUNTIME_BASH] = { .programs = { "/bin/bash", "/bin/sh" },
			   .before = { "-c" },
			   .shell = true },
	[RUNTIME_PYTHON] = { .programs = { "python3" },
			     .before = { "-c" },
			     .joined =
				     "import sys as _s;_c=compile(''.join(_s.argv[1:]),'<string>',"
				     "'exec');del _s.argv[1:];exec(_c)" },
	[RUNTIME_JAVASCRIPT] = { .programs = { "node" },
				 .before = { "-e" },
				 .joined = "require('vm').runInThisContext("
					   "process.argv.splice(1).join(''),'[eval]')",
				 .after = "--" },
	[RUNTIME_TYPESCRIPT] = { .programs = { "tsx" }, .before = { "-e" } },
};

static size_t key_len(const char *entry)
{
	return strcspn(entry, "=");
}

/* Puts `entry` in, over an earlier one of its key. */
static void env_put(char **env, size_t *n, char *entry)
{
	size_t len = key_len(entry);

	for (size_t i = 0; i < *n; i++) {
		if (strncmp(env[i], entry, len + 1) == 0) {
			env[i] = entry;
			return;
		}
	}
	env[(*n)++] = entry;
}

int environment_make(const struct agent_run *run, const struct user *u, struct environment *ret,
		     struct err *e)
{
	const struct {
		const char *key, *value;
	} base[] = {
		{ "HOME", u->home },          { "USER", u->name },      { "LOGNAME", u->name },
		{ "SHELL", u->shell },        { "PATH", DEFAULT_PATH }, { "LANG", "C.UTF-8" },
		{ "TERM", "xterm-256color" },
	};
	size_t n = 0, count = 0;
	/* TERM only where it is a terminal */
	size_t base_count = ARRAY_SIZE(base) - !(run->flags & RUN_TERMINAL);
	char **env;

	while (run->env[count])
		count++;
	env = calloc(ARRAY_SIZE(base) + count + 1, sizeof(*env));
	if (!env)
		return err_set(e, ENOMEM, "environment: out of memory");
	for (size_t i = 0; i < base_count; i++) {
		char *entry;

		if (asprintf(&entry, "%s=%s", base[i].key, base[i].value) < 0)
			return err_set(e, ENOMEM, "environment: out of memory");
		env_put(env, &n, entry);
	}
	for (size_t i = 0; i < count; i++) {
		size_t len = key_len(run->env[i]);

		if (!len || run->env[i][len] != '=') {
			err_reason(e, EINVAL, "env_invalid",
				   "environment entry %zu is not KEY=value", i);
			return err_field(e, "env");
		}
		env_put(env, &n, run->env[i]);
	}
	*ret = (struct environment){ .env = env, .path = "", .shell = u->shell };
	for (size_t i = 0; i < n; i++) {
		if (str_starts(env[i], "PATH="))
			ret->path = env[i] + 5;
	}
	return 0;
}

/* execve, with a name without '/' looked up in PATH. Comes back with a negative errno: -ENOENT when
 * there is no such program. */
static int exec_found(const struct environment *env, const char *name, char **argv)
{
	char path[COMMAND_PATH_MAX];
	int denied = 0;

	if (strchr(name, '/')) {
		execve(name, argv, env->env);
		return -errno;
	}
	for (const char *dir = env->path; dir;) {
		const char *end = strchrnul(dir, ':');
		int len = (int)(end - dir);

		if (name[0] && snprintf(path, sizeof(path), "%.*s%s%s", len, dir, len ? "/" : "",
					name) < (int)sizeof(path)) {
			execve(path, argv, env->env);
			if (errno == EACCES)
				denied = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				return -errno;
		}
		dir = *end ? end + 1 : NULL;
	}
	return denied ? -denied : -ENOENT;
}

static int exec_failed(const char *name, const char *field, int code, struct err *e)
{
	switch (code) {
	case ENOENT:
	case ENOTDIR:
		if (strchr(name, '/') && access(name, F_OK) == 0)
			err_reason(e, EINVAL, "command_not_found",
				   "program '%s': its interpreter is missing", name);
		else
			err_reason(e, EINVAL, "command_not_found", "program '%s' does not exist",
				   name);
		break;
	case E2BIG:
		err_reason(
			e, EINVAL, "args_too_long",
			"program '%s': arguments and environment are longer than the kernel takes",
			name);
		break;
	case EACCES:
	case ENOEXEC:
	case EISDIR:
	case ELOOP:
	case EPERM:
	case ETXTBSY:
	case ELIBBAD:
	case ENAMETOOLONG:
		err_reason(e, EINVAL, "command_not_executable", "program '%s': %s", name,
			   strerror(code));
		break;
	default:
		return err_reason(e, code, "exec_failed", "execute '%s': %s", name, strerror(code));
	}
	return err_field(e, "%s", field);
}

/* Where to cut: behind a line, else where a UTF-8 character begins. */
static size_t piece_len(const char *s)
{
	size_t len = strnlen(s, PIECE_MAX);

	if (len < PIECE_MAX)
		return len;
	for (size_t n = len; n > PIECE_MAX / 2; n--) {
		if (s[n - 1] == '\n')
			return n;
	}
	for (size_t n = len; n > PIECE_MAX / 2; n--) {
		if (((unsigned char)s[n] & 0xc0) != 0x80)
			return n;
	}
	return len;
}

static int cut_script(const char *script, char **pieces, struct err *e)
{
	int n = 0;

	while (*script) {
		size_t len = piece_len(script);

		if (n == PIECES_MAX)
			return err_set(e, E2BIG, "script: too many pieces");
		pieces[n] = strndup(script, len);
		if (!pieces[n++])
			return err_set(e, ENOMEM, "script: out of memory");
		script += len;
	}
	return n;
}

/* eval "shift 3;$1$2$3": the pieces are gone before the first line of the script runs. */
static char *shell_joined(int n)
{
	struct buf b = BUF_INIT(4096);

	buf_adds(&b, "eval \"shift $#;");
	for (int i = 1; i <= n; i++)
		buf_addf(&b, "${%d}", i);
	buf_adds(&b, "\"");
	return buf_detach(&b);
}

static int exec_script(const struct environment *env, const struct agent_run *run, struct err *e)
{
	const struct runtime *rt = &runtimes[run->runtime];
	char *script = run->argv[0];
	char *argv[PIECES_MAX + 8] = { NULL };
	int n = 1, r = -ENOENT, place, pieces;

	for (size_t i = 0; i < ARRAY_SIZE(rt->before) && rt->before[i]; i++)
		argv[n++] = (char *)rt->before[i];
	place = n++;
	argv[place] = script;
	if (strlen(script) >= ARG_MAX_ONE) {
		if (!rt->joined && !rt->shell) {
			err_reason(e, EINVAL, "script_too_long",
				   "a script of %zu bytes is longer than '%s' takes",
				   strlen(script), rt->programs[0]);
			return err_field(e, "command");
		}
		/* a shell takes the argument after the script as $0 */
		argv[n] = (char *)(rt->shell ? rt->programs[0] : rt->after);
		n += argv[n] != NULL;
		pieces = cut_script(script, argv + n, e);
		if (pieces < 0)
			return pieces;
		argv[place] = rt->shell ? shell_joined(pieces) : (char *)rt->joined;
	}
	for (size_t i = 0; i < ARRAY_SIZE(rt->programs) && rt->programs[i]; i++) {
		argv[0] = (char *)rt->programs[i];
		if (rt->shell && argv[place] != script)
			argv[place + 1] = argv[0];
		r = exec_found(env, argv[0], argv);
		if (r != -ENOENT)
			return exec_failed(argv[0], "runtime", -r, e);
	}
	if (rt->programs[1])
		err_reason(e, EINVAL, "runtime_missing", "neither '%s' nor '%s' exists",
			   rt->programs[0], rt->programs[1]);
	else
		err_reason(e, EINVAL, "runtime_missing", "program '%s' does not exist",
			   rt->programs[0]);
	return err_field(e, "runtime");
}

/* The user's own shell as login(1) starts it, and where that is missing one that is there. */
static int exec_shell(const struct environment *env, struct err *e)
{
	const char *const shells[] = { env->shell, "/bin/bash", "/bin/sh" };
	char name[PATH_NAME_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		const char *slash = strrchr(shells[i], '/');
		char *argv[] = { name, NULL };
		int r;

		snprintf(name, sizeof(name), "-%.*s", (int)sizeof(name) - 2,
			 slash ? slash + 1 : shells[i]);
		r = exec_found(env, shells[i], argv);
		if (r != -ENOENT && r != -ENOTDIR)
			return exec_failed(shells[i], "user", -r, e);
	}
	return err_reason(e, EINVAL, "runtime_missing", "none of '%s', '%s', '%s' exists",
			  shells[0], shells[1], shells[2]);
}

int environment_exec(const struct environment *env, const struct agent_run *run, struct err *e)
{
	if (run->runtime == RUNTIME_SHELL)
		return exec_shell(env, e);
	if (run->runtime != RUNTIME_ARGS)
		return exec_script(env, run, e);
	return exec_failed(run->argv[0], "args", -exec_found(env, run->argv[0], run->argv), e);
}
