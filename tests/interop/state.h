/* What is on the server, as text that can be compared: who wrote it is replaced, when it ends is
 * apart. */
#ifndef HF_TEST_INTEROP_STATE_H
#define HF_TEST_INTEROP_STATE_H

#include "support/server.h"

#include <stddef.h>

/* What is random, and the word it is written as: a client's uuid, with the ":number" of its owners,
 * e.g. "A"; or the hexadecimal digits of a permit, e.g. "P1". */
struct alias {
    char text[64];
    char word[8];
};

/* All keys in order, each as "key type content\n", with aliases replaced. Members of sets are in
 * the order of their words. The caller frees it. */
char *state_dump(struct server *server, const struct alias *aliases, size_t count);

/* When everything ends, as "key ms\n" in the same order, and "key member ms\n" for the scores of
 * sorted sets that are times; "never" for what has no end. The caller frees it. */
char *state_ends(struct server *server, const struct alias *aliases, size_t count);

/* Every message that anybody publishes, in order. */
struct messages;
struct messages *messages_start(struct server *server);

/* All since the last call, each as "channel payload\n"; nothing that was published before this
 * call is missing. The caller frees it. */
char *messages_take(struct messages *messages, const struct alias *aliases, size_t count);

void messages_free(struct messages *messages);

#endif
