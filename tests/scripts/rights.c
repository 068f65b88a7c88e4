/* ACL users for the table tests.
 *
 * Called from their one thread. A user of a name that exists is made anew, so a connection as the
 * former one goes on with the new rights. A server that does not know SPUBLISH cannot grant it, and
 * then nobody misses it. */
#include "rights.h"

#include <stdio.h>
#include <string.h>

#include "support/wait.h"

#define PASSWORD "x"

static void add_words(struct words *call, const char *text) {
    struct words part;
    words_cut(&part, text);
    for (size_t i = 0; i < part.count; i++)
        words_add(call, part.item[i]);
}

static void add_commands(struct words *call, struct stage *stage, const char *commands,
                         const char *without) {
    struct words part;
    bool sharded = server_knows(stage->server, "spublish");
    words_cut(&part, commands);
    for (size_t i = 0; i < part.count; i++) {
        own_text *right = text_of("+%s", part.item[i]);
        bool known = sharded || strcmp(part.item[i], "spublish") != 0;
        if (known && (without == NULL || strcmp(part.item[i], without) != 0))
            words_add(call, right);
    }
}

redisContext *connect_new_user(struct stage *stage, const char *name, const struct grant *grant,
                               const char *without) {
    struct words call;
    words_cut(&call, "ACL SETUSER");
    words_add(&call, name);
    add_words(&call, "reset resetchannels on >" PASSWORD " +evalsha");
    add_words(&call, grant->keys);
    add_words(&call, grant->channels);
    add_commands(&call, stage, grant->commands, without);

    redisContext *admin = connect_as(stage->server, NULL, NULL);
    redisReply *reply = words_send(admin, &call);
    if (reply->type != REDIS_REPLY_STATUS)
        support_die("ACL SETUSER %s: %s", name, reply->str);
    freeReplyObject(reply);
    redisFree(admin);
    return connect_as(stage->server, name, PASSWORD);
}
