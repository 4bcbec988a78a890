/*
 * skerry-keeper: the one privileged process. It owns disks, mounts, namespaces, cgroups, links and
 * the nft table of sandboxes, and does what the table in verbs.c lists for one unprivileged client.
 * It reads no network socket, no JSON and no file that a sandbox can write.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#include "cgroup.h"
#include "conf.h"
#include "filter.h"
#include "job.h"
#include "launch.h"
#include "loop.h"
#include "machine.h"
#include "net.h"
#include "pool.h"
#include "ready.h"
#include "record.h"
#include "root.h"
#include "server.h"
#include "verbs.h"

enum { JANITOR_EVERY_S = 60, JANITOR_TIMEOUT_MS = 60 * 1000 };

static int janitor_work(void *arg, struct worker_result *r, struct err *e)
{
	(void)arg;
	(void)r;
	(void)e;
	pool_janitor();
	return 0;
}

static void janitor_done(void *arg, struct worker_result *r)
{
	struct source *signals = arg;

	(void)r;
	signals->deadline_ns = clock_mono_ns() + JANITOR_EVERY_S * NS_PER_SEC;
}

static void run_janitor(struct source *s)
{
	const struct worker_spec spec = { .work = janitor_work,
					  .done = janitor_done,
					  .arg = s,
					  .timeout_ms = JANITOR_TIMEOUT_MS,
					  .cgroup = -1 };

	if (worker_start(&spec, NULL))
		janitor_done(s, NULL);
}

static void on_signal(struct source *s, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	while (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			worker_reap();
		else
			loop_stop(); /* the sandboxes stay: the next keeper adopts them */
	}
}

static int watch_signals(struct err *e)
{
	static struct source signals = { .ready = on_signal, .late = run_janitor };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_set(e, errno, "block signals: %m");
	(void)signal(SIGPIPE, SIG_IGN);
	signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals.fd < 0)
		return err_set(e, errno, "signalfd: %m");
	signals.deadline_ns = clock_mono_ns() + JANITOR_EVERY_S * NS_PER_SEC;
	return loop_add(&signals, EPOLLIN);
}

static int make_agent_dir(const struct conf *c, struct err *e)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/agents", PATH_MAX - 16, c->run_dir);
	if (mkdir(path, 0750) < 0 && errno != EEXIST)
		return err_set(e, errno, "make '%s': %m", path);
	return chown(path, 0, c->gid) < 0 ? err_set(e, errno, "chown '%s': %m", path) : 0;
}

static void raise_limits(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &files);
}

static int set_up(const struct conf *c, struct verbs_info *info, struct err *e)
{
	enum pool_quota quota = QUOTA_NONE;
	int r;

	raise_limits();
	r = lxcfs_init(e);
	if (!r)
		r = root_init(c, e);
	if (!r)
		r = pool_open(c->pool_dir, &quota, e);
	if (!r)
		r = cgroup_init(c->instance, &info->limits, &info->v2, e);
	if (!r)
		r = info->init = launch_stage_init(c, e);
	if (r > 0)
		r = 0;
	if (!r)
		r = filter_init(e);
	if (!r)
		r = net_init(c, e);
	if (!r)
		r = record_init(c->run_dir, e);
	if (!r)
		r = make_agent_dir(c, e);
	info->quota = quota;
	if (quota != QUOTA_NONE)
		info->limits |= KEEPER_LIMIT_DISK;
	else
		str_copy(info->notes, sizeof(info->notes),
			 "disk limits are not enforced: the pool has no quotas\n");
	return r;
}

int main(int argc, char **argv)
{
	static struct conf conf;
	static struct verbs_info info;
	struct err e = ERR_INIT;
	int r;

	log_open("skerry-keeper", LOG_NOTICE);
	if (argc == 2 && str_eq(argv[1], "--version")) {
		puts("skerry-keeper " SKERRY_VERSION);
		return 0;
	}
	if (argc != 3 || !str_eq(argv[1], "--config")) {
		fputs("usage: skerry-keeper --config FILE\n", stderr);
		return 2;
	}
	umask(022);
	r = conf_load(&conf, argv[2], &e);
	if (!r)
		r = loop_init();
	if (!r)
		r = set_up(&conf, &info, &e);
	if (!r)
		r = watch_signals(&e);
	if (!r)
		r = ready_init(&conf, &e);
	verbs_init(&conf, &info);
	machine_init(&conf, info.init);
	if (!r)
		r = machine_adopt(&e);
	if (!r)
		r = server_init(&conf, &e);
	if (r) {
		log_error("%s", e.text);
		return 1;
	}
	log_notice("ready: instance %s, %u slots", conf.instance, conf.slots_max);
	r = loop_run();
	if (r)
		log_error("event loop: %s", strerror(-r));
	return r ? 1 : 0;
}
