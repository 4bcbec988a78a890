#pragma once
/*
 * The keeper protocol: skerryd asks skerry-keeper for privileged work over one SOCK_SEQPACKET
 * connection. A request is a head and the fixed struct of its verb, a reply a head and the fixed
 * struct of its answer; nothing in it is parsed. Both programs are built from one tree: HELLO
 * compares the version and the sizes of all structs, and a mismatch ends the connection.
 *
 * Requests carry a sequence number of the client's choice (not 0) and are answered in any order;
 * the verbs of one sandbox run in the order they came. Messages with seq 0 are events, sent by the
 * keeper at any time after HELLO. A malformed request ends the connection. Peer: the uid that owns
 * the API (SO_PEERCRED), or root.
 *
 * Texts are NUL-terminated within their array; the keeper refuses any other.
 */
#include <stdint.h>

#include "base/str.h"

enum {
	KEEPER_VERSION = 1,
	KEEPER_LAYERS_MAX = 8,
	KEEPER_HOSTNAME_MAX = 63,
	KEEPER_MESSAGE_MAX = 1024, /* bytes of the longest request or reply */
};

enum keeper_verb {
	KEEPER_HELLO = 1,
	KEEPER_POOL,         /* how full the pool is */
	KEEPER_POOL_LIST,    /* what lies in it, as a descriptor of struct keeper_object[] */
	KEEPER_LAYER_CREATE, /* unpack a tar (one descriptor) into a new layer */
	KEEPER_LAYER_DELETE,
	KEEPER_SANDBOX_CREATE,  /* make its disk */
	KEEPER_SANDBOX_START,   /* boot it */
	KEEPER_SANDBOX_STOP,    /* wait for its end until the deadline, then kill; then sync */
	KEEPER_SANDBOX_KILL,    /* kill it now */
	KEEPER_SANDBOX_DESTROY, /* kill it, remove its disk and all else */
	KEEPER_SANDBOX_LIMIT,   /* its limits from now on, while it runs and of its disk */
	KEEPER_SANDBOX_STATS,
	KEEPER_SANDBOX_LIST, /* the live ones, as a descriptor of struct keeper_live[] */
	KEEPER_SLOT_PREPARE, /* make one slot ahead, for as long as this connection lasts */
	KEEPER_SLOT_DROP,    /* give up a prepared slot that was not used */
	KEEPER_VERB_END,

	KEEPER_EVENT_EXIT = 64, /* a sandbox ended: struct keeper_event_exit */
};

struct keeper_head {
	uint32_t verb;   /* enum keeper_verb; a reply repeats it */
	uint32_t size;   /* bytes that follow the head */
	uint64_t seq;    /* 0 in events */
	int32_t status;  /* requests: 0. replies: 0 or a negative errno */
	uint32_t unused; /* 0 */
};

/* The payload of every reply with a status other than 0. */
struct keeper_failure {
	char reason[32]; /* stable word, or "" */
	char text[256];
};

struct keeper_hello {
	uint32_t version; /* KEEPER_VERSION */
	uint32_t sizes;   /* keeper_sizes() */
};

enum keeper_limit {
	KEEPER_LIMIT_CPU = 1u << 0,
	KEEPER_LIMIT_MEMORY = 1u << 1,
	KEEPER_LIMIT_PIDS = 1u << 2,
	KEEPER_LIMIT_DISK = 1u << 3,
	KEEPER_LIMIT_CPUSET = 1u << 4,
};

struct keeper_hello_reply {
	uint32_t version;
	uint32_t slots_max; /* slot numbers are 0 … slots_max - 1 */
	uint32_t id_base;   /* slot n owns the host ids id_base + n * 65536 … + 65535 */
	uint32_t limits;    /* enum keeper_limit: which can be enforced here */
	uint32_t cgroup_v2; /* 1: controllers on v2; 0: v1 or hybrid */
	uint32_t quota;     /* 0 none, 1 classic, 2 simple */
	uint32_t host_cpus;
	uint32_t unused;
	uint64_t host_memory; /* bytes */
	char agent_dir[108];  /* where the agents' sockets lie: <agent_dir>/<id>.sock */
	char gateway4[16];
	char gateway6[46];
	char boot_id[37];
	char notes[512]; /* what is missing on this host, a line each; "" */
};

struct keeper_pool_reply {
	uint64_t total;      /* bytes of the pool's file system */
	uint64_t free;       /* bytes a write can still get */
	uint64_t host_total; /* the file system under a sparse file; 0 for a device */
	uint64_t host_free;
};

enum keeper_kind { KEEPER_KIND_LAYER = 1, KEEPER_KIND_SANDBOX, KEEPER_KIND_PARTIAL };

struct keeper_object {
	uint32_t kind; /* enum keeper_kind */
	char name[ID_SIZE + 5];
};

/* A layer of the image: an id of kind "ly". One descriptor: the tar, read to its end. The archive
 * is unpacked by skerry-init in a throw-away sandbox without network. */
struct keeper_layer_create {
	char layer[ID_SIZE + 1];
	uint32_t timeout_ms;
};

struct keeper_layer_reply {
	uint64_t bytes;   /* of file content written */
	uint64_t entries; /* files, directories and links */
};

struct keeper_layer {
	char layer[ID_SIZE + 1];
};

struct keeper_sandbox_create {
	char id[ID_SIZE + 1];
	char layer[ID_SIZE + 1]; /* whose engine content the disk begins with; "": none */
	uint64_t disk_bytes;     /* quota of both subvolumes; 0 = none */
};

struct keeper_sandbox_start {
	char id[ID_SIZE + 1];
	char hostname[KEEPER_HOSTNAME_MAX + 1];
	char machine_id[33]; /* 32 lower-case hex digits */
	uint32_t slot;
	uint32_t cpu_milli; /* thousandths of a cpu */
	uint32_t pids;
	uint64_t memory_bytes;
	uint64_t disk_bytes;
	uint32_t layers_count;
	char layers[KEEPER_LAYERS_MAX][ID_SIZE + 1]; /* uppermost first */
};

struct keeper_start_reply {
	uint32_t pid;      /* of PID 1, on the host */
	uint32_t enforced; /* enum keeper_limit: limits in force */
	uint32_t warm;     /* 1: the slot had been prepared */
	uint32_t unused;
	char address4[16];
	char address6[46];
};

struct keeper_sandbox_stop {
	char id[ID_SIZE + 1];
	uint32_t timeout_ms; /* then it is killed */
};

struct keeper_sandbox {
	char id[ID_SIZE + 1];
};

/* Nothing is changed where one of them is below what is in use: EBUSY, reason memory_in_use or
 * disk_in_use. */
struct keeper_sandbox_limit {
	char id[ID_SIZE + 1];
	uint32_t cpu_milli;
	uint32_t pids;
	uint64_t memory_bytes;
	uint64_t disk_bytes;
};

struct keeper_limit_reply {
	uint32_t enforced; /* enum keeper_limit; of one that does not run, what the host can */
	uint32_t unused;
};

struct keeper_stats_reply {
	uint64_t cpu_ns;
	uint64_t memory_bytes;
	uint64_t pids;
	uint64_t disk_bytes; /* what the sandbox wrote and still holds */
	uint64_t oom_kills;
};

struct keeper_live {
	char id[ID_SIZE + 1];
	uint32_t pid;
	uint32_t slot;
	uint32_t enforced;
	uint32_t unused;
	char address4[16];
	char address6[46];
};

struct keeper_slot {
	uint32_t slot;
};

/* `exit_known`: the keeper reaped it; otherwise nobody knows how it ended (LOST). */
struct keeper_event_exit {
	char id[ID_SIZE + 1];
	uint32_t slot;
	uint32_t exit_known;
	uint32_t code;   /* exit code of PID 1 */
	uint32_t signal; /* or what ended it */
	uint32_t oom;    /* 1: the kernel killed it for its memory limit */
	uint32_t unused;
};

/* A number that differs where any struct above has another size. */
static inline uint32_t keeper_sizes(void)
{
	const uint32_t sizes[] = {
		sizeof(struct keeper_head),           sizeof(struct keeper_failure),
		sizeof(struct keeper_hello_reply),    sizeof(struct keeper_pool_reply),
		sizeof(struct keeper_object),         sizeof(struct keeper_layer_create),
		sizeof(struct keeper_layer_reply),    sizeof(struct keeper_layer),
		sizeof(struct keeper_sandbox_create), sizeof(struct keeper_sandbox_start),
		sizeof(struct keeper_start_reply),    sizeof(struct keeper_sandbox_stop),
		sizeof(struct keeper_sandbox),        sizeof(struct keeper_stats_reply),
		sizeof(struct keeper_live),           sizeof(struct keeper_slot),
		sizeof(struct keeper_event_exit),     sizeof(struct keeper_sandbox_limit),
		sizeof(struct keeper_limit_reply),
	};
	uint32_t sum = KEEPER_VERB_END;

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		sum = sum * 31 + sizes[i];
	return sum;
}
