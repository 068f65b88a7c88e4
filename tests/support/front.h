/* A TLS end of our own in front of a server's Unix socket, as stunnel would be: for what servers may do inside TLS but
 * Redis never does.
 *
 *     struct front *f = front_start(certificate, server_socket(s), false);
 *     ... rediss://127.0.0.1:front_port(f) ...
 *     front_update_keys(f);
 *
 * Include as "support/front.h". Each connection has a thread. Controls act on all connections there are, and return
 * when they have acted. */
#ifndef HF_TEST_FRONT_H
#define HF_TEST_FRONT_H

#include "support/tls.h"

struct front;

/* `old`: TLS 1.2 only; else 1.3 only. */
struct front *front_start(const struct certificate *certificate, const char *server_unix_path,
                          bool old);
void front_free(struct front *front); /* ends all connections. NULL is fine */
int front_port(const struct front *front);

void front_update_keys(struct front *front);  /* asks for the client's new keys too (1.3) */
void front_renegotiate(struct front *front);  /* asks for a new handshake (1.2) */
void front_send_tickets(struct front *front); /* one more session ticket (1.3) */
void front_say(struct front *front, const char *text); /* data that nobody asked for */
void front_say_goodbye(struct front *front); /* close_notify, and the connection stays open */
/* Asks for new keys without end, and reads no answer (1.3); until the other side hangs up or does not read either. */
void front_flood(struct front *front);
void front_cut(struct front *front); /* one more ticket (1.3), and then the end without a goodbye */

size_t front_connections(struct front *front); /* whose handshake was completed, since the start */
/* Which name (SNI) the last of them asked for; "" for none. */
void front_asked_for(struct front *front, char name[256]);

#endif
