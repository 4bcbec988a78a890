/*
 * The truth after a restart: what the database says, which machines live, what lies on the disk.
 * Every multi-step change that was cut off is completed or undone here.
 *
 *   row          machine   becomes
 *   (deleting)   any       deleted
 *   RESTORING    none      STOPPED where the disk was finished, else gone
 *   STOPPING     lives     stopped to its end
 *   any other    lives     RUNNING, its commands taken up again
 *   STARTING, RUNNING, STOPPING   none   STOPPED; of STARTING the machine is killed, since the
 *                                        request of an earlier process may still be under way
 *   (no row)     lives, or a disk        removed
 *
 * It runs at start, and when the backend was lost and is there again; then operations may be under
 * way, whose sandboxes are locked: they come last, when their lock is free.
 */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/log.h"

#include "sandbox/exec.h"
#include "sandbox/internal.h"
#include "sandbox/output.h"

enum { STOP_AGAIN_MS = 10000 };

struct list {
	struct item {
		char id[ID_SIZE];
		int kind;
		struct backend_machine machine;
	} * item;
	size_t count, room;
	bool failed;
};

static struct item *list_add(struct list *l, const char *id)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		void *more = realloc(l->item, room * sizeof(*l->item));

		if (!more) {
			l->failed = true;
			return NULL;
		}
		l->item = more;
		l->room = room;
	}
	l->item[l->count] = (struct item){ 0 };
	str_copy(l->item[l->count].id, ID_SIZE, id);
	return &l->item[l->count++];
}

static struct item *list_find(const struct list *l, const char *id)
{
	for (size_t i = 0; i < l->count; i++) {
		if (str_eq(l->item[i].id, id))
			return &l->item[i];
	}
	return NULL;
}

static void list_release(struct list *l)
{
	free(l->item);
}

static void add_live(void *arg, const char *id, const struct backend_machine *m)
{
	struct item *i = list_add(arg, id);

	if (i)
		i->machine = *m;
}

static void add_object(void *arg, enum backend_object_kind kind, const char *name)
{
	struct item *i = list_add(arg, name);

	if (i)
		i->kind = (int)kind;
}

static int add_row(void *arg, struct sandbox_row *row)
{
	return list_add(arg, row->id) ? 0 : 1;
}

static void settle(struct sandbox_row *row, int status, const char *code, const char *text)
{
	struct err e = ERR_INIT;

	if (sandbox_settle_as(row, status, code, text, &e) < 0)
		log_error("sandbox %s: %s", row->id, e.text);
}

static void row_dead(struct sandbox_row *row, const struct item *disk)
{
	struct err e = ERR_INIT;

	if (row->status == RESTORING && !(disk && disk->kind == BACKEND_SANDBOX)) {
		log_notice("sandbox %s: its creation was cut off and is undone", row->id);
		if (sandbox_finish_delete(row, &actor_system, &e) < 0)
			log_error("sandbox %s: %s", row->id, e.text);
	} else if (row->status == RUNNING) {
		settle(row, STOPPED, "LOST", "the machine ended while nobody watched it");
	} else if (row->status != STOPPED && row->status != FAILED) {
		if (row->status == STARTING)
			sandbox_context.backend->kill(row->id, &e);
		settle(row, STOPPED, "", "");
	} else if (exec_lose_all(row->id, &e) < 0) {
		log_error("sandbox %s: %s", row->id, e.text);
	}
}

static void row_live(struct sandbox_row *row, const struct item *live)
{
	struct err e = ERR_INIT;
	bool enforced;

	if (row->status == STOPPING) {
		if (sandbox_context.backend->stop(row->id, STOP_AGAIN_MS, &e) < 0)
			log_error("sandbox %s: %s", row->id, e.text);
		else
			settle(row, STOPPED, "", "");
		return;
	}
	if (row->status != RUNNING) {
		row->enforced = live->machine.enforced;
		str_copy(row->setup_status, sizeof(row->setup_status), "SUCCESS");
		str_copy(row->address4, sizeof(row->address4), live->machine.address4);
		str_copy(row->address6, sizeof(row->address6), live->machine.address6);
		settle(row, RUNNING, "", "");
	}
	if (size_apply(row, &enforced, &e) < 0)
		log_error("sandbox %s: its limits: %s", row->id, e.text);
	if (exec_adopt(row->id, &e) < 0)
		log_error("sandbox %s: take up its commands: %s", row->id, e.text);
}

/* Under the lock. */
static void reconcile_row(struct sandbox_row *row, const struct list *live,
			  const struct list *objects)
{
	struct err e = ERR_INIT;
	const struct item *machine = list_find(live, row->id);

	if (row->deleting) {
		if (sandbox_finish_delete(row, &actor_system, &e) < 0)
			log_error("sandbox %s: %s", row->id, e.text);
	} else if (machine) {
		row_live(row, machine);
	} else {
		row_dead(row, list_find(objects, row->id));
	}
}

static int look(struct list *live, struct list *objects, struct err *e)
{
	int r = sandbox_context.backend->live(add_live, live, e);

	if (r >= 0)
		r = sandbox_context.backend->objects(add_object, objects, e);
	if (r >= 0 && (live->failed || objects->failed))
		r = err_set(e, ENOMEM, "out of memory");
	return r < 0 ? r : 0;
}

/* Under the lock: where the row contradicts what was seen, an operation may have ended in between,
 * and what was seen counts no more. */
static void reconcile_under_lock(const char *id, const struct list *live,
				 const struct list *objects)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	_cleanup_(list_release)
	struct list live_now = { 0 }, objects_now = { 0 };
	struct err e = ERR_INIT;
	int r = sandbox_get(id, &row, &e);

	if (r == -ENOENT)
		return;
	if (!r && (row.status == RUNNING) != (list_find(live, id) != NULL)) {
		r = look(&live_now, &objects_now, &e);
		live = &live_now;
		objects = &objects_now;
	}
	if (r < 0)
		log_error("sandbox %s: reconcile: %s", id, e.text);
	else
		reconcile_row(&row, live, objects);
}

/* One whose operation was under way. */
static void reconcile_late(const char *id, const struct list *live, const struct list *objects)
{
	if (sandbox_lock(id, LOCK_WAIT | LOCK_BRIEF) < 0)
		return;
	reconcile_under_lock(id, live, objects);
	sandbox_unlock(id);
}

/* Whoever makes a sandbox holds its lock until its row is committed or its disk is gone, and a row
 * is removed after all is gone: what has no row under the lock never will. */
static void remove_stray_sandbox(const char *id)
{
	struct sandbox_row row = { 0 };
	struct err e = ERR_INIT;

	if (sandbox_lock(id, LOCK_WAIT | LOCK_BRIEF) < 0)
		return;
	if (sandbox_get(id, &row, &e) == -ENOENT) {
		log_notice("sandbox %s: not in the database, removed", id);
		if (sandbox_context.backend->destroy(id, &e) < 0)
			log_error("sandbox %s: %s", id, e.text);
	}
	sandbox_row_release(&row);
	sandbox_unlock(id);
}

static void remove_stray_layer(const char *id)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct err e = ERR_INIT;
	char state[16];
	int r = tx_begin(&t, STORE_READ, &e);

	if (!r)
		r = layer_state(&t, id, state, &e);
	tx_end(&t);
	if (r != -ENOENT)
		return;
	log_notice("layer %s: not in the database, removed", id);
	if (sandbox_context.backend->layer_delete(id, &e) < 0)
		log_error("layer %s: %s", id, e.text);
}

static void add_output(void *arg, const char *sandbox)
{
	list_add(arg, sandbox);
}

/* Output goes after its sandbox's row: between the two the daemon may have ended. */
static void remove_stray_output(void)
{
	_cleanup_(list_release)
	struct list found = { 0 };
	struct err e = ERR_INIT;

	if (output_each(add_output, &found, &e) < 0)
		log_error("%s", e.text);
	for (size_t i = 0; i < found.count; i++) {
		_cleanup_sandbox_ struct sandbox_row row = { 0 };

		if (sandbox_get(found.item[i].id, &row, &e) == -ENOENT &&
		    output_remove(found.item[i].id, NULL, &e) < 0)
			log_error("sandbox %s: %s", found.item[i].id, e.text);
	}
}

static int rows(struct list *ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_READ, e);

	if (!r)
		r = sandboxes_each(&t, &(struct sandbox_filter){ .status = -1 }, add_row, ret, e);
	return r;
}

int sandbox_reconcile(struct err *e)
{
	_cleanup_(list_release)
	struct list live = { 0 }, objects = { 0 };
	_cleanup_(list_release)
	struct list known = { 0 }, late = { 0 };
	int r = rows(&known, e);

	if (!r)
		r = look(&live, &objects, e);
	if (r < 0)
		return err_wrap(e, "reconcile");
	for (size_t i = 0; i < known.count; i++) {
		const char *id = known.item[i].id;

		if (sandbox_lock(id, LOCK_BRIEF) < 0) {
			list_add(&late, id);
			continue;
		}
		reconcile_under_lock(id, &live, &objects);
		sandbox_unlock(id);
	}
	for (size_t i = 0; i < live.count; i++) {
		if (!list_find(&known, live.item[i].id))
			remove_stray_sandbox(live.item[i].id);
	}
	for (size_t i = 0; i < objects.count; i++) {
		const char *id = objects.item[i].id;

		if (list_find(&known, id) || list_find(&live, id))
			continue;
		if (id_valid(id, "sb"))
			remove_stray_sandbox(id);
		else if (id_valid(id, "ly"))
			remove_stray_layer(id);
	}
	for (size_t i = 0; i < late.count; i++)
		reconcile_late(late.item[i].id, &live, &objects);
	return known.failed || late.failed ? err_set(e, ENOMEM, "reconcile: out of memory") : 0;
}

/* -- ends of machines ---------------------------------------------------------------------- */

static void exit_text(const struct backend_exit *x, char code[32], char text[256])
{
	if (!x->known) {
		str_copy(code, 32, "LOST");
		snprintf(text, 256, "the machine ended, nobody saw how");
	} else if (x->oom) {
		str_copy(code, 32, "OOM");
		snprintf(text, 256, "the machine was killed for its memory limit");
	} else if (x->signal) {
		str_copy(code, 32, "SIGNALED");
		snprintf(text, 256, "the machine was ended by signal %u", x->signal);
	} else {
		str_copy(code, 32, "EXITED");
		snprintf(text, 256, "the machine ended by itself with code %u", x->code);
	}
}

/* A machine may have been stopped and started again before its first end is told. */
static bool is_live(const char *id)
{
	_cleanup_(list_release)
	struct list live = { 0 };
	struct err e = ERR_INIT;

	if (sandbox_context.backend->live(add_live, &live, &e) < 0)
		return true; /* told again by the reconciliation after the reconnect */
	return list_find(&live, id);
}

static void on_exit_event(const struct backend_exit *x)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct op op = { .actor = &actor_system };
	struct err e = ERR_INIT;

	if (!id_valid(x->id, "sb") || sandbox_lock(x->id, LOCK_WAIT | LOCK_BRIEF) < 0)
		return;
	if (sandbox_get(x->id, &row, &e) == 0 && row.status == RUNNING && !row.deleting &&
	    !is_live(x->id)) {
		exit_text(x, row.exit_code, row.exit_text);
		log_notice("sandbox %s: %s", row.id, row.exit_text);
		if (sandbox_run_event(&row, EV_EXITED, &op, &e) < 0)
			log_error("sandbox %s: %s", row.id, e.text);
	}
	sandbox_unlock(x->id);
}

static void on_reconnect_event(void)
{
	struct err e = ERR_INIT;

	if (sandbox_reconcile(&e) < 0)
		log_error("%s", e.text);
}

int sandbox_init(const struct config *config, const struct backend *backend, struct err *e)
{
	sandbox_context = (struct sandbox_context){ .config = config, .backend = backend };
	backend->on_exit(on_exit_event);
	backend->on_reconnect(on_reconnect_event);
	remove_stray_output();
	return sandbox_reconcile(e);
}
