#include "sandbox/image.h"

#include <errno.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "sandbox/internal.h"

enum { UNPACK_MS = 3600 * 1000 };

int image_forget_layer(const char *layer, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = sandbox_context.backend->layer_delete(layer, e);

	if (r < 0)
		return r;
	r = tx_begin(&t, STORE_DURABLE, e);
	if (!r)
		r = layer_drop(&t, layer, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static void forget(const char *layer)
{
	struct err e = ERR_INIT;

	/* its row stays until it is gone; the janitor asks again */
	if (image_forget_layer(layer, &e) < 0)
		log_warn("layer %s: delete: %s", layer, e.text);
}

static int write_layer(const char *layer, const struct actor *a, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_DURABLE, e);

	if (!r)
		r = layer_add(&t, layer, a, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static int write_image(const struct image_row *row, char old[ID_SIZE], bool *ret_last,
		       const struct actor *a, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int r = tx_begin(&t, STORE_DURABLE, e);

	*ret_last = false;
	if (!r)
		r = layer_ready(&t, row->layer, row->bytes, e);
	if (r >= 0)
		r = layer_ref(&t, row->layer, e);
	if (r >= 0)
		r = image_put(&t, row, old, a, e);
	if (r >= 0 && *old)
		r = layer_unref(&t, old, ret_last, e);
	if (r >= 0)
		r = audit_add(&t, a, "image.create", row->name, e);
	return r < 0 ? r : tx_commit(&t, e);
}

int image_create(const struct image_request *in, int fd, const atomic_bool *cut,
		 const struct actor *a, struct image_row *ret, struct err *e)
{
	struct image_row row = { .created = clock_wall_ms() };
	char old[ID_SIZE] = "";
	bool last = false;
	int r = id_make("ly", row.layer);

	if (r < 0)
		return err_set(e, -r, "make an id: %m");
	str_copy(row.name, sizeof(row.name), in->name);
	str_copy(row.user, sizeof(row.user), in->user ? in->user : "");
	str_copy(row.work_dir, sizeof(row.work_dir), in->work_dir ? in->work_dir : "");
	r = write_layer(row.layer, a, e);
	if (r < 0)
		return r;
	r = sandbox_context.backend->layer_create(row.layer, fd, UNPACK_MS, &row.bytes, e);
	if (r < 0) {
		err_wrap(e, "image '%s' could not be unpacked", in->name);
		backend_fault(e, EDOM, "bad_image");
	} else if (cut && *cut) {
		r = err_set(e, ECONNABORTED, "the upload of image '%s' was cut off", in->name);
	} else {
		r = write_image(&row, old, &last, a, e);
	}
	if (r < 0) {
		forget(row.layer);
		return -e->code;
	}
	if (last)
		forget(old);
	*ret = row;
	return 0;
}

int image_remove(const char *name, const struct actor *a, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct image_row row;
	bool last = false;
	int r = tx_begin(&t, STORE_DURABLE, e);

	if (!r)
		r = image_by_name(&t, name, &row, e);
	if (!r)
		r = image_delete(&t, name, e);
	if (r >= 0)
		r = layer_unref(&t, row.layer, &last, e);
	if (r >= 0)
		r = audit_add(&t, a, "image.delete", name, e);
	if (r >= 0)
		r = tx_commit(&t, e);
	if (r < 0)
		return r;
	if (last)
		forget(row.layer);
	return 0;
}

int image_clean(bool at_start, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	json_t *ids = NULL, *id;
	size_t i;
	int r = tx_begin(&t, STORE_READ, e);

	if (!r)
		r = layers_unfinished(&t, &ids, e);
	if (r < 0)
		return r;
	tx_end(&t);
	json_array_foreach(ids, i, id)
	{
		char state[16] = "";
		struct err ignored = ERR_INIT;

		if (tx_begin(&t, STORE_READ, &ignored) == 0)
			layer_state(&t, json_string_value(id), state, &ignored);
		tx_end(&t);
		if (at_start || str_eq(state, "DELETING"))
			forget(json_string_value(id));
	}
	json_decref(ids);
	return 0;
}
