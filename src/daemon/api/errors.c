#include "api/errors.h"

#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"

#include "api/field.h"

static const struct {
	int code;
	unsigned status;
	const char *word; /* where the error has no reason of its own */
	unsigned retry_after;
} statuses[] = {
	{ EINVAL, 400, "bad_request", 0 },
	{ ENOTSUP, 400, "not_available", 0 },
	{ EMSGSIZE, 400, "body_too_large", 0 },
	{ ENOKEY, 401, "unauthorized", 0 },
	{ EACCES, 403, "forbidden", 0 },
	{ ENOENT, 404, "not_found", 0 },
	{ ENOTBLK, 405, "method_not_allowed", 0 },
	{ ETIME, 408, "request_timeout", 0 },
	{ EEXIST, 409, "exists", 0 },
	{ EBUSY, 409, "conflict", 0 },
	{ EFBIG, 413, "too_large", 0 },
	{ EMEDIUMTYPE, 415, "unsupported_media_type", 0 },
	{ ERANGE, 416, "range_not_satisfiable", 0 },
	{ EDOM, 422, "cannot_work", 0 },
	{ EPROTOTYPE, 426, "upgrade_required", 0 },
	{ EUSERS, 429, "too_many_requests", 1 },
	{ EAGAIN, 503, "try_again", 2 },
	{ ENOMEM, 503, "out_of_memory", 2 },
	{ EHOSTDOWN, 503, "backend_down", 2 },
	{ ENOSPC, 507, "disk_full", 0 },
};

static int row_of(const struct err *e)
{
	for (unsigned i = 0; i < ARRAY_SIZE(statuses); i++) {
		if (statuses[i].code == e->code)
			return (int)i;
	}
	return -1;
}

unsigned error_status(const struct err *e)
{
	int i = row_of(e);

	return i < 0 ? 500 : statuses[i].status;
}

unsigned error_retry_after(const struct err *e)
{
	int i = row_of(e);

	return i < 0 ? 0 : statuses[i].retry_after;
}

json_t *error_json(const struct err *e)
{
	int i = row_of(e);
	const char *word = e->reason ? e->reason : i < 0 ? "internal" : statuses[i].word;
	/* a fault of ours is in the log, under the request's id */
	const char *text = i < 0 ? "something went wrong in skerryd" : e->text;
	json_t *one = json_object();

	json_object_set_new(one, "message", json_any_string(text, strlen(text)));
	json_object_set_new(one, "code", json_string(word));
	if (e->cause)
		json_object_set_new(one, "errno", json_string(e->cause));
	if (*e->field)
		json_object_set_new(one, "field", json_any_string(e->field, strlen(e->field)));
	if (*e->hint)
		json_object_set_new(one, "hint", json_any_string(e->hint, strlen(e->hint)));
	return json_pack("{s[o]}", "errors", one);
}
