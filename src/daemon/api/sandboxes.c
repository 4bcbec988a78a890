#include <errno.h>
#include <string.h>

#include "base/banned.h"

#include "api/resources.h"
#include "api/view.h"
#include "sandbox/identifier.h"
#include "sandbox/lifecycle.h"

enum {
	WAIT_MS = 250,
	WAIT_SECONDS = 60,
	WAIT_SECONDS_MAX = 600,
	PAGE_MAX = 1000,
	GRACE_SECONDS = 10,
	GRACE_MAX = 3600,
	TAGS_MAX = 64,
	TAG_LENGTH = 128,
	CPUS_MAX = 1024,
	MEMORY_MB_MAX = 16 * 1024 * 1024,
	DISK_GB_MAX = 1024 * 1024,
	PIDS_MAX = 4 * 1024 * 1024,
};

static const char *const resources_values[] = { "1x2",   "2x4",   "3x6",    "4x8",  "5x10",
						"6x12",  "7x14",  "8x16",   "9x18", "10x20",
						"11x22", "12x24", "CUSTOM", NULL };
static const char *const isolation_values[] = { "namespace", NULL };
static const char *const wait_values[] = { "running", "setup", "apps", NULL };

#define SIZE_U32(type, member, least, most, text)                                                  \
	{                                                                                          \
		.name = #member, .kind = FIELD_KIND_U32,                                           \
		.offset = FIELD_AT(type, size.member, uint32_t), .min = (least), .max = (most),    \
		.about = (text)                                                                    \
	}
#define SIZE_FIELDS(type)                                                                          \
	{ .name = "resources",                                                                     \
	  .kind = FIELD_KIND_ENUM,                                                                 \
	  .offset = FIELD_AT(type, size.resources, const char *),                                  \
	  .values = resources_values,                                                              \
	  .about = "cpus x GiB of memory; default 2x4" },                                          \
		SIZE_U32(type, cpus, 1, CPUS_MAX, "processors"),                                   \
		SIZE_U32(type, memory_mb, 64, MEMORY_MB_MAX, "MiB; what is in use is the least"),  \
		SIZE_U32(type, disk_gb, 1, DISK_GB_MAX, "GiB; what is in use is the least"),       \
		SIZE_U32(type, pids, 16, PIDS_MAX, "processes and threads")

const struct field create_fields[] = {
	FIELD_STR(struct create_request, name, .required = true, .min = 1, .max = 255,
		  .check = name_check, .about = "shown to people"),
	FIELD_STR(struct create_request, identifier, .check = identifier_check,
		  .about = "handle, unique in the project; derived from the name when absent"),
	FIELD_STR(struct create_request, os, .check = image_name_check,
		  .about = "an image of this host; default debian:12"),
	SIZE_FIELDS(struct create_request),
	FIELD_ENUM(struct create_request, isolation, isolation_values, 0),
	FIELD_LIST(struct create_request, tags, .max = TAGS_MAX, .item_min = 1,
		   .item_max = TAG_LENGTH),
	FIELD_STR(struct create_request, scope, .max = 255, .about = "echoed, without effect"),
	FIELD_STR(struct create_request, environment, .max = 255,
		  .about = "echoed, without effect"),
	FIELD_RESERVED("first_boot_commands"),
	FIELD_RESERVED("app_dir"),
	FIELD_RESERVED("apps"),
	FIELD_RESERVED("fetch"),
	FIELD_RESERVED("endpoints"),
	FIELD_RESERVED("variables"),
	FIELD_RESERVED("timeout"),
	FIELD_RESERVED("permissions"),
	FIELD_RESERVED("note"),
	FIELD_RESERVED("agent_note"),
	FIELD_RESERVED("user"),
	FIELD_RESERVED("template"),
	FIELD_RESERVED("auto_start"),
	FIELD_RESERVED("auto_delete"),
	FIELD_RESERVED("snapshot_id"),
	FIELD_RESERVED("source_sandbox_id"),
	FIELD_RESERVED("snapshot_schedule"),
	FIELD_RESERVED("egress"),
	FIELD_RESERVED("self_management"),
	{ 0 },
};

const struct field wait_fields[] = {
	FIELD_ENUM(struct wait_query, wait, wait_values, .about = "answer when it is so"),
	FIELD_U32(struct wait_query, wait_timeout, .min = 1, .max = WAIT_SECONDS_MAX,
		  .absent = WAIT_SECONDS, .about = "seconds"),
	{ 0 },
};

const struct field list_fields[] = {
	FIELD_ENUM(struct list_query, status, status_names, 0),
	FIELD_STR(struct list_query, tag, .max = TAG_LENGTH),
	FIELD_STR(struct list_query, cursor, .max = 32, .about = "next_cursor of the page before"),
	FIELD_U32(struct list_query, limit, .min = 1, .max = PAGE_MAX, .absent = PAGE_MAX),
	{ 0 },
};

const struct field patch_fields[] = {
	FIELD_STR(struct sandbox_change, name, .min = 1, .max = 255, .check = name_check),
	SIZE_FIELDS(struct sandbox_change),
	FIELD_LIST(struct sandbox_change, tags, .max = TAGS_MAX, .item_min = 1,
		   .item_max = TAG_LENGTH),
	FIELD_RESERVED("identifier"),
	FIELD_RESERVED("first_boot_commands"),
	FIELD_RESERVED("app_dir"),
	FIELD_RESERVED("apps"),
	FIELD_RESERVED("fetch"),
	FIELD_RESERVED("endpoints"),
	FIELD_RESERVED("variables"),
	FIELD_RESERVED("timeout"),
	FIELD_RESERVED("permissions"),
	FIELD_RESERVED("note"),
	FIELD_RESERVED("agent_note"),
	FIELD_RESERVED("auto_start"),
	FIELD_RESERVED("auto_delete"),
	FIELD_RESERVED("scope"),
	FIELD_RESERVED("environment"),
	FIELD_RESERVED("snapshot_schedule"),
	FIELD_RESERVED("egress"),
	FIELD_RESERVED("self_management"),
	{ 0 },
};

const struct field grace_fields[] = {
	FIELD_U32(struct grace_request, grace, .max = GRACE_MAX, .absent = GRACE_SECONDS,
		  .about = "seconds between TERM and KILL"),
	{ 0 },
};

const struct field identifiers_fields[] = {
	FIELD_STR(struct identifiers_query, sandbox, .max = 64),
	{ 0 },
};

int handle_sandbox_create(struct request *r, struct err *e)
{
	const struct wait_query *wait = r->in_query;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct project_row project;
	int code = request_project(r, &project, e);

	if (!code)
		code = sandbox_create(
			r->in,
			&(struct create_options){
				.project = &project,
				.actor = &r->actor,
				.idempotency = r->once.key ? &r->once : NULL,
				.wait_ms = wait->wait ? wait->wait_timeout * 1000 : WAIT_MS,
			},
			&row, e);
	return code < 0 ? code : view_sandbox(&row, false, &r->answer, e);
}

struct page {
	json_t *list;
	const char *workspace;
	uint32_t limit;
	int64_t last;
	bool more;
};

static int add_brief(void *arg, struct sandbox_row *row)
{
	struct page *p = arg;

	if (json_array_size(p->list) == p->limit) {
		p->more = true;
		return 1;
	}
	p->last = row->seq;
	return json_array_append_new(p->list, view_sandbox_brief(row, p->workspace)) < 0;
}

static int read_cursor(const char *text, int64_t *ret, struct err *e)
{
	uint64_t n = 0;

	if (text && str_u64(text, 1, INT64_MAX, &n) < 0) {
		err_reason(e, EINVAL, "invalid_field",
			   "the cursor is not one that a list answered");
		return err_field(e, "cursor");
	}
	*ret = (int64_t)n;
	return 0;
}

static void put_page(struct request *r, const char *name, struct page *p)
{
	char cursor[24];

	r->answer = json_object();
	put(&r->answer, name, p->list);
	if (p->more) {
		snprintf(cursor, sizeof(cursor), "%lld", (long long)p->last);
		put(&r->answer, "next_cursor", json_string(cursor));
	}
}

int handle_sandbox_list(struct request *r, struct err *e)
{
	const struct list_query *q = r->in_query;
	_cleanup_tx_ struct tx t = TX_INIT;
	struct project_row project;
	struct page p = { .limit = q->limit, .workspace = r->token.workspace };
	struct sandbox_filter filter = {
		.tag = q->tag,
		.status = q->status ? status_from_name(q->status) : -1,
	};
	bool one = request_query(r, "project") || request_query(r, "project_name") ||
		   *r->token.project;
	int code = read_cursor(q->cursor, &filter.after, e);

	if (!code && one)
		code = request_project(r, &project, e);
	if (!code)
		code = tx_begin(&t, STORE_READ, e);
	if (code < 0)
		return code;
	if (one)
		filter.project = project.id;
	p.list = json_array();
	code = sandboxes_each(&t, &filter, add_brief, &p, e);
	if (code < 0) {
		json_decref(p.list);
		return code;
	}
	put_page(r, "sandboxes", &p);
	return 0;
}

int handle_sandbox_get(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	int code = request_sandbox(r, &row, e);

	return code < 0 ? code : view_sandbox(&row, true, &r->answer, e);
}

static int answer_row(struct request *r, int code, struct sandbox_row *after, struct err *e)
{
	if (!code)
		code = view_sandbox(after, true, &r->answer, e);
	sandbox_row_release(after);
	return code;
}

int handle_sandbox_patch(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct sandbox_row after = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = sandbox_change(row.id, r->in, &r->actor, &after, e);
	return answer_row(r, code, &after, e);
}

int handle_sandbox_delete(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	int code = request_sandbox(r, &row, e);

	return code < 0 ? code : sandbox_delete(row.id, &r->actor, e);
}

int handle_sandbox_start(struct request *r, struct err *e)
{
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct sandbox_row after = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = sandbox_start(row.id, &r->actor, &after, e);
	return answer_row(r, code, &after, e);
}

int handle_sandbox_stop(struct request *r, struct err *e)
{
	const struct grace_request *in = r->in;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct sandbox_row after = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = sandbox_stop(row.id, in->grace * 1000, &r->actor, &after, e);
	return answer_row(r, code, &after, e);
}

int handle_sandbox_restart(struct request *r, struct err *e)
{
	const struct grace_request *in = r->in;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct sandbox_row after = { 0 };
	int code = request_sandbox(r, &row, e);

	if (!code)
		code = sandbox_restart(row.id, in->grace * 1000, &r->actor, &after, e);
	return answer_row(r, code, &after, e);
}

int handle_identifiers(struct request *r, struct err *e)
{
	const struct identifiers_query *q = r->in_query;
	_cleanup_sandbox_ struct sandbox_row row = { 0 };
	struct project_row project;
	bool named = request_query(r, "project") || request_query(r, "project_name");
	int code = request_project(r, &project, e);

	if (code < 0 && code != -ENOENT)
		return code;
	r->answer = json_object();
	put(&r->answer, "workspace_id", json_string(r->token.workspace));
	if (!code && named)
		put(&r->answer, "project_id", json_string(project.id));
	if (!code && q->sandbox) {
		r->params[1] = q->sandbox;
		code = request_sandbox(r, &row, e);
		if (!code)
			put(&r->answer, "sandbox_id", json_string(row.id));
	}
	*e = (struct err)ERR_INIT;
	return code < 0 && code != -ENOENT ? code : 0;
}
