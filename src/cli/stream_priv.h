#pragma once
/* The state of a streamed command, for the stream*.c files only. */
#include <stdint.h>

#include "outlet.h"
#include "socket.h"
#include "stream.h"

enum { STREAM_OUT_AHEAD = 256 * 1024 }; /* bytes that wait for our readers */

enum phase {
	PHASE_ASKED,   /* connected; `started` has not come on this connection */
	PHASE_RUNNING, /* it has */
	PHASE_LOST,    /* no connection; the next is tried at `retry_ns` */
	PHASE_ENDED,   /* `exit` has come, or none will: what is pending is written */
	PHASE_OVER,    /* `result` and the error are final */
};

struct stream_input {
	bool open;     /* there may be more to read */
	bool terminal; /* somebody types it, and sees what became of it */
	bool eof_sent;
	uint64_t sent; /* bytes, on all connections */
	uint64_t sent_ns;
	struct detach detach;
	bool pinged, settled; /* since `sent_ns`: an answer to all of it is asked for, has come */
	unsigned pongs;
};

struct stream {
	struct cli *c;
	const struct stream_spec *spec;
	struct err *e;
	enum phase phase;
	int result;
	struct socket *socket; /* NULL while LOST */
	bool plain;            /* this connection's binary frames are bytes without a channel */
	struct outlet out;
	struct stream_input in;
	char id[64];    /* of the command, "" until it has begun */
	uint64_t at[2]; /* bytes of its output streams that came, or are known to be gone */
	json_t *exit;   /* its record at the end */
	double timeout;
	struct err fault; /* of the API, after the start: final when a close follows; or code 0 */
	char fault_reason[64];
	uint64_t fault_ns;

	int signal; /* the last that ended nothing yet; 0: none */
	uint64_t signal_ns;
	int terminal_fd; /* signals of our terminal, or -1 */
	bool size_due;   /* it changed while there was nobody to tell */

	uint64_t lost_ns, retry_ns, attached_ns;
	unsigned retry_ms;
	bool told_lost;
};

/* stream.c */
/* The error is told in `s->e`; what came before it is written all the same. Returns r. */
int stream_fail(struct stream *s, int r);
void stream_fault(struct stream *s); /* it is final */
/* Where to find it again, as a hint to the error. */
void stream_tell_where(struct stream *s);
void stream_output_failed(struct stream *s, int r);
void stream_terminate(struct stream *s, const char *signal);

/* stream_frames.c */
extern const struct socket_handler stream_frames;
void stream_tell_fault(struct stream *s); /* one that turned out not to be final */

/* stream_connect.c */
int stream_open(struct stream *s); /* the first connection */
void stream_lost(struct stream *s);
void stream_retry(struct stream *s); /* when its time has come */

/* stream_input.c */
void stream_input_begin(struct stream *s);
int stream_input_fd(const struct stream *s); /* to poll for POLLIN, or -1 */
void stream_input_turn(struct stream *s);
void stream_input_settle(struct stream *s);
uint64_t stream_input_wake_ns(const struct stream *s);
void stream_input_again(struct stream *s); /* attached anew */
/* The fault is that the rest of our input goes nowhere. */
bool stream_input_failed(const struct stream *s);
bool stream_input_at_risk(const struct stream *s);

/* stream_signals.c */
void stream_signal(struct stream *s, int number);
void stream_signal_terminal(struct stream *s, int number);
void stream_signal_early(struct stream *s); /* what came before the command began */
void stream_leave_running(struct stream *s, int number);
uint64_t stream_signal_wake_ns(const struct stream *s);
void stream_send_size(struct stream *s);
