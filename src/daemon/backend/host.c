/*
 * The backend of one host: backend.h as requests to skerry-keeper.
 *
 * Threads: the keeper client's reader, the slots' thread, and one here that tells ends of machines
 * to the layers above. Those take locks that are held over calls to the keeper, so no other thread
 * of the backend may run their code.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#include "daemon/backend/backend.h"
#include "daemon/backend/keeper_client.h"
#include "daemon/backend/slots.h"

enum {
	START_TRIES = 3,
	LIST_BYTES_MAX = 64 * 1024 * 1024,
	LIMITS_ALL = KEEPER_LIMIT_CPU | KEEPER_LIMIT_MEMORY | KEEPER_LIMIT_PIDS | KEEPER_LIMIT_DISK,
};

_Static_assert((int)BACKEND_LAYERS_MAX == (int)KEEPER_LAYERS_MAX, "one limit of layers");
_Static_assert((int)BACKEND_LAYER == (int)KEEPER_KIND_LAYER &&
		       (int)BACKEND_SANDBOX == (int)KEEPER_KIND_SANDBOX &&
		       (int)BACKEND_PARTIAL == (int)KEEPER_KIND_PARTIAL,
	       "kinds of objects are handed through");

struct note {
	struct backend_exit exit;
	struct note *next;
};

static struct {
	struct keeper_client *keeper;
	pthread_t notify;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t changed;
	struct slots *slots; /* NULL until made; never freed afterwards */
	struct note *first, **end;
	bool reconnected; /* to be told */
	void (*exit_fn)(const struct backend_exit *exit);
	void (*reconnect_fn)(void);
} host = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.end = &host.first,
};

static int call(uint32_t verb, const void *request, size_t request_size, void *reply,
		size_t reply_size, struct err *e)
{
	return keeper_client_call(host.keeper,
				  &(struct keeper_call){
					  .verb = verb,
					  .request = request,
					  .request_size = (uint32_t)request_size,
					  .fd = -1,
					  .reply = reply,
					  .reply_size = (uint32_t)reply_size,
				  },
				  e);
}

static int bad_id(struct err *e)
{
	return err_set(e, EINVAL, "not the id of a sandbox or layer");
}

/* A verb whose request is one id and whose answer is empty. */
static int call_id(uint32_t verb, const char *id, struct err *e)
{
	struct keeper_sandbox request = { 0 };

	_Static_assert(sizeof(struct keeper_sandbox) == sizeof(struct keeper_layer), "both an id");
	if (!id_valid(id, NULL) || !str_copy(request.id, sizeof(request.id), id))
		return bad_id(e);
	return call(verb, &request, sizeof(request), NULL, 0, e);
}

static int host_info(struct backend_info *ret, struct err *e)
{
	struct keeper_hello_reply h;

	(void)e;
	keeper_client_hello(host.keeper, &h);
	*ret = (struct backend_info){
		.host_cpus = h.host_cpus,
		.host_memory = h.host_memory,
		.limits_enforced = (h.limits & LIMITS_ALL) == LIMITS_ALL,
	};
	str_copy(ret->boot_id, sizeof(ret->boot_id), h.boot_id);
	str_copy(ret->notes, sizeof(ret->notes), h.notes);
	return 0;
}

static int host_pool(struct backend_pool *ret, struct err *e)
{
	struct keeper_pool_reply p;
	int r = call(KEEPER_POOL, NULL, 0, &p, sizeof(p), e);

	if (r < 0)
		return r;
	*ret = (struct backend_pool){ p.total, p.free, p.host_total, p.host_free };
	return 0;
}

static int host_create(const char *id, const char *layer, uint64_t disk_bytes, struct err *e)
{
	struct keeper_sandbox_create request = { .disk_bytes = disk_bytes };

	if (!id_valid(id, NULL) || !str_copy(request.id, sizeof(request.id), id))
		return bad_id(e);
	if (*layer &&
	    (!id_valid(layer, NULL) || !str_copy(request.layer, sizeof(request.layer), layer)))
		return bad_id(e);
	return call(KEEPER_SANDBOX_CREATE, &request, sizeof(request), NULL, 0, e);
}

/* Never waits: -EAGAIN when the agent's queue of connections is full. The descriptor is
 * non-blocking. */
static int host_dial(const char *id, struct err *e)
{
	struct keeper_hello_reply h;
	char path[sizeof(h.agent_dir) + ID_SIZE + sizeof("/.sock")];
	int fd;

	if (!id_valid(id, NULL))
		return bad_id(e);
	keeper_client_hello(host.keeper, &h);
	snprintf(path, sizeof(path), "%s/%s.sock", h.agent_dir, id);
	fd = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	if (fd < 0)
		return err_reason(e, fd, "agent_unreachable", "reach the sandbox's agent: %s",
				  strerror(-fd));
	return fd;
}

static int fill_start(struct keeper_sandbox_start *s, const struct backend_spec *spec,
		      struct err *e)
{
	if (!id_valid(spec->id, NULL) || !str_copy(s->id, sizeof(s->id), spec->id))
		return bad_id(e);
	if (!str_copy(s->hostname, sizeof(s->hostname), spec->hostname))
		return err_set(e, EINVAL, "host name '%.70s…' is too long", spec->hostname);
	if (!str_copy(s->machine_id, sizeof(s->machine_id), spec->machine_id))
		return err_set(e, EINVAL, "machine id '%.40s' is too long", spec->machine_id);
	if (spec->layers_count > KEEPER_LAYERS_MAX)
		return err_set(e, EINVAL, "%u layers, at most %d", spec->layers_count,
			       KEEPER_LAYERS_MAX);
	for (unsigned i = 0; i < spec->layers_count; i++)
		if (!id_valid(spec->layers[i], NULL) ||
		    !str_copy(s->layers[i], sizeof(s->layers[i]), spec->layers[i]))
			return bad_id(e);
	s->layers_count = spec->layers_count;
	s->cpu_milli = spec->limits.cpu_milli;
	s->pids = spec->limits.pids;
	s->memory_bytes = spec->limits.memory_bytes;
	s->disk_bytes = spec->limits.disk_bytes;
	return 0;
}

static uint32_t limits_wanted(const struct backend_limits *l)
{
	return (l->cpu_milli ? KEEPER_LIMIT_CPU : 0u) |
	       (l->memory_bytes ? KEEPER_LIMIT_MEMORY : 0u) | (l->pids ? KEEPER_LIMIT_PIDS : 0u) |
	       (l->disk_bytes ? KEEPER_LIMIT_DISK : 0u);
}

/* The socket listens before PID 1 runs, so a connection proves that it has not ended; it answers
 * HELLO to the first command. */
static int confirm_agent(const char *id, struct err *e)
{
	int fd = host_dial(id, e);

	if (fd == -EAGAIN)
		return 0;
	if (fd < 0) {
		call_id(KEEPER_SANDBOX_KILL, id, NULL);
		return fd;
	}
	close(fd);
	return 0;
}

/* Gives the start a slot and asks for it; -EBUSY: the keeper has that number in use. */
static int try_start(struct keeper_sandbox_start *request, struct keeper_start_reply *ret,
		     struct err *e)
{
	enum slots_outcome outcome = SLOTS_FAILED;
	int r = slots_take(host.slots, request->id, &request->slot, e);

	if (r < 0) {
		err_wrap(e, "take a slot");
		return r == -EBUSY ? -EIO : r;
	}
	r = call(KEEPER_SANDBOX_START, request, sizeof(*request), ret, sizeof(*ret), e);
	if (r == 0)
		outcome = SLOTS_RUNNING;
	else if (r == -ECONNRESET || r == -EBUSY)
		outcome = SLOTS_UNKNOWN;
	slots_started(host.slots, request->slot, outcome);
	return r;
}

static int host_start(const struct backend_spec *spec, struct backend_machine *ret, struct err *e)
{
	struct keeper_sandbox_start request = { 0 };
	struct keeper_start_reply reply;
	uint32_t wanted = limits_wanted(&spec->limits);
	int r = fill_start(&request, spec, e);

	if (r < 0)
		return r;
	r = -EBUSY;
	for (int i = 0; i < START_TRIES && r == -EBUSY; i++)
		r = try_start(&request, &reply, e);
	if (r < 0)
		return r;
	r = confirm_agent(spec->id, e);
	if (r < 0)
		return r;
	reply.address4[sizeof(reply.address4) - 1] = '\0';
	reply.address6[sizeof(reply.address6) - 1] = '\0';
	*ret = (struct backend_machine){
		.pid = reply.pid,
		.enforced = (reply.enforced & wanted) == wanted,
		.warm = reply.warm != 0,
	};
	str_copy(ret->address4, sizeof(ret->address4), reply.address4);
	str_copy(ret->address6, sizeof(ret->address6), reply.address6);
	return 0;
}

static int host_stop(const char *id, uint32_t timeout_ms, struct err *e)
{
	struct keeper_sandbox_stop request = { .timeout_ms = timeout_ms };

	if (!id_valid(id, NULL) || !str_copy(request.id, sizeof(request.id), id))
		return bad_id(e);
	return call(KEEPER_SANDBOX_STOP, &request, sizeof(request), NULL, 0, e);
}

static int host_kill(const char *id, struct err *e)
{
	return call_id(KEEPER_SANDBOX_KILL, id, e);
}

static int host_destroy(const char *id, struct err *e)
{
	int r = call_id(KEEPER_SANDBOX_DESTROY, id, e);

	return r == -ENOENT ? 0 : r;
}

static int host_limit(const char *id, const struct backend_limits *l, bool *ret_enforced,
		      struct err *e)
{
	struct keeper_sandbox_limit request = {
		.cpu_milli = l->cpu_milli,
		.pids = l->pids,
		.memory_bytes = l->memory_bytes,
		.disk_bytes = l->disk_bytes,
	};
	struct keeper_limit_reply reply;
	uint32_t wanted = limits_wanted(l);
	int r;

	if (!id_valid(id, NULL) || !str_copy(request.id, sizeof(request.id), id))
		return bad_id(e);
	r = call(KEEPER_SANDBOX_LIMIT, &request, sizeof(request), &reply, sizeof(reply), e);
	if (r < 0)
		return r;
	*ret_enforced = (reply.enforced & wanted) == wanted;
	return 0;
}

static int host_stats(const char *id, struct backend_stats *ret, struct err *e)
{
	struct keeper_sandbox request = { 0 };
	struct keeper_stats_reply s;
	int r;

	if (!id_valid(id, NULL) || !str_copy(request.id, sizeof(request.id), id))
		return bad_id(e);
	/* counters are not worth a wait: whoever asks has other things to tell */
	r = keeper_client_call(host.keeper,
			       &(struct keeper_call){
				       .verb = KEEPER_SANDBOX_STATS,
				       .request = &request,
				       .request_size = sizeof(request),
				       .fd = -1,
				       .reply = &s,
				       .reply_size = sizeof(s),
				       .at_once = true,
			       },
			       e);
	if (r < 0)
		return r;
	*ret = (struct backend_stats){ s.cpu_ns, s.memory_bytes, s.pids, s.disk_bytes };
	return 0;
}

static int host_layer_create(const char *layer, int fd, uint32_t timeout_ms, uint64_t *ret_bytes,
			     struct err *e)
{
	struct keeper_layer_create request = { .timeout_ms = timeout_ms };
	struct keeper_layer_reply reply;
	int r;

	if (!id_valid(layer, NULL) || !str_copy(request.layer, sizeof(request.layer), layer))
		return bad_id(e);
	r = keeper_client_call(host.keeper,
			       &(struct keeper_call){
				       .verb = KEEPER_LAYER_CREATE,
				       .request = &request,
				       .request_size = sizeof(request),
				       .fd = fd,
				       .reply = &reply,
				       .reply_size = sizeof(reply),
			       },
			       e);
	if (r < 0)
		return r;
	*ret_bytes = reply.bytes;
	return 0;
}

static int host_layer_delete(const char *layer, struct err *e)
{
	return call_id(KEEPER_LAYER_DELETE, layer, e);
}

static int bad_list(struct err *e)
{
	return err_reason(e, EPROTO, "keeper_mismatch",
			  "the keeper's list has the wrong form or size");
}

/* The whole file as an array of `size` each; the caller frees it. */
static int read_array(int fd, size_t size, void **ret, unsigned *ret_count, struct err *e)
{
	_cleanup_free_ void *data = NULL;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "read the keeper's list: %m");
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || st.st_size > LIST_BYTES_MAX ||
	    (size_t)st.st_size % size)
		return bad_list(e);
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return err_set(e, ENOMEM, "out of memory");
	do
		n = pread(fd, data, (size_t)st.st_size, 0);
	while (n < 0 && errno == EINTR);
	if (n != st.st_size)
		return bad_list(e);
	*ret = take_ptr(data);
	*ret_count = (unsigned)((size_t)n / size);
	return 0;
}

/* Asks for a list that comes as a descriptor. */
static int call_list(uint32_t verb, size_t size, void **ret, unsigned *ret_count, struct err *e)
{
	_cleanup_close_ int fd = -1;
	int r = keeper_client_call(host.keeper,
				   &(struct keeper_call){
					   .verb = verb,
					   .fd = -1,
					   .ret_fd = &fd,
				   },
				   e);

	return r < 0 ? r : read_array(fd, size, ret, ret_count, e);
}

static int list_live(void *arg, struct keeper_live **ret, unsigned *ret_count, struct err *e)
{
	_cleanup_free_ struct keeper_live *live = NULL;
	unsigned count;
	int r = call_list(KEEPER_SANDBOX_LIST, sizeof(*live), (void **)&live, &count, e);

	(void)arg;
	if (r < 0)
		return r;
	for (unsigned i = 0; i < count; i++)
		if (!KEEPER_TEXT_OK(live[i].id) || !id_valid(live[i].id, NULL) ||
		    !KEEPER_TEXT_OK(live[i].address4) || !KEEPER_TEXT_OK(live[i].address6))
			return bad_list(e);
	*ret = take_ptr(live);
	*ret_count = count;
	return 0;
}

static int host_live(void (*each)(void *arg, const char *id, const struct backend_machine *m),
		     void *arg, struct err *e)
{
	_cleanup_free_ struct keeper_live *live = NULL;
	unsigned count;
	int r = list_live(NULL, &live, &count, e);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < count; i++) {
		struct backend_machine m = {
			.pid = live[i].pid,
			.enforced = (live[i].enforced & LIMITS_ALL) == LIMITS_ALL,
		};

		str_copy(m.address4, sizeof(m.address4), live[i].address4);
		str_copy(m.address6, sizeof(m.address6), live[i].address6);
		each(arg, live[i].id, &m);
	}
	return 0;
}

static int host_objects(void (*each)(void *arg, enum backend_object_kind kind, const char *name),
			void *arg, struct err *e)
{
	_cleanup_free_ struct keeper_object *list = NULL;
	unsigned count;
	int r = call_list(KEEPER_POOL_LIST, sizeof(*list), (void **)&list, &count, e);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < count; i++)
		if (list[i].kind < KEEPER_KIND_LAYER || list[i].kind > KEEPER_KIND_PARTIAL ||
		    !KEEPER_TEXT_OK(list[i].name))
			return bad_list(e);
	for (unsigned i = 0; i < count; i++)
		each(arg, (enum backend_object_kind)list[i].kind, list[i].name);
	return 0;
}

static void host_on_exit(void (*fn)(const struct backend_exit *exit))
{
	pthread_mutex_lock(&host.lock);
	host.exit_fn = fn;
	pthread_cond_signal(&host.changed);
	pthread_mutex_unlock(&host.lock);
}

static void host_on_reconnect(void (*fn)(void))
{
	pthread_mutex_lock(&host.lock);
	host.reconnect_fn = fn;
	pthread_cond_signal(&host.changed);
	pthread_mutex_unlock(&host.lock);
}

/* Takes the oldest end. The lock is held. */
static struct note *pop_note(void)
{
	struct note *n = host.first;

	host.first = n->next;
	if (!host.first)
		host.end = &host.first;
	return n;
}

static void *notify_main(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&host.lock);
	for (;;) {
		if (host.first && host.exit_fn) {
			void (*fn)(const struct backend_exit *) = host.exit_fn;
			struct note *n = pop_note();

			pthread_mutex_unlock(&host.lock);
			fn(&n->exit);
			free(n);
			pthread_mutex_lock(&host.lock);
		} else if (host.reconnected && host.reconnect_fn) {
			void (*fn)(void) = host.reconnect_fn;

			host.reconnected = false;
			pthread_mutex_unlock(&host.lock);
			fn();
			pthread_mutex_lock(&host.lock);
		} else {
			pthread_cond_wait(&host.changed, &host.lock);
		}
	}
	return NULL;
}

static struct slots *get_slots(void)
{
	struct slots *s;

	pthread_mutex_lock(&host.lock);
	s = host.slots;
	pthread_mutex_unlock(&host.lock);
	return s;
}

static void keeper_exit(void *arg, const struct keeper_event_exit *x)
{
	struct slots *slots = get_slots();
	struct note *n = calloc(1, sizeof(*n));

	(void)arg;
	if (slots)
		slots_exited(slots, x->id, x->slot);
	pthread_mutex_lock(&host.lock);
	if (n) {
		str_copy(n->exit.id, sizeof(n->exit.id), x->id);
		n->exit.known = x->exit_known != 0;
		n->exit.code = x->code;
		n->exit.signal = x->signal;
		n->exit.oom = x->oom != 0;
		*host.end = n;
		host.end = &n->next;
	} else {
		host.reconnected = true; /* who compares lists finds it too */
	}
	pthread_cond_signal(&host.changed);
	pthread_mutex_unlock(&host.lock);
}

static void keeper_lost(void *arg)
{
	struct slots *slots = get_slots();

	(void)arg;
	if (slots)
		slots_lost(slots);
}

static void keeper_reconnected(void *arg, const struct keeper_hello_reply *hello)
{
	struct slots *slots = get_slots();

	(void)arg;
	if (slots)
		slots_reconnected(slots, hello->slots_max);
	pthread_mutex_lock(&host.lock);
	host.reconnected = true;
	pthread_cond_signal(&host.changed);
	pthread_mutex_unlock(&host.lock);
}

static int slot_prepare(void *arg, uint32_t slot, struct err *e)
{
	const struct keeper_slot request = { slot };

	(void)arg;
	return call(KEEPER_SLOT_PREPARE, &request, sizeof(request), NULL, 0, e);
}

static int slot_drop(void *arg, uint32_t slot, struct err *e)
{
	const struct keeper_slot request = { slot };

	(void)arg;
	return call(KEEPER_SLOT_DROP, &request, sizeof(request), NULL, 0, e);
}

static const struct backend backend = {
	.name = "host",
	.info = host_info,
	.pool = host_pool,
	.create = host_create,
	.start = host_start,
	.stop = host_stop,
	.kill = host_kill,
	.destroy = host_destroy,
	.limit = host_limit,
	.stats = host_stats,
	.dial = host_dial,
	.layer_create = host_layer_create,
	.layer_delete = host_layer_delete,
	.live = host_live,
	.objects = host_objects,
	.on_exit = host_on_exit,
	.on_reconnect = host_on_reconnect,
};

static int start_notify(void)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&host.notify, NULL, notify_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

static int start_slots(unsigned slots, const struct slot_store *store, struct err *e)
{
	const struct slots_keeper keeper = {
		.prepare = slot_prepare,
		.drop = slot_drop,
		.list = list_live,
	};
	struct keeper_hello_reply h;
	struct slots *s;
	int r;

	keeper_client_hello(host.keeper, &h);
	r = slots_new(slots, h.slots_max, store, &keeper, &s, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&host.lock);
	host.slots = s;
	pthread_mutex_unlock(&host.lock);
	return 0;
}

const struct backend *backend_host(const char *socket_path, unsigned slots,
				   const struct slot_store *store, struct err *e)
{
	static const struct keeper_client_hooks hooks = {
		.on_exit = keeper_exit,
		.on_lost = keeper_lost,
		.on_reconnect = keeper_reconnected,
	};
	int r;

	if (keeper_client_new(socket_path, &hooks, &host.keeper, e) < 0) {
		err_wrap(e, "connect to '%s'", socket_path);
		return NULL;
	}
	r = start_slots(slots, store, e);
	if (!r) {
		r = start_notify();
		if (!r)
			return &backend;
		err_set(e, r, "start the backend's thread: %s", strerror(-r));
		slots_free(host.slots);
		host.slots = NULL;
	}
	keeper_client_free(host.keeper);
	host.keeper = NULL;
	return NULL;
}
