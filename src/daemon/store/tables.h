#pragma once
/*
 * The tables, a file each. Functions take an open transaction and leave committing to the caller;
 * a missing row is -ENOENT with a text that a client may see. Rows are plain values without
 * pointers into the database; the `json_t` and allocated members of a row go with its _release.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#include "store/store.h"

enum {
	NAME_SIZE = 128 + 1, /* names of images, tokens, workspaces, projects */
	IDENTIFIER_SIZE = 63 + 1,
	SANDBOX_NAME_SIZE = 255 * 4 + 1, /* 255 characters */
	COMMANDS_KEPT = 1000,
};

/* workspaces.c, projects.c */
struct project_row {
	char id[ID_SIZE], workspace[NAME_SIZE], name[NAME_SIZE], display_name[NAME_SIZE];
	char status[16];
};
int workspace_ensure(const char *name, struct err *e); /* with its project `default` */
int workspace_exists(struct tx *t, const char *name, struct err *e); /* 0 or -ENOENT */
int project_by_name(struct tx *t, const char *workspace, const char *name, struct project_row *ret,
		    struct err *e);
int project_by_id(struct tx *t, const char *id, struct project_row *ret, struct err *e);
int project_add(struct tx *t, const char *workspace, const char *name, const struct actor *a,
		struct err *e);

/* members.c */
int member_add(struct tx *t, const char *workspace, const char *name, const char *role,
	       const struct actor *a, struct err *e);

/* tokens.c */
enum scope { SCOPE_NONE = 0, SCOPE_READ = 1, SCOPE_WRITE = 2, SCOPE_MANAGE = 4, SCOPE_ALL = 7 };
enum { TOKEN_HASH_SIZE = 65 };
struct token_row {
	char id[ID_SIZE], workspace[NAME_SIZE], project[ID_SIZE], name[NAME_SIZE];
	unsigned scopes;
	int64_t expires; /* 0: never */
};
int token_by_hash(struct tx *t, const char *hash, struct token_row *ret, struct err *e);
int token_add(struct tx *t, const struct token_row *row, const char *hash, const struct actor *a,
	      struct err *e);

/* layers.c: the count of images and sandboxes built on each */
int layer_add(struct tx *t, const char *id, const struct actor *a, struct err *e); /* CREATING */
int layer_ready(struct tx *t, const char *id, uint64_t bytes, struct err *e);
int layer_ref(struct tx *t, const char *id, struct err *e);
/* *ret_last: nobody uses it any more; it is DELETING, and the caller deletes it and its row. */
int layer_unref(struct tx *t, const char *id, bool *ret_last, struct err *e);
int layer_drop(struct tx *t, const char *id, struct err *e);
int layer_state(struct tx *t, const char *id, char ret[16], struct err *e);
/* A list of those that are to be removed: deleted, or never finished. */
int layers_unfinished(struct tx *t, json_t **ret_ids, struct err *e);

/* images.c */
struct image_row {
	char name[NAME_SIZE], layer[ID_SIZE], user[NAME_SIZE], work_dir[256];
	uint64_t bytes;
	int64_t created;
};
int image_by_name(struct tx *t, const char *name, struct image_row *ret, struct err *e);
/* Sets the name's image; the layer it had is in ret_old, "" if none. Counts are the caller's. */
int image_put(struct tx *t, const struct image_row *row, char ret_old[ID_SIZE],
	      const struct actor *a, struct err *e);
int image_delete(struct tx *t, const char *name, struct err *e);
int images_each(struct tx *t, int (*each)(void *arg, const struct image_row *row), void *arg,
		struct err *e);

/* slots.c: implements struct slot_store of backend.h */
struct slot_store;
extern const struct slot_store store_slots;

/* sandboxes.c */
struct sandbox_row {
	int64_t seq;
	char id[ID_SIZE], project[ID_SIZE], identifier[IDENTIFIER_SIZE];
	char name[SANDBOX_NAME_SIZE];
	int status; /* enum status, sandbox/lifecycle.h */
	char setup_status[12];
	char os[NAME_SIZE], layer[ID_SIZE], default_user[NAME_SIZE], work_dir[256];
	char resources[8];
	uint32_t cpu_milli, memory_mb, disk_gb, pids;
	char *tags;                /* a JSON list; owned */
	char *scope, *environment; /* as given, NULL if not; owned */
	char machine_id[33];
	bool enforced, warm, deleting;
	char address4[16], address6[46];
	char exit_code[32], exit_text[256];
	int64_t created, changed;
};
#define _cleanup_sandbox_ _cleanup_(sandbox_row_release)
void sandbox_row_release(struct sandbox_row *row);
int sandbox_insert(struct tx *t, struct sandbox_row *row, const struct actor *a, struct err *e);
int sandbox_by_id(struct tx *t, const char *id, struct sandbox_row *ret, struct err *e);
int sandbox_by_identifier(struct tx *t, const char *project, const char *identifier,
			  struct sandbox_row *ret, struct err *e);
/* Writes what changes with the state: status to exit_text. */
int sandbox_update_state(struct tx *t, const struct sandbox_row *row, struct err *e);
int sandbox_update_settings(struct tx *t, const struct sandbox_row *row, struct err *e);
int sandbox_set_deleting(struct tx *t, const char *id, struct err *e);
int sandbox_remove(struct tx *t, const char *id, struct err *e);
/* Those after `after` (seq), in order of creation; project NULL for all, status -1 for all. `each`
 * returns 1 to end it. */
struct sandbox_filter {
	const char *project, *tag;
	int status;
	int64_t after;
};
int sandboxes_each(struct tx *t, const struct sandbox_filter *filter,
		   int (*each)(void *arg, struct sandbox_row *row), void *arg, struct err *e);
/* Memory promised to those that hold it, without the sandbox `except` (NULL: none). */
int sandboxes_memory_mb(struct tx *t, const char *except, uint64_t *ret, struct err *e);

/* commands.c */
struct command_row {
	int64_t seq;
	char id[ID_SIZE], sandbox[ID_SIZE];
	char *command; /* owned */
	char runtime[12], status[12], reason[12];
	bool exit_known;
	int exit_code, signal;     /* signal 0: none */
	int64_t started, finished; /* finished 0: runs */
	int64_t duration_ms;
	char cwd[1024], user[NAME_SIZE];
	uint32_t pid;
	bool oom;        /* the sandbox ran out of memory while it ran */
	bool terminal;   /* it has one */
	bool keep_awake; /* it is activity although nobody waits for it */
};
#define _cleanup_command_row_ _cleanup_(command_row_release)
void command_row_release(struct command_row *row);
int command_insert(struct tx *t, const struct command_row *row, const struct actor *a,
		   struct err *e);
int command_set_started(struct tx *t, const char *id, uint32_t pid, const char *cwd,
			const char *user, struct err *e);
/* Writes the end: status to signal, finished, duration_ms, oom. */
int command_set_end(struct tx *t, const struct command_row *row, struct err *e);
int command_remove(struct tx *t, const char *id, struct err *e);
int command_by_id(struct tx *t, const char *sandbox, const char *id, struct command_row *ret,
		  struct err *e);
/* Newest first, those before `before` (seq, 0: all). */
int commands_each(struct tx *t, const char *sandbox, int64_t before,
		  int (*each)(void *arg, struct command_row *row), void *arg, struct err *e);
int commands_running_each(struct tx *t, const char *sandbox,
			  int (*each)(void *arg, struct command_row *row), void *arg,
			  struct err *e);
/* The next sandbox behind `after` that has more than COMMANDS_KEPT, and how many more: 1, or 0 when
 * there is none. */
int commands_overfull(struct tx *t, char ret_sandbox[ID_SIZE], int64_t *ret_more, const char *after,
		      struct err *e);
/* The ids of the oldest that have ended, at most `most`; their count. */
int commands_oldest_ended(struct tx *t, const char *sandbox, int64_t most, char (*ret)[ID_SIZE],
			  struct err *e);

/* audit.c: a row's hash covers its content and the hash of the row before */
int audit_add(struct tx *t, const struct actor *a, const char *action, const char *object,
	      struct err *e);
/* The count of rows, or -EBADMSG naming the first row that does not fit its chain. */
int64_t audit_verify(struct tx *t, struct err *e);

/* events.c */
int event_add(struct tx *t, const char *sandbox, const char *kind, const char *detail,
	      const struct actor *a, struct err *e);
int events_expire(struct tx *t, int64_t before, struct err *e);

/* idempotency.c */
struct idempotency_row {
	unsigned status; /* 0: it began and nobody saw it end */
	char object[ID_SIZE];
	char *answer; /* owned */
	unsigned char hash[32];
};
int idempotency_get(struct tx *t, const char *token, const char *path, const char *key,
		    struct idempotency_row *ret, struct err *e); /* 1 found, 0 not */
int idempotency_begin(struct tx *t, const char *token, const char *path, const char *key,
		      const unsigned char hash[32], const struct actor *a, struct err *e);
int idempotency_bind(struct tx *t, const char *token, const char *path, const char *key,
		     const char *object, struct err *e);
int idempotency_finish(struct tx *t, const char *token, const char *path, const char *key,
		       unsigned status, const char *answer, struct err *e);
int idempotency_forget(struct tx *t, const char *token, const char *path, const char *key,
		       struct err *e);
int idempotency_expire(struct tx *t, int64_t before, struct err *e);
