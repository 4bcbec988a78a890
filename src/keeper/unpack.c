#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#include "init/untar.h"
#include "launch.h"
#include "pool.h"

/* Launches the unpacker and ends as it ends. It has a mount namespace of its own and gives up the
 * host's rights, so the layer's keeper cannot do this itself. */
static void run_launcher(struct launch *l)
{
	struct launched child = { .pidfd = -1 };
	struct err e = ERR_INIT;
	siginfo_t info = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (launch_run(l, &child, &e)) {
		(void)write_all(l->err, e.text, strlen(e.text));
		_exit(1);
	}
	close(l->out);
	close(l->err);
	while (waitid(P_PIDFD, (id_t)child.pidfd, &info, WEXITED) < 0 && errno == EINTR)
		;
	_exit(info.si_code == CLD_EXITED ? info.si_status : 1);
}

static int collect(int out, int complaints, pid_t pid, struct keeper_layer_reply *ret,
		   struct err *e)
{
	uint64_t result[2];
	char text[200];
	ssize_t n, m;
	int status;

	_Static_assert(sizeof(result) == UNTAR_REPLY_SIZE, "what the unpacker says");
	n = read_full(out, result, sizeof(result));
	m = read_full(complaints, text, sizeof(text) - 1);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return err_set(e, errno, "wait for the unpacker: %m");
	}
	text[m > 0 ? m : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!WIFEXITED(status) || WEXITSTATUS(status) || n != (ssize_t)sizeof(result))
		return err_reason(e, EINVAL, "bad_archive", "unpack: %s",
				  *text ? text : "the unpacker was killed");
	ret->bytes = le64toh(result[0]);
	ret->entries = le64toh(result[1]);
	return 0;
}

static int run_sandbox(struct launch *l, struct keeper_layer_reply *ret, struct err *e)
{
	struct clone_args args = { .flags = CLONE_NEWNS, .exit_signal = SIGCHLD };
	_cleanup_close_ int out_r = -1, out_w = -1, err_r = -1, err_w = -1, go_r = -1;
	int out[2], err[2], go[2];
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return err_set(e, errno, "pipe: %m");
	out_r = out[0];
	out_w = out[1];
	if (pipe2(err, O_CLOEXEC) < 0)
		return err_set(e, errno, "pipe: %m");
	err_r = err[0];
	err_w = err[1];
	if (pipe2(go, O_CLOEXEC) < 0)
		return err_set(e, errno, "pipe: %m");
	go_r = go[0];
	(void)write_all(go[1], "g", 1); /* nothing to record: it may go on at once */
	close(go[1]);
	l->out = out_w;
	l->err = err_w;
	l->status = err_w;
	l->go = go_r;
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return err_set(e, errno, "start the unpacker: %m");
	if (!pid)
		run_launcher(l);
	close_p(&out_w);
	close_p(&err_w);
	return collect(out_r, err_r, pid, ret, e);
}

int unpack_run(const struct conf *c, const char *layer, int init, int in, uint32_t root_id,
	       struct keeper_layer_reply *ret, struct err *e)
{
	struct launch l = {
		.conf = c,
		.layer = layer,
		.ns = SLOT_NS_INIT,
		.root_id = root_id,
		.init = init,
		.listen = -1,
		.in = in,
		.cgns = -1,
	};
	int dir = pool_layer_begin(layer, e);
	int r;

	if (dir < 0)
		return dir;
	close(dir);
	r = slot_namespaces(root_id, &l.ns, e);
	if (!r)
		r = run_sandbox(&l, ret, e);
	slot_ns_close(&l.ns);
	if (!r)
		r = pool_layer_commit(layer, e);
	if (r)
		pool_layer_abort(layer);
	return r;
}
