/* A second protocol, and a server for it: what src/net knows of messages is only what a protocol
 * tells it.
 *
 * Include as "net/echo.h". A frame is four bytes of length, the most significant first, then a kind
 * and a text. The greeting takes two rounds: "hello" is answered with a number, which the client has
 * to say back, then it is "welcome". 'e' asks for its text, 'p' is a ping. The server is a thread of
 * the test. */
#ifndef HF_TEST_NET_ECHO_H
#define HF_TEST_NET_ECHO_H

#include "net/protocol.h"

#include <stdatomic.h>
#include <stddef.h>

extern const struct hfi_protocol echo_protocol;

struct echo_message {
    char kind; /* 'e' an answer, 'p' that to a ping, '!' nobody asked for it */
    size_t len;
    char text[];
};

/* Writes a frame of this kind, and returns its length. */
size_t echo_frame(char kind, const char *text, char *buffer, size_t size);

struct echo_server {
    atomic_int greetings, pings; /* so many so far */
    atomic_int refuse;  /* greetings: 1 with words, 2 with words and an end, 3 with nonsense */
    atomic_bool mute;   /* it reads, and answers nothing */
    atomic_bool pushes; /* in front of and behind each answer it says '!' and the text */
};

struct echo_server *echo_start(void);
const char *echo_socket(const struct echo_server *server);
void echo_cut(struct echo_server *server); /* ends all connections */
void echo_free(struct echo_server *server);

#endif
