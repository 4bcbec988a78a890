/* The answers, as the contract has them. A test holds what is really answered against these. */
#include "base/banned.h"

#include "api/routes.h"
#include "sandbox/exec.h"
#include "sandbox/lifecycle.h"

static const char *const setup_values[] = { "INPROGRESS", "SUCCESS", "FAILED", "STALE", NULL };
static const char *const resources_values[] = { "1x2",   "2x4",   "3x6",    "4x8",  "5x10",
						"6x12",  "7x14",  "8x16",   "9x18", "10x20",
						"11x22", "12x24", "CUSTOM", NULL };
static const char *const command_values[] = { "INPROGRESS", "SUCCESSFUL", "FAILED", NULL };
static const char *const reason_values[] = { "EXITED", "SIGNALED", "TIMED_OUT", "KILLED",
					     "OOM",    "LOST",     NULL };
static const char *const start_values[] = { "warm", "cold", NULL };
static const char *const isolation_values[] = { "namespace", NULL };

#define BRIEF                                                                                      \
	{ "url", "string" }, { "html_url", "string" }, { "id", "string" },                         \
		{ "identifier", "string" }, { "name", "string" },                                  \
		{ "status", "string", .values = status_names },                                    \
		{ "setup_status", "string", .values = setup_values }, { "tags", "[string]" },      \
		{ "os", "string" }, { "resources", "string", .values = resources_values },         \
	{                                                                                          \
		"create_date", "date"                                                              \
	}

#define OUTCOME                                                                                    \
	{ "id", "string" }, { "command", "string" },                                               \
		{ "runtime", "string", .values = runtime_names },                                  \
		{ "status", "string", .values = command_values },                                  \
		{ "exit_code", "integer", true },                                                  \
	{                                                                                          \
		"signal", "string", true                                                           \
	}

static const struct shape_field brief_shape[] = { BRIEF, { 0 } };
static const struct shape_field sandbox_shape[] = {
	BRIEF,
	{ "scope", "string", true },
	{ "environment", "string", true },
	{ "project", "Project" },
	{ "isolation", "string", .values = isolation_values },
	{ "limits", "Limits" },
	{ "usage", "Usage", true },
	{ "start", "string", true, start_values },
	{ "exit_reason", "ExitReason", true },
	{ 0 },
};
static const struct shape_field project_shape[] = {
	{ "name", "string" }, { "display_name", "string" }, { "status", "string" },
	{ "url", "string" },  { "html_url", "string" },     { 0 },
};
static const struct shape_field limits_shape[] = {
	{ "cpus", "number" },  { "memory_bytes", "integer" }, { "disk_bytes", "integer" },
	{ "pids", "integer" }, { "enforced", "boolean" },     { 0 },
};
static const struct shape_field usage_shape[] = {
	{ "cpu_ns", "integer" },
	{ "memory_bytes", "integer" },
	{ "disk_bytes", "integer" },
	{ "pids", "integer" },
	{ 0 },
};
static const struct shape_field exit_reason_shape[] = {
	{ "code", "string" },
	{ "text", "string" },
	{ 0 },
};
static const struct shape_field sandbox_list_shape[] = {
	{ "sandboxes", "[SandboxIdView]" },
	{ "next_cursor", "string", true },
	{ 0 },
};
static const struct shape_field command_shape[] = {
	OUTCOME,
	{ "url", "string" },
	{ "html_url", "string" },
	{ "start_date", "date" },
	{ "finish_date", "date", true },
	{ "logs_url", "string" },
	{ "reason", "string", true, reason_values },
	{ "duration_ms", "integer", true },
	{ "cwd", "string", true },
	{ "user", "string", true },
	{ "pid", "integer", true },
	{ 0 },
};
static const struct shape_field command_list_shape[] = {
	{ "commands", "[Command]" },
	{ "next_cursor", "string", true },
	{ 0 },
};
static const struct shape_field exec_shape[] = {
	OUTCOME,
	{ "reason", "string", .values = reason_values },
	{ "stdout", "string" },
	{ "stderr", "string" },
	{ "stdout_base64", "string", true },
	{ "stderr_base64", "string", true },
	{ "stdout_bytes", "integer" },
	{ "stderr_bytes", "integer" },
	{ "stdout_truncated", "boolean" },
	{ "stderr_truncated", "boolean" },
	{ "timeout", "number" },
	{ "timed_out", "boolean" },
	{ "oom_killed", "boolean" },
	{ "duration_ms", "integer" },
	{ "warnings", "[string]" },
	{ 0 },
};
static const struct shape_field image_shape[] = {
	{ "name", "string" },       { "size_bytes", "integer" },    { "create_date", "date" },
	{ "user", "string", true }, { "work_dir", "string", true }, { 0 },
};
static const struct shape_field image_list_shape[] = { { "images", "[Image]" }, { 0 } };
#define FILE_MEMBERS(optional)                                                                     \
	{ "type", "string", optional, file_values }, { "kind", "string", true, kind_values },      \
		{ "name", "string", optional }, { "name_base64", "string", true },                 \
		{ "path", "string", optional }, { "path_base64", "string", true },                 \
		{ "size", "integer", optional }, { "mode", "string", optional },                   \
		{ "mtime", "date", optional }, { "owner", "string", optional },                    \
		{ "group", "string", optional }, { "target", "string", true },                     \
	{                                                                                          \
		"target_base64", "string", true                                                    \
	}
static const char *const file_values[] = { "FILE", "DIR", NULL };
static const char *const kind_values[] = { "LINK", "FIFO", "SOCKET", "DEVICE", NULL };
static const struct shape_field file_shape[] = {
	{ "url", "string" },
	{ "html_url", "string" },
	FILE_MEMBERS(false),
	{ 0 },
};
/* of a directory its contents, of anything else the members of a file */
static const struct shape_field content_shape[] = {
	{ "url", "string" }, { "html_url", "string" },          { "contents", "[File]", true },
	FILE_MEMBERS(true),  { "next_cursor", "string", true }, { 0 },
};
static const struct shape_field match_shape[] = {
	{ "path", "string" },       { "path_base64", "string", true }, { "line", "integer", true },
	{ "text", "string", true }, { "text_base64", "string", true }, { 0 },
};
static const struct shape_field search_shape[] = {
	{ "matches", "[Match]" },
	{ "truncated", "boolean" },
	{ 0 },
};
static const struct shape_field identifiers_shape[] = {
	{ "workspace_id", "string", true },
	{ "project_id", "string", true },
	{ "sandbox_id", "string", true },
	{ 0 },
};
static const struct shape_field health_shape[] = { { "status", "string" }, { 0 } };
static const struct shape_field version_shape[] = {
	{ "name", "string" },
	{ "version", "string" },
	{ 0 },
};
static const struct shape_field error_shape[] = {
	{ "message", "string" },     { "code", "string" },       { "errno", "string", true },
	{ "field", "string", true }, { "hint", "string", true }, { 0 },
};
static const struct shape_field errors_shape[] = { { "errors", "[Error]" }, { 0 } };

const struct shape shapes[] = {
	{ "SandboxIdView", brief_shape },
	{ "Sandbox", sandbox_shape },
	{ "SandboxList", sandbox_list_shape },
	{ "Project", project_shape },
	{ "Limits", limits_shape },
	{ "Usage", usage_shape },
	{ "ExitReason", exit_reason_shape },
	{ "Command", command_shape },
	{ "CommandList", command_list_shape },
	{ "Exec", exec_shape },
	{ "Image", image_shape },
	{ "ImageList", image_list_shape },
	{ "File", file_shape },
	{ "Content", content_shape },
	{ "Match", match_shape },
	{ "Search", search_shape },
	{ "Identifiers", identifiers_shape },
	{ "Health", health_shape },
	{ "Version", version_shape },
	{ "Error", error_shape },
	{ "Errors", errors_shape },
	{ 0 },
};

const struct shape *shape_find(const char *name)
{
	for (const struct shape *s = shapes; s->name; s++) {
		if (str_eq(s->name, name))
			return s;
	}
	return NULL;
}
