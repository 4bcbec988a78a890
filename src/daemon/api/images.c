/*
 * Images. A tar streams from the connection through a pipe to the backend: the connection's thread
 * writes, a thread of the upload's own waits for the backend. Nothing is buffered but the pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/fd.h"

#include "api/resources.h"
#include "api/view.h"
#include "sandbox/identifier.h"

const struct field image_fields[] = {
	FIELD_STR(struct image_request, name, .required = true, .check = image_name_check),
	FIELD_STR(struct image_request, user, .min = 1, .max = 64,
		  .about = "default user; root when absent"),
	FIELD_STR(struct image_request, work_dir, .max = 255, .check = path_check),
	{ 0 },
};

struct upload_state {
	int read_end, write_end;
	atomic_bool cut; /* the body did not come to its end */
	bool broken;     /* the reader is gone: the rest is dropped, its error is the answer */
	pthread_t thread;
	const struct image_request *in;
	const struct actor *actor;
	struct image_row row;
	int code;
	struct err e;
};

static void *unpack(void *arg)
{
	struct upload_state *u = arg;

	u->code = image_create(u->in, u->read_end, &u->cut, u->actor, &u->row, &u->e);
	close_p(&u->read_end); /* wakes a writer that waits */
	return NULL;
}

static int image_begin(struct request *r, struct err *e)
{
	struct upload_state *u = calloc(1, sizeof(*u));
	int ends[2], code;

	if (!u)
		return err_set(e, ENOMEM, "out of memory");
	if (pipe2(ends, O_CLOEXEC) < 0) {
		free(u);
		return err_reason(e, EAGAIN, "host_full", "make a pipe: %m");
	}
	*u = (struct upload_state){
		.read_end = ends[0],
		.write_end = ends[1],
		.in = r->in_query,
		.actor = &r->actor,
	};
	code = pthread_create(&u->thread, NULL, unpack, u);
	if (code) {
		close(ends[0]);
		close(ends[1]);
		free(u);
		return err_reason(e, EAGAIN, "host_full", "start a thread: %s", strerror(code));
	}
	r->upload = u;
	return 0;
}

static int image_write(struct request *r, const char *data, size_t len, struct err *e)
{
	struct upload_state *u = r->upload;

	(void)e;
	/* the backend's own error is the story, and told at the end */
	if (!u->broken && write_all(u->write_end, data, len) < 0)
		u->broken = true;
	return 0;
}

static int image_end(struct request *r, bool cut, struct err *e)
{
	struct upload_state *u = r->upload;
	int code;

	/* said before the pipe ends, so that the other thread knows it when it has read all */
	u->cut = cut;
	close_p(&u->write_end);
	pthread_join(u->thread, NULL);
	code = u->code;
	if (code < 0)
		*e = u->e;
	else
		r->answer = view_image(&u->row);
	free(u);
	r->upload = NULL;
	return code;
}

const struct upload image_upload = {
	.type = "application/x-tar",
	.begin = image_begin,
	.write = image_write,
	.end = image_end,
};

static int add_image(void *arg, const struct image_row *row)
{
	return json_array_append_new(arg, view_image(row)) < 0;
}

int handle_image_list(struct request *r, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	json_t *list = json_array();
	int code = tx_begin(&t, STORE_READ, e);

	if (!code)
		code = images_each(&t, add_image, list, e);
	if (code < 0) {
		json_decref(list);
		return code;
	}
	r->answer = json_object();
	put(&r->answer, "images", list);
	return 0;
}

int handle_image_delete(struct request *r, struct err *e)
{
	return image_remove(r->params[1], &r->actor, e);
}
