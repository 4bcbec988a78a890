#pragma once
/*
 * Connections of the agent protocol (wire/agent.h): one operation each.
 *
 * The peer is the host. A frame no honest peer sends ends that connection and nothing else. After
 * its answer a connection is closed for writing and lingers until the peer closes it, so that an
 * answer is never lost to bytes the peer had still under way.
 */
#include <stdbool.h>

/* Listens on `fd`. 0 or a negative errno. */
int conn_listen(int fd);

/* Something a peer was promised has not been written yet. */
bool conn_any_pending(void);
