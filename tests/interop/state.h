/* What is on the server, as text that can be compared: who wrote it is replaced, when it ends is
 * apart. */
#ifndef HF_TEST_INTEROP_STATE_H
#define HF_TEST_INTEROP_STATE_H

#include "support/server.h"

#include <stddef.h>

/* An owner's uuid and what "uuid:number" is written as, e.g. "A". */
struct alias {
    char uuid[64];
    const char *name;
};

/* All keys in order, each as "key type content\n", with owners replaced. The caller frees it. */
char *state_dump(struct server *server, const struct alias *aliases, size_t count);

/* Every message that anybody publishes, in order. */
struct messages;
struct messages *messages_start(struct server *server);

/* All since the last call, each as "channel payload\n"; nothing that was published before this
 * call is missing. The caller frees it. */
char *messages_take(struct messages *messages);

void messages_free(struct messages *messages);

#endif
