#include "api/form.h"

#include <errno.h>
#include <microhttpd.h>

#include "base/banned.h"
#include "base/cleanup.h"

enum { FORM_BUFFER = 64 * 1024 };

struct form {
	struct MHD_PostProcessor *parser;
	form_part_fn *part;
	void *arg;
	struct err e;
};

static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *name,
			       const char *file, const char *type, const char *encoding,
			       const char *data, uint64_t at, size_t len)
{
	struct form *f = cls;

	(void)kind;
	(void)file;
	(void)type;
	(void)encoding;
	return f->part(f->arg, name ? name : "", data, len, !at, &f->e) < 0 ? MHD_NO : MHD_YES;
}

static int broken(struct err *e)
{
	err_reason(e, EINVAL, "bad_form", "the body is not a whole form of its boundary");
	return err_field(e, "body");
}

int form_open(struct form **ret, struct request *r, form_part_fn *part, void *arg, struct err *e)
{
	struct form *f = calloc(1, sizeof(*f));

	if (!f)
		return err_set(e, ENOMEM, "out of memory");
	f->part = part;
	f->arg = arg;
	f->parser = r->connection
			    ? MHD_create_post_processor(r->connection, FORM_BUFFER, on_part, f)
			    : NULL;
	if (!f->parser) {
		free(f);
		err_reason(e, EINVAL, "bad_form", "the type of the body does not name a boundary");
		return err_field(e, "Content-Type");
	}
	*ret = f;
	return 0;
}

int form_write(struct form *f, const char *data, size_t len, struct err *e)
{
	if (MHD_post_process(f->parser, data, len) == MHD_YES)
		return 0;
	if (!f->e.code)
		return broken(e);
	*e = f->e;
	return -e->code;
}

int form_end(struct form **at, struct err *e)
{
	struct form *f = take_ptr(*at);
	enum MHD_Result whole = MHD_destroy_post_processor(f->parser);

	free(f);
	return whole == MHD_YES ? 0 : broken(e);
}

void form_free(struct form **at)
{
	struct form *f = take_ptr(*at);

	if (f)
		MHD_destroy_post_processor(f->parser);
	free(f);
}
