#include "daemon_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/log.h"

#include "api/routes.h"
#include "sandbox/command.h"
#include "sandbox/image.h"
#include "unit.h"

enum { OBJECTS_MAX = 256 };

struct kit_knobs kit;

static struct object {
	char id[ID_SIZE];
	int kind;
	bool lives;
} objects[OBJECTS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*exit_fn)(const struct backend_exit *);
static void (*reconnect_fn)(void);
static struct config config;
static char dir[64], token[TOKEN_SIZE];

/* -- the host ------------------------------------------------------------------------------ */

static struct object *find(const char *id, bool make)
{
	struct object *unused = NULL;

	for (unsigned i = 0; i < OBJECTS_MAX; i++) {
		if (str_eq(objects[i].id, id))
			return &objects[i];
		if (!objects[i].id[0] && !unused)
			unused = &objects[i];
	}
	if (!make)
		return NULL;
	assert_non_null(unused);
	*unused = (struct object){ 0 };
	str_copy(unused->id, ID_SIZE, id);
	return unused;
}

static void set(const char *id, int kind, int lives)
{
	struct object *o;

	pthread_mutex_lock(&lock);
	o = find(id, true);
	if (kind >= 0)
		o->kind = kind;
	if (lives >= 0)
		o->lives = lives;
	pthread_mutex_unlock(&lock);
}

bool kit_lives(const char *id)
{
	struct object *o = find(id, false);

	return o && o->lives;
}

bool kit_has_disk(const char *id)
{
	struct object *o = find(id, false);

	return o && o->kind;
}

void kit_add_disk(const char *id, enum backend_object_kind kind)
{
	set(id, (int)kind, -1);
}

void kit_add_machine(const char *id)
{
	set(id, BACKEND_SANDBOX, 1);
}

void kit_remove_machine(const char *id)
{
	set(id, -1, 0);
}

void kit_tell_exit(const char *id, uint32_t code)
{
	struct backend_exit x = { .known = true, .code = code };

	str_copy(x.id, sizeof(x.id), id);
	exit_fn(&x);
}

void kit_exit(const char *id, uint32_t code)
{
	kit_remove_machine(id);
	kit_tell_exit(id, code);
}

static int b_info(struct backend_info *ret, struct err *e)
{
	(void)e;
	*ret = (struct backend_info){ .host_cpus = 4, .host_memory = 16ull << 30 };
	return 0;
}

static int b_pool(struct backend_pool *ret, struct err *e)
{
	(void)e;
	*ret = (struct backend_pool){ .total = 100ull << 30, .free = kit.pool_free };
	return 0;
}

static void take_time(unsigned ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

static int b_create(const char *id, const char *layer, uint64_t bytes, struct err *e)
{
	(void)layer;
	(void)bytes;
	kit.creates++;
	take_time(kit.create_ms);
	if (kit.fail_create)
		return err_set(e, kit.fail_create, "the fake disk fails");
	set(id, BACKEND_SANDBOX, 0);
	return 0;
}

static int b_start(const struct backend_spec *spec, struct backend_machine *ret, struct err *e)
{
	kit.starts++;
	take_time(kit.start_ms);
	if (kit.fail_start)
		return err_set(e, kit.fail_start, "the fake machine fails");
	if (kit_lives(spec->id))
		return err_reason(e, EBUSY, "already_running", "it runs already");
	set(spec->id, -1, 1);
	*ret = (struct backend_machine){ .pid = 1, .enforced = true, .warm = true };
	return 0;
}

static int b_stop(const char *id, uint32_t ms, struct err *e)
{
	(void)ms;
	kit.stops++;
	take_time(kit.stop_ms);
	if (kit.fail_stop)
		return err_set(e, kit.fail_stop, "the fake stop fails");
	set(id, -1, 0);
	return 0;
}

static int b_kill(const char *id, struct err *e)
{
	(void)e;
	set(id, -1, 0);
	return 0;
}

static int b_destroy(const char *id, struct err *e)
{
	struct object *o;

	kit.destroys++;
	if (kit.fail_destroy)
		return err_set(e, kit.fail_destroy, "the fake removal fails");
	pthread_mutex_lock(&lock);
	o = find(id, false);
	if (o)
		*o = (struct object){ 0 };
	pthread_mutex_unlock(&lock);
	return 0;
}

static int b_limit(const char *id, const struct backend_limits *l, bool *ret_enforced,
		   struct err *e)
{
	(void)id;
	if (kit.fail_limit)
		return err_reason(e, kit.fail_limit,
				  kit.fail_limit == EBUSY ? "memory_in_use" : NULL,
				  "the fake limit fails");
	kit.limits = *l;
	*ret_enforced = true;
	return 0;
}

static int b_stats(const char *id, struct backend_stats *ret, struct err *e)
{
	(void)id;
	(void)e;
	*ret = (struct backend_stats){ .pids = 1 };
	return 0;
}

static int b_dial(const char *id, struct err *e)
{
	return fake_backend.dial(id, e);
}

static int b_layer_create(const char *layer, int fd, uint32_t ms, uint64_t *ret, struct err *e)
{
	char data[4096];
	ssize_t n;

	(void)ms;
	*ret = 0;
	while ((n = read(fd, data, sizeof(data))) > 0)
		*ret += (uint64_t)n;
	if (kit.fail_layer)
		return err_set(e, kit.fail_layer, "the fake unpacker fails");
	set(layer, BACKEND_LAYER, 0);
	return 0;
}

static int b_layer_delete(const char *layer, struct err *e)
{
	return b_destroy(layer, e);
}

static int b_live(void (*each)(void *, const char *, const struct backend_machine *), void *arg,
		  struct err *e)
{
	struct backend_machine m = { .pid = 1, .enforced = true };

	(void)e;
	for (unsigned i = 0; i < OBJECTS_MAX; i++) {
		if (objects[i].lives)
			each(arg, objects[i].id, &m);
	}
	return 0;
}

static int b_objects(void (*each)(void *, enum backend_object_kind, const char *), void *arg,
		     struct err *e)
{
	(void)e;
	for (unsigned i = 0; i < OBJECTS_MAX; i++) {
		if (objects[i].kind)
			each(arg, (enum backend_object_kind)objects[i].kind, objects[i].id);
	}
	if (kit.looked) {
		void (*looked)(void) = kit.looked;

		kit.looked = NULL;
		looked();
	}
	return 0;
}

static void b_on_exit(void (*fn)(const struct backend_exit *))
{
	exit_fn = fn;
}

static void b_on_reconnect(void (*fn)(void))
{
	reconnect_fn = fn;
}

const struct backend kit_backend = {
	.name = "kit",
	.info = b_info,
	.pool = b_pool,
	.create = b_create,
	.start = b_start,
	.stop = b_stop,
	.kill = b_kill,
	.destroy = b_destroy,
	.limit = b_limit,
	.stats = b_stats,
	.dial = b_dial,
	.layer_create = b_layer_create,
	.layer_delete = b_layer_delete,
	.live = b_live,
	.objects = b_objects,
	.on_exit = b_on_exit,
	.on_reconnect = b_on_reconnect,
};

/* -- the agent ----------------------------------------------------------------------------- */

void kit_agent_true(struct fake_conn *c)
{
	struct buf out = BUF_INIT(65536);

	fake_hello(&out);
	if (c->m.type == AGENT_RUN) {
		fake_started(&out);
		fake_output(&out, 1, 0, "hi\n", 3);
		fake_exit(&out, 0, 3, 0);
	} else {
		agent_put_empty(&out, AGENT_DONE);
	}
	fake_send(c, &out);
	while (fake_next(c))
		;
	buf_release(&out);
}

/* -- the daemon ---------------------------------------------------------------------------- */

static void must(int r, const struct err *e)
{
	if (r < 0)
		fail_msg("%s", e->text);
}

static void open_parts(void)
{
	struct err e = ERR_INIT;

	must(store_open(dir, "default", &e), &e);
	must(sandbox_init(&config, &kit_backend, &e), &e);
	must(image_clean(true, &e), &e);
}

static void add_image(void)
{
	const struct image_request in = { .name = "debian:12", .user = "skerry" };
	struct image_row row;
	struct err e = ERR_INIT;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	must(image_create(&in, fd, NULL, &actor_system, &row, &e), &e);
	close(fd);
}

void kit_open(void)
{
	char path[128];
	FILE *f;
	struct err e = ERR_INIT;
	static bool commands;

	assert_true(sodium_init() >= 0);
	memset(objects, 0, sizeof(objects));
	kit = (struct kit_knobs){ .pool_free = 50ull << 30 };
	snprintf(dir, sizeof(dir), "/tmp/skerry-daemon-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/skerry.yaml", dir);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "state_dir: %s\nrun_dir: %s\n", dir, dir);
	fclose(f);
	must(config_load(&config, path, &e), &e);
	dispatch_init(&config);
	if (!commands)
		must(command_init(&kit_backend, "/tmp/skerry-kit-commands", &e), &e);
	commands = true;
	open_parts();
	add_image();
	must(token_create("default", "test", SCOPE_ALL, &actor_system, token, &e), &e);
	fake_play(kit_agent_true, NULL, true);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void kit_close(void)
{
	sandbox_shutdown();
	fake_reset();
	store_close();
	config_release(&config);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void kit_restart(void)
{
	sandbox_shutdown();
	store_close();
	open_parts();
}

void kit_reconnect(void)
{
	reconnect_fn();
}

const char *kit_token(void)
{
	return token;
}

/* -- requests ------------------------------------------------------------------------------ */

static int upload(struct request *r, const struct kit_request *q, struct err *e)
{
	size_t piece = q->piece ? q->piece : q->len;
	int code = r->route->upload->begin(r, e);

	if (code < 0)
		return code;
	for (size_t at = 0; at < q->len && !e->code; at += piece)
		r->route->upload->write(r, q->bytes + at, q->len - at < piece ? q->len - at : piece,
					e);
	return r->route->upload->end(r, q->cut, e);
}

static void read_stream(struct request *r, struct kit_answer *a)
{
	struct stream *s = r->stream;
	size_t block = 128 * 1024, room = 0;
	ssize_t n = 1;

	a->sized = s->sized;
	a->size = s->size;
	while (n > 0 && !(s->sized && a->len == s->size)) {
		if (room - a->len < block) {
			room = 2 * room + block;
			a->bytes = realloc(a->bytes, room + 1);
			assert_non_null(a->bytes);
		}
		if (s->sized && block > s->size - a->len)
			block = s->size - a->len;
		n = s->read(s->arg, a->bytes + a->len, block);
		a->len += n > 0 ? (size_t)n : 0;
	}
	a->cut = n < 0 || (s->sized && a->len < s->size);
	if (a->bytes)
		a->bytes[a->len] = '\0';
}

static char *copy(const char *s)
{
	return s ? strdup(s) : NULL;
}

struct kit_answer kit_call(const struct kit_request *q)
{
	struct kit_answer a = { 0 };
	struct err e = ERR_INIT;
	struct request r;
	char target[16384], authorization[128];
	int code;

	if (str_starts(q->path, "//"))
		snprintf(target, sizeof(target), "%s", q->path + 1);
	else
		snprintf(target, sizeof(target), "/workspaces/default%s", q->path);
	assert_int_equal(request_init(&r, q->method, target), 0);
	snprintf(authorization, sizeof(authorization), "Bearer %s", q->token ? q->token : token);
	if (!q->token || *q->token)
		r.authorization = strdup(authorization);
	if (q->key)
		r.idempotency_key = strdup(q->key);
	if (q->body)
		buf_adds(&r.body, q->body);
	r.content_type = copy(q->type);
	r.range = copy(q->range);
	r.if_range = copy(q->if_range);
	code = dispatch_head(&r, &e);
	if (code >= 0)
		code = r.route->upload ? upload(&r, q, &e) : dispatch_run(&r, &e);
	if (code >= 0)
		e = (struct err)ERR_INIT;
	dispatch_answer(&r, &e);
	dispatch_end(&r);
	a.status = r.status;
	a.retry_after = r.retry_after;
	for (unsigned i = 0; i < r.headers_count; i++)
		snprintf(a.head + strlen(a.head), sizeof(a.head) - strlen(a.head), "%s: %s\n",
			 r.headers[i].name, r.headers[i].value);
	if (r.stream && !e.code && !str_eq(q->method, "HEAD"))
		read_stream(&r, &a);
	if (r.written)
		a.json = json_loadb(r.written, r.written_len, JSON_ALLOW_NUL, NULL);
	request_release(&r);
	return a;
}

void kit_free(struct kit_answer *a)
{
	json_decref(a->json);
	free(a->bytes);
	a->json = NULL;
	a->bytes = NULL;
}

json_t *kit_want(unsigned status, const char *method, const char *path, const char *body)
{
	struct kit_answer a = kit_api(.method = method, .path = path, .body = body);

	if (a.status != status) {
		char *text = a.json ? json_dumps(a.json, 0) : NULL;

		fail_msg("%s %s: %u instead of %u: %s", method, path, a.status, status,
			 text ? text : "");
	}
	return a.json;
}

static const char *first(const json_t *answer, const char *member)
{
	const json_t *one = json_array_get(json_object_get(answer, "errors"), 0);
	const char *s = json_string_value(json_object_get(one, member));

	return s ? s : "";
}

const char *kit_code(const json_t *answer)
{
	return first(answer, "code");
}

const char *kit_field(const json_t *answer)
{
	return first(answer, "field");
}
