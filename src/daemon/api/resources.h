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

/* files.c, files_upload.c, files_download.c, files_watch.c */
struct file_list_query {
	bool recursive;
	uint32_t limit;
	const char *cursor;
};
struct file_make_query {
	bool parents;
	const char *user, *mode;
};
struct file_set_request {
	const char *mode, *owner;
};
struct file_move_request {
	const char *from, *from_base64, *to, *to_base64;
	bool overwrite;
};
struct file_search_request {
	const char *path, *path_base64, *name, *name_base64, *text, *text_base64;
	uint32_t limit;
};
struct file_upload_query {
	const char *user, *mode;
};
struct file_download_query {
	const char *archive;
};
extern const struct field file_list_fields[], file_make_fields[], file_set_fields[],
	file_move_fields[], file_search_fields[], file_upload_fields[], file_download_fields[];
extern const struct upload file_upload;
int handle_file_list(struct request *r, struct err *e);
int handle_file_stat(struct request *r, struct err *e);
int handle_file_make(struct request *r, struct err *e);
int handle_file_set(struct request *r, struct err *e);
int handle_file_move(struct request *r, struct err *e);
int handle_file_remove(struct request *r, struct err *e);
int handle_file_search(struct request *r, struct err *e);
int handle_file_download(struct request *r, struct err *e);
int handle_file_watch(struct request *r, struct err *e);

/* meta.c */
int handle_health(struct request *r, struct err *e);
int handle_version(struct request *r, struct err *e);
int handle_openapi(struct request *r, struct err *e);
