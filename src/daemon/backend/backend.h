#pragma once
/*
 * What runs sandboxes. Everything that is bound to one host (btrfs, namespaces, veth, pids) stays
 * behind this table; nothing above it knows of them. Callable from any thread; each call blocks
 * until it is answered. Calls for one sandbox are serialised by its lifecycle lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { BACKEND_LAYERS_MAX = 8 };

struct backend_limits {
	uint32_t cpu_milli; /* thousandths of a cpu */
	uint32_t pids;
	uint64_t memory_bytes;
	uint64_t disk_bytes;
};

/* A machine to boot. Strings are the caller's. */
struct backend_spec {
	const char *id;
	const char *hostname;   /* a DNS label, at most 63 */
	const char *machine_id; /* 32 hex digits */
	struct backend_limits limits;
	unsigned layers_count;
	const char *layers[BACKEND_LAYERS_MAX]; /* uppermost first */
};

struct backend_machine {
	uint32_t pid;  /* of its PID 1 on the host */
	bool enforced; /* every limit of the spec is in force */
	bool warm;     /* a prepared slot was used */
	char address4[16];
	char address6[46];
};

struct backend_stats {
	uint64_t cpu_ns, memory_bytes, pids, disk_bytes;
};

struct backend_pool {
	uint64_t total, free;           /* bytes */
	uint64_t host_total, host_free; /* of the file system below a sparse file, else 0 */
};

struct backend_info {
	uint32_t host_cpus;
	uint64_t host_memory;
	bool limits_enforced;
	char boot_id[37];
	char notes[512]; /* what this host lacks, a line each */
};

struct backend_exit {
	char id[ID_SIZE + 1];
	bool known; /* false: nobody saw how it ended */
	uint32_t code, signal;
	bool oom;
};

enum backend_object_kind { BACKEND_LAYER = 1, BACKEND_SANDBOX, BACKEND_PARTIAL };

struct backend {
	const char *name;

	int (*info)(struct backend_info *ret, struct err *e);
	int (*pool)(struct backend_pool *ret, struct err *e);

	/* A disk; what `layer` (or "") has for container engines lies on it from the beginning. */
	int (*create)(const char *id, const char *layer, uint64_t disk_bytes, struct err *e);
	/* Returns once the machine's PID 1 runs and takes connections. */
	int (*start)(const struct backend_spec *spec, struct backend_machine *ret, struct err *e);
	/* Waits for the machine's own end until the deadline, then kills; its disk is synced. */
	int (*stop)(const char *id, uint32_t timeout_ms, struct err *e);
	int (*kill)(const char *id, struct err *e);
	/* Processes, mounts, network and disk are gone when it returns. Unknown ids are no error. */
	int (*destroy)(const char *id, struct err *e);
	/* Other limits from now on; `ret_enforced`: all are in force. -EBUSY (reason memory_in_use or
	 * disk_in_use) where more is in use: then nothing is changed. */
	int (*limit)(const char *id, const struct backend_limits *l, bool *ret_enforced,
		     struct err *e);
	int (*stats)(const char *id, struct backend_stats *ret, struct err *e);
	/* A connection to the machine's agent; the descriptor is the caller's. */
	int (*dial)(const char *id, struct err *e);

	/* Reads a tar from `fd` to its end into a new layer. */
	int (*layer_create)(const char *layer, int fd, uint32_t timeout_ms, uint64_t *ret_bytes,
			    struct err *e);
	int (*layer_delete)(const char *layer, struct err *e);

	/* For reconciliation: calls `each` for every live machine, for every object on the disk. */
	int (*live)(void (*each)(void *arg, const char *id, const struct backend_machine *m),
		    void *arg, struct err *e);
	int (*objects)(void (*each)(void *arg, enum backend_object_kind kind, const char *name),
		       void *arg, struct err *e);

	/* Called from the backend's thread when a machine ends, however it ended. Set once. */
	void (*on_exit)(void (*fn)(const struct backend_exit *exit));
	/* Called (from the backend's thread) after the backend was lost and is there again. */
	void (*on_reconnect)(void (*fn)(void));
};

/* Slot numbers are recorded in the store: the host backend asks for one before a slot is made. */
struct slot_store {
	int (*take)(uint32_t slots_max, uint32_t *ret_slot, struct err *e);
	int (*release)(uint32_t slot, struct err *e);
	/* Forgets every number but those in `used`; at start, after reconciliation with the keeper. */
	int (*retain)(const uint32_t *used, unsigned count, struct err *e);
};

/* One host, through skerry-keeper at `socket_path`; keeps `slots` prepared ahead. Connects and
 * says HELLO before it returns. Static storage; call once. */
const struct backend *backend_host(const char *socket_path, unsigned slots,
				   const struct slot_store *store, struct err *e);
