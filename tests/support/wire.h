/* A wire between clients and a port, that knows nothing of what it carries: for TLS, where the
 * proxy cannot look inside.
 *
 *     struct wire *w = wire_start(server_port(s));
 *     ... connect to 127.0.0.1, wire_port(w) ...
 *     wire_cut_after(w, 700);      // connections end in the middle of something
 *
 * Include as "support/wire.h". It runs in one thread of the test program. Controls take effect
 * before they return; any thread may call them, but no forked child. */
#ifndef HF_TEST_WIRE_H
#define HF_TEST_WIRE_H

#include <stdbool.h>
#include <stddef.h>

struct wire;

struct wire *wire_start(int port);
void wire_free(struct wire *wire); /* cuts everything. NULL is fine */
int wire_port(const struct wire *wire);

/* New connections end when so many bytes of the server have been delivered. 0: they do not. */
void wire_cut_after(struct wire *wire, size_t bytes);
/* At most so many bytes are passed on at a time, either way. 0: as many as there are. */
void wire_trickle(struct wire *wire, size_t bytes);
/* New connections are accepted and carry nothing. Ends with (false), also for those. */
void wire_stall(struct wire *wire, bool stall);
/* What the server sends next, on any connection, arrives with one bit changed. */
void wire_flip_next(struct wire *wire);
void wire_cut_all(struct wire *wire);

size_t wire_connections(struct wire *wire); /* accepted since the start */
size_t wire_delivered(struct wire *wire);   /* bytes to clients since the start */

#endif
