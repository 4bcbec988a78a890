#include "api/view.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/clock.h"

#include "api/field.h"
#include "api/request.h"
#include "sandbox/identifier.h"
#include "sandbox/lifecycle.h"

enum { URL_SIZE = 640 };

void put(json_t **object, const char *name, json_t *value)
{
	if (!*object || json_object_set_new(*object, name, value) == 0)
		return;
	json_decref(*object);
	*object = NULL;
}

json_t *json_base64(const void *data, size_t len)
{
	size_t size = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
	_cleanup_free_ char *text = malloc(size);

	if (!text)
		return NULL;
	sodium_bin2base64(text, size, data, len, sodium_base64_VARIANT_ORIGINAL);
	return json_string(text);
}

void put_text(json_t **object, const char *name, const char *text)
{
	if (text && *text)
		put(object, name, json_any_string(text, strlen(text)));
}

void put_date(json_t **object, const char *name, int64_t wall_ms)
{
	char text[CLOCK_TEXT_SIZE];

	clock_text(wall_ms, text);
	put(object, name, json_string(text));
}

static void put_urls(json_t **o, const char *workspace, const char *rest)
{
	const char *base = dispatch_config()->url;
	char url[URL_SIZE];

	snprintf(url, sizeof(url), "%s/workspaces/%s%s", base, workspace, rest);
	put(o, "url", json_string(url));
	snprintf(url, sizeof(url), "%s/ui/workspaces/%s%s", base, workspace, rest);
	put(o, "html_url", json_string(url));
}

static int shown_status(const struct sandbox_row *row)
{
	return row->deleting ? STOPPING : row->status;
}

json_t *view_sandbox_brief(const struct sandbox_row *row, const char *workspace)
{
	json_t *o = json_object();
	char rest[64];

	snprintf(rest, sizeof(rest), "/sandboxes/%s", row->id);
	put_urls(&o, workspace, rest);
	put(&o, "id", json_string(row->id));
	put(&o, "identifier", json_string(row->identifier));
	put(&o, "name", json_any_string(row->name, strlen(row->name)));
	put(&o, "status", json_string(status_name(shown_status(row))));
	put(&o, "setup_status", json_string(row->setup_status));
	put(&o, "tags", json_loads(row->tags, 0, NULL));
	put(&o, "os", json_string(row->os));
	put(&o, "resources", json_string(row->resources));
	put_date(&o, "create_date", row->created);
	return o;
}

static json_t *view_project(const struct project_row *p)
{
	json_t *o = json_object();
	char rest[NAME_SIZE + 16];

	put(&o, "name", json_string(p->name));
	put(&o, "display_name", json_string(p->display_name));
	put(&o, "status", json_string(p->status));
	snprintf(rest, sizeof(rest), "/projects/%s", p->name);
	put_urls(&o, p->workspace, rest);
	return o;
}

static json_t *view_limits(const struct sandbox_row *row)
{
	return json_pack("{sf sI sI sI sb}", "cpus", row->cpu_milli / 1000.0, "memory_bytes",
			 (json_int_t)row->memory_mb << 20, "disk_bytes",
			 (json_int_t)row->disk_gb << 30, "pids", (json_int_t)row->pids, "enforced",
			 (int)row->enforced);
}

static void put_usage(json_t **o, const struct sandbox_row *row)
{
	struct backend_stats s = { 0 };
	struct err ignored = ERR_INIT;

	if (sandbox_backend()->stats(row->id, &s, &ignored) < 0)
		return;
	put(o, "usage",
	    json_pack("{sI sI sI sI}", "cpu_ns", (json_int_t)s.cpu_ns, "memory_bytes",
		      (json_int_t)s.memory_bytes, "disk_bytes", (json_int_t)s.disk_bytes, "pids",
		      (json_int_t)s.pids));
}

int view_sandbox(const struct sandbox_row *row, bool usage, json_t **ret, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct project_row project;
	json_t *o;
	int r = tx_begin(&t, STORE_READ, e);

	if (!r)
		r = project_by_id(&t, row->project, &project, e);
	tx_end(&t);
	if (r < 0)
		return r;
	o = view_sandbox_brief(row, project.workspace);
	put_text(&o, "scope", row->scope);
	put_text(&o, "environment", row->environment);
	put(&o, "project", view_project(&project));
	put(&o, "isolation", json_string("namespace"));
	put(&o, "limits", view_limits(row));
	if (row->status == RUNNING) {
		if (usage)
			put_usage(&o, row);
		put(&o, "start", json_string(row->warm ? "warm" : "cold"));
	}
	if (*row->exit_code) {
		json_t *reason = json_object();

		put(&reason, "code", json_string(row->exit_code));
		put(&reason, "text", json_any_string(row->exit_text, strlen(row->exit_text)));
		put(&o, "exit_reason", reason);
	}
	if (!o)
		return err_set(e, ENOMEM, "out of memory");
	*ret = o;
	return 0;
}

json_t *view_command(const struct sandbox_row *sandbox, const struct command_row *row)
{
	const char *workspace = dispatch_config()->workspace;
	json_t *o = json_object();
	char rest[96], url[URL_SIZE], signal[24];

	snprintf(rest, sizeof(rest), "/sandboxes/%s/commands/%s", sandbox->id, row->id);
	put_urls(&o, workspace, rest);
	put(&o, "id", json_string(row->id));
	put(&o, "command", json_any_string(row->command, strlen(row->command)));
	put(&o, "runtime", json_string(row->runtime));
	put(&o, "status", json_string(row->status));
	if (row->exit_known)
		put(&o, "exit_code", json_integer(row->exit_code));
	put_date(&o, "start_date", row->started);
	snprintf(url, sizeof(url), "%s/workspaces/%s%s/logs", dispatch_config()->url, workspace,
		 rest);
	put(&o, "logs_url", json_string(url));
	if (row->finished) {
		put_date(&o, "finish_date", row->finished);
		put(&o, "duration_ms", json_integer(row->duration_ms));
	}
	put_text(&o, "reason", row->reason);
	if (row->signal) {
		signal_text(row->signal, signal);
		put(&o, "signal", json_string(signal));
	}
	put_text(&o, "cwd", row->cwd);
	put_text(&o, "user", row->user);
	if (row->pid)
		put(&o, "pid", json_integer(row->pid));
	return o;
}

json_t *view_image(const struct image_row *row)
{
	json_t *o = json_object();

	put(&o, "name", json_string(row->name));
	put(&o, "size_bytes", json_integer((json_int_t)row->bytes));
	put_date(&o, "create_date", row->created);
	put_text(&o, "user", row->user);
	put_text(&o, "work_dir", row->work_dir);
	return o;
}
