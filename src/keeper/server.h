#pragma once
/*
 * The keeper's socket: clients, their messages, replies and events.
 *
 * Why this is safe for an untrusted peer: only root and the one uid of skerryd are heard; a message
 * is a head and exactly the struct of its verb, every text in it must end within its array and have
 * the form its field has, and the first message that is not so ends the connection. What a client
 * does not read is not kept: a full socket ends the connection too.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#include "conf.h"

int server_init(const struct conf *c, struct err *e);
/* Sends to every client that said HELLO. */
void server_event(uint32_t verb, const void *payload, size_t len);
