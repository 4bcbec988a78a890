#include "base/banned.h"

#include "api/resources.h"

#define W              "/workspaces/{workspace}"
#define SB             W "/sandboxes/{sandbox_id}"
#define IN(f, type)    .fields = (f), .fields_size = sizeof(type)
#define QUERY(f, type) .query = (f), .query_size = sizeof(type)
#define LATER(path, part)                                                                          \
	{                                                                                          \
		"*", path, SCOPE_READ, .summary = (part)                                           \
	}

/* The first row that fits counts, so literal segments stand before parameters. */
const struct route routes[] = {
	{ "GET", "/healthz", SCOPE_NONE, handle_health, .shape = "Health", .status = 200,
	  .summary = "is the daemon able to work" },
	{ "GET", "/version", SCOPE_NONE, handle_version, .shape = "Version", .status = 200,
	  .summary = "version of the daemon" },
	{ "GET", "/openapi.json", SCOPE_NONE, handle_openapi, .status = 200,
	  .summary = "this document" },

	{ "GET", W "/identifiers", SCOPE_READ, handle_identifiers,
	  QUERY(identifiers_fields, struct identifiers_query), .shape = "Identifiers",
	  .status = 200, .summary = "ids of names" },

	{ "GET", W "/images", SCOPE_READ, handle_image_list, .shape = "ImageList", .status = 200,
	  .summary = "list images" },
	{ "POST", W "/images", SCOPE_MANAGE, NULL, QUERY(image_fields, struct image_request),
	  .shape = "Image", .status = 201, .upload = &image_upload,
	  .summary = "make an image from a root file system (tar)" },
	{ "DELETE", W "/images/{image}", SCOPE_MANAGE, handle_image_delete, .status = 204,
	  .summary = "remove an image's name" },

	LATER(W "/sandboxes/snapshots", "snapshots"),
	LATER(W "/sandboxes/snapshots/**", "snapshots"),
	LATER(W "/sandboxes/yaml", "yaml"),

	{ "GET", W "/sandboxes", SCOPE_READ, handle_sandbox_list,
	  QUERY(list_fields, struct list_query), .shape = "SandboxList", .status = 200,
	  .summary = "list sandboxes" },
	{ "POST", W "/sandboxes", SCOPE_WRITE, handle_sandbox_create,
	  IN(create_fields, struct create_request), QUERY(wait_fields, struct wait_query),
	  .shape = "Sandbox", .status = 201, .once = true, .summary = "create a sandbox" },
	{ "GET", SB, SCOPE_READ, handle_sandbox_get, .shape = "Sandbox", .status = 200,
	  .summary = "get a sandbox" },
	{ "PATCH", SB, SCOPE_WRITE, handle_sandbox_patch, IN(patch_fields, struct patch_request),
	  .shape = "Sandbox", .status = 200, .summary = "change a sandbox" },
	{ "DELETE", SB, SCOPE_WRITE, handle_sandbox_delete, .status = 204, .control = true,
	  .summary = "delete a sandbox" },
	{ "POST", SB "/start", SCOPE_WRITE, handle_sandbox_start, .shape = "Sandbox", .status = 200,
	  .summary = "start a sandbox" },
	{ "POST", SB "/stop", SCOPE_WRITE, handle_sandbox_stop,
	  IN(grace_fields, struct grace_request), .shape = "Sandbox", .status = 200,
	  .control = true, .summary = "stop a sandbox" },
	{ "POST", SB "/restart", SCOPE_WRITE, handle_sandbox_restart,
	  IN(grace_fields, struct grace_request), .shape = "Sandbox", .status = 200,
	  .control = true, .summary = "stop and start a sandbox" },

	{ "POST", SB "/exec", SCOPE_WRITE, handle_exec, IN(exec_fields, struct exec_request),
	  .shape = "Exec", .status = 200, .summary = "run a command to its end" },
	{ "GET", SB "/exec", SCOPE_WRITE, .socket = &exec_socket, .status = 101,
	  .summary = "exec over WebSocket: its frames are in docs/commands.md" },
	{ "GET", SB "/terminal", SCOPE_WRITE, QUERY(terminal_fields, struct terminal_query),
	  .socket = &terminal_socket, .status = 101, .summary = "a terminal over WebSocket" },
	{ "POST", SB "/commands", SCOPE_WRITE, handle_command_create,
	  IN(command_fields, struct exec_request), .shape = "Command", .status = 201, .once = true,
	  .summary = "start a command" },
	{ "GET", SB "/commands", SCOPE_READ, handle_command_list,
	  QUERY(page_fields, struct page_query), .shape = "CommandList", .status = 200,
	  .summary = "list commands, newest first" },
	{ "GET", SB "/commands/{command_id}", SCOPE_READ, handle_command_get,
	  QUERY(command_query_fields, struct command_query), .shape = "Command", .status = 200,
	  .summary = "get a command" },
	{ "GET", SB "/commands/{command_id}/logs", SCOPE_READ, handle_command_logs,
	  QUERY(logs_fields, struct logs_query), .type = "application/jsonl", .status = 200,
	  .summary = "output of a command" },
	{ "POST", SB "/commands/{command_id}/terminate", SCOPE_WRITE, handle_command_terminate,
	  IN(terminate_fields, struct terminate_request), .shape = "Command", .status = 200,
	  .control = true, .summary = "end a command and all it started" },

	{ "POST", SB "/commands/{command_id}/signal", SCOPE_WRITE, handle_command_signal,
	  IN(signal_fields, struct signal_request), .status = 204, .control = true,
	  .summary = "signal a command's foreground process group" },
	{ "POST", SB "/commands/{command_id}/stdin", SCOPE_WRITE, NULL,
	  QUERY(stdin_fields, struct stdin_query), .status = 204, .upload = &stdin_upload,
	  .summary = "bytes for the standard input of a command" },

	LATER(SB "/recreate", "recreate"),
	LATER(SB "/pause", "pause"),
	LATER(SB "/resume", "resume"),
	LATER(SB "/yaml", "yaml"),
	LATER(SB "/content/**", "files"),
	LATER(SB "/download/**", "files"),
	LATER(SB "/stat/**", "files"),
	LATER(SB "/move", "files"),
	LATER(SB "/search", "files"),
	LATER(SB "/watch/**", "files"),
	LATER(SB "/apps/**", "apps"),
	LATER(SB "/endpoints/**", "endpoints"),
	LATER(SB "/snapshots/**", "snapshots"),
	LATER(W "/templates/**", "templates"),
	LATER(W "/pools/**", "pools"),
	LATER(W "/tokens/**", "tokens"),
	LATER(W "/projects/**", "projects"),
	LATER(W "/members/**", "members"),
	LATER(W "/variables/**", "variables"),
	LATER(W "/audit/**", "audit"),
	LATER(W "/events", "events"),
	LATER("/metrics", "metrics"),
	LATER("/mcp", "mcp"),
	{ 0 },
};
