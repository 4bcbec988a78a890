#pragma once
/* The handlers and field tables that routes.c names, by file. */
#include "api/routes.h"
#include "sandbox/exec.h"
#include "sandbox/image.h"

/* sandboxes.c */
struct wait_query {
	const char *wait;
	uint32_t wait_timeout;
};
struct list_query {
	const char *status, *tag, *cursor;
	uint32_t limit;
};
struct patch_request {
	const char *name;
	json_t *tags;
};
struct grace_request {
	uint32_t grace;
};
extern const struct field create_fields[], wait_fields[], list_fields[], patch_fields[],
	grace_fields[];
int handle_sandbox_create(struct request *r, struct err *e);
int handle_sandbox_list(struct request *r, struct err *e);
int handle_sandbox_get(struct request *r, struct err *e);
int handle_sandbox_patch(struct request *r, struct err *e);
int handle_sandbox_delete(struct request *r, struct err *e);
int handle_sandbox_start(struct request *r, struct err *e);
int handle_sandbox_stop(struct request *r, struct err *e);
int handle_sandbox_restart(struct request *r, struct err *e);
struct identifiers_query {
	const char *sandbox;
};
extern const struct field identifiers_fields[];
int handle_identifiers(struct request *r, struct err *e);

/* commands.c, logs.c */
struct page_query {
	const char *cursor;
	uint32_t limit;
};
struct command_query {
	uint32_t wait;
};
struct logs_query {
	bool follow, events;
	const char *stream, *offset;
};
struct signal_request {
	const char *signal;
};
struct stdin_query {
	bool eof;
};
struct terminate_request {
	const char *signal;
	uint32_t grace;
};
extern const struct field exec_fields[], command_fields[], page_fields[], command_query_fields[],
	logs_fields[], terminate_fields[], signal_fields[], stdin_fields[];
int handle_exec(struct request *r, struct err *e);
int handle_command_create(struct request *r, struct err *e);
int handle_command_list(struct request *r, struct err *e);
int handle_command_get(struct request *r, struct err *e);
int handle_command_logs(struct request *r, struct err *e);
int handle_command_terminate(struct request *r, struct err *e);
int handle_command_signal(struct request *r, struct err *e);

/* stdin.c */
extern const struct upload stdin_upload;

/* exec_socket.c, terminal.c */
struct terminal_query {
	const char *user, *cwd, *term, *id;
	uint32_t cols, rows;
};
extern const struct field terminal_fields[];
extern const struct socket_route exec_socket, terminal_socket;

/* images.c */
extern const struct field image_fields[];
extern const struct upload image_upload;
int handle_image_list(struct request *r, struct err *e);
int handle_image_delete(struct request *r, struct err *e);

/* meta.c */
int handle_health(struct request *r, struct err *e);
int handle_version(struct request *r, struct err *e);
int handle_openapi(struct request *r, struct err *e);
