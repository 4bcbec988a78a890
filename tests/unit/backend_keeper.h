#pragma once
/*
 * A fake keeper for tests: a SOCK_SEQPACKET server on one thread. It answers HELLO itself and hands
 * every other request to the test's function, which answers when it likes.
 */
#include <stdbool.h>
#include <stdint.h>

#include "wire/keeper.h"

struct fake_request {
	struct keeper_head head;
	unsigned char body[KEEPER_MESSAGE_MAX];
	int fd; /* that came along; -1 */
};

typedef void (*fake_handler)(const struct fake_request *q);

extern const char fake_keeper_path[];

void fake_keeper_start(fake_handler handler);
void fake_keeper_stop(void); /* and the socket's file is gone */
/* Ends the connection; the next is accepted. Waits until the server has noticed. */
void fake_keeper_cut(void);
unsigned fake_keeper_connections(void);

/* What HELLO answers from now on. */
extern struct keeper_hello_reply fake_keeper_hello;

/* Callable from any thread. */
void fake_keeper_raw(const void *data, size_t len, int fd);
void fake_keeper_answer(const struct keeper_head *to, int status, const void *data, size_t len,
			int fd);
void fake_keeper_fail(const struct keeper_head *to, int status, const char *reason,
		      const char *text);
void fake_keeper_exit(const char *id, uint32_t slot);
/* A descriptor of a file that holds this. */
int fake_keeper_file(const void *data, size_t len);

/* Waits until `check` is true, or gives up loudly after a minute. */
void wait_for(bool (*check)(void), const char *what);
