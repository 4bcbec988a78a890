/*
 * skerryd: parses what the network sends, and has no privilege. Started as root it becomes its user
 * before it opens anything.
 */
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include "access/token.h"
#include "api/routes.h"
#include "api/server.h"
#include "config.h"
#include "paths.h"
#include "sandbox/clock_thread.h"
#include "sandbox/command.h"
#include "sandbox/image.h"
#include "sandbox/sandbox.h"
#include "store/store.h"

static const char usage[] =
	"usage: skerryd [--config FILE] [--user NAME]\n"
	"       skerryd [--config FILE] --print-config | --render DIR | --add-token NAME\n"
	"       skerryd --openapi | --version\n";

enum { KEEPER_WAIT_SECONDS = 30 };

enum mode { MODE_RUN, MODE_PRINT, MODE_RENDER, MODE_TOKEN, MODE_OPENAPI, MODE_VERSION };

struct options {
	const char *config, *user, *argument;
	enum mode mode;
};

static int print_json(json_t *v, struct err *e)
{
	int r = v ? json_dumpf(v, stdout, JSON_INDENT(2)) : -1;

	json_decref(v);
	if (r < 0 || putchar('\n') == EOF || fflush(stdout) != 0)
		return err_set(e, EIO, "write to standard output");
	return 0;
}

/* Its directories, owned by the user it is about to become. */
static int make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid, struct err *e)
{
	if (mkdir(path, mode) == 0) {
		if (geteuid() == 0 && lchown(path, uid, gid) < 0)
			return err_set(e, errno, "give '%s' to its user: %m", path);
	} else if (errno != EEXIST) {
		return err_set(e, errno, "make '%s': %m", path);
	}
	return 0;
}

static int become_user(const struct config *c, const char *name, struct err *e)
{
	const struct passwd *user;
	const struct group *group;
	int r;

	if (!name)
		name = c->user;
	if (geteuid() != 0) {
		r = make_dir(c->state_dir, 0750, 0, 0, e);
		return r ? r : make_dir(c->run_dir, 0755, 0, 0, e);
	}
	user = getpwnam(name);
	group = getgrnam(c->group);
	if (!user || !group)
		return err_set(e, ENOENT, "there is no user '%s' or no group '%s'", name, c->group);
	r = make_dir(c->state_dir, 0750, user->pw_uid, group->gr_gid, e);
	if (!r)
		r = make_dir(c->run_dir, 0755, user->pw_uid, group->gr_gid, e);
	if (r < 0)
		return r;
	if (user->pw_uid == 0) {
		log_warn("running as root: for development only");
		return 0;
	}
	if (initgroups(name, group->gr_gid) < 0 || setgid(group->gr_gid) < 0 ||
	    setuid(user->pw_uid) < 0)
		return err_set(e, errno, "become user '%s': %m", name);
	if (setuid(0) == 0)
		return err_set(e, EPERM, "root could be taken back");
	return 0;
}

static void prepare_process(void)
{
	struct rlimit files;

	umask(027);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int add_token(const struct config *c, const char *name, struct err *e)
{
	const struct actor actor = { .name = "setup", .request = "" };
	char text[TOKEN_SIZE];
	int r = store_open(c->state_dir, c->workspace, e);

	if (r < 0)
		return r;
	r = token_create(c->workspace, name, SCOPE_ALL, &actor, text, e);
	store_close();
	if (!r && (puts(text) == EOF || fflush(stdout) != 0))
		r = err_set(e, EIO, "write to standard output");
	return r;
}

/* Signals are taken by this thread alone. */
static void wait_for_end(const sigset_t *ends)
{
	int number;

	sigwait(ends, &number);
	log_notice("ending: signal %d", number);
}

/* Both are started at once, so the keeper may come a little later. NULL: it does not come, or a
 * signal ended the wait (-EINTR in the error). */
static const struct backend *reach_keeper(const struct config *c, const sigset_t *ends,
					  struct err *e)
{
	static const int later[] = { ENOENT, ECONNREFUSED, ECONNRESET, EPIPE, EHOSTDOWN, ENOTCONN };
	const struct timespec pause = { .tv_nsec = 100 * 1000000 };
	uint64_t deadline = clock_mono_ns() + KEEPER_WAIT_SECONDS * NS_PER_SEC;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/keeper.sock", c->run_dir);
	for (;;) {
		const struct backend *b = backend_host(path, c->slots, &store_slots, e);
		bool again = false;

		if (b)
			return b;
		for (unsigned i = 0; i < ARRAY_SIZE(later); i++)
			again |= e->code == later[i];
		if (!again || clock_mono_ns() > deadline) {
			err_wrap(e, "reach skerry-keeper at '%s'", path);
			return NULL;
		}
		if (sigtimedwait(ends, NULL, &pause) > 0) {
			err_set(e, EINTR, "ended while it waited for skerry-keeper");
			return NULL;
		}
	}
}

static int start_parts(const struct config *c, const sigset_t *ends, struct err *e)
{
	const struct backend *backend = reach_keeper(c, ends, e);
	char path[PATH_MAX];
	int r;

	if (!backend)
		return -e->code;
	snprintf(path, sizeof(path), "%s/commands", c->state_dir);
	r = command_init(backend, path, e);
	if (!r)
		r = sandbox_init(c, backend, e);
	if (!r)
		r = image_clean(true, e);
	if (!r)
		r = clock_start(e);
	return r ? r : server_start(c, e);
}

static int run(const struct config *c, struct err *e)
{
	sigset_t ends;
	int r;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	r = store_open(c->state_dir, c->workspace, e);
	if (!r)
		r = start_parts(c, &ends, e);
	if (r < 0)
		return r;
	wait_for_end(&ends);
	/* Requests may wait for hours on a command. What runs in a sandbox goes on, and every state
	 * is taken up again at the next start, so nothing is waited for but what is being made. */
	sandbox_shutdown();
	return 0;
}

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "user", required_argument, NULL, 'u' },
		{ "print-config", no_argument, NULL, 'p' },
		{ "render", required_argument, NULL, 'r' },
		{ "add-token", required_argument, NULL, 't' },
		{ "openapi", no_argument, NULL, 'o' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	static const struct {
		int letter;
		enum mode mode;
	} modes[] = { { 'p', MODE_PRINT },
		      { 'r', MODE_RENDER },
		      { 't', MODE_TOKEN },
		      { 'o', MODE_OPENAPI },
		      { 'v', MODE_VERSION } };
	int letter;

	*o = (struct options){ .config = CONFIG_PATH };
	while ((letter = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		bool known = letter == 'c' || letter == 'u';

		if (letter == 'c')
			o->config = optarg;
		if (letter == 'u')
			o->user = optarg;
		for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
			if (modes[i].letter != letter)
				continue;
			known = true;
			o->mode = modes[i].mode;
			o->argument = optarg;
		}
		if (!known)
			return -EINVAL;
	}
	return optind == argc ? 0 : -EINVAL;
}

static int perform(const struct options *o, struct config *c, struct err *e)
{
	int r;

	if (o->mode == MODE_VERSION)
		return puts("skerryd " SKERRY_VERSION) == EOF ? err_set(e, EIO, "write") : 0;
	r = config_load(c, o->config, e);
	if (r < 0)
		return r;
	if (o->mode == MODE_PRINT)
		return print_json(config_json(c), e);
	if (o->mode == MODE_OPENAPI)
		return print_json(openapi_document(c->url), e);
	if (o->mode == MODE_RENDER)
		return config_render(c, o->argument, e);
	r = become_user(c, o->user, e);
	if (r < 0)
		return r;
	prepare_process();
	return o->mode == MODE_TOKEN ? add_token(c, o->argument, e) : run(c, e);
}

int main(int argc, char **argv)
{
	struct config config = { 0 };
	struct err e = ERR_INIT;
	struct options o;

	log_open("skerryd", LOG_NOTICE);
	if (argc == 2 && str_eq(argv[1], "--help"))
		return fputs(usage, stdout) == EOF;
	if (parse_options(argc, argv, &o) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	if (sodium_init() < 0) {
		log_error("no source of randomness");
		return 1;
	}
	if (perform(&o, &config, &e) < 0) {
		if (e.field[0])
			log_error("%s (%s)", e.text, e.field);
		else
			log_error("%s", e.text);
		return 1;
	}
	/* threads may still read the configuration: it goes with the process */
	fflush(NULL);
	_exit(0);
}
