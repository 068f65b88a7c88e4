/* Names, and the comparison of the real lock with the clients' beliefs.
 *
 * Part of the plain lock's model (plain_model.c), called by its other parts on their one thread.
 * The rules that a schedule may break are all in compare(), but for those that only a reply shows
 * (plain_owner.c):
 * - one owner in the lock, and one client that believes in its hold;
 * - the server's count is what the believer knows, give or take the operation it waits for;
 * - nobody is in the lock without knowing of it. Whose deadline has passed may be there still, but
 *   no longer than its last request can have made it. */
#include "plain_world.h"

#include "support/wait.h"

#include <assert.h>
#include <string.h>

/* ---- Names ---------------------------------------------------------------------------------- */

const char *name_of(int client) {
    static const char *const names[CLIENTS] = {"c0:1", "c1:1", "c2:1", "j0:1", "j1:1"};
    assert(client >= 0 && client < CLIENTS);
    return names[client];
}

const char *script_name(enum script script) {
    static const char *const names[SCRIPTS] = {"plain_acquire", "plain_release", "plain_break",
                                               "renew"};
    return names[script];
}

/* ---- What is true, and what is believed ----------------------------------------------------- */

size_t look(struct model *m, struct field fields[CLIENTS]) {
    own_reply *reply = ask(&m->play, "HGETALL " LOCK_NAME);
    size_t count = reply->elements / 2;
    if (count > CLIENTS)
        support_die("more fields than clients");
    for (size_t i = 0; i < count; i++) {
        int who = 0;
        while (strcmp(name_of(who), reply->element[2 * i]->str) != 0)
            who++;
        fields[i].owner = who;
        fields[i].count = atoi(reply->element[2 * i + 1]->str);
    }
    return count;
}

/* The counts that an owner's field may have, while it believes in its hold. */
static bool believes(const struct model *m, const struct owner *o, int *ret_low, int *ret_high) {
    const struct operation *op = &o->op;
    if (o->count == 0 || o->broken || m->play.now >= o->deadline)
        return false;
    *ret_low = *ret_high = o->count;
    if (op->pending && op->script == ACQUIRE)
        *ret_high = op->count + 1;
    if (op->pending && op->script == RELEASE) {
        *ret_low = op->count - 1;
        *ret_high = larger(o->count, op->count);
    }
    return *ret_low > 0; /* who is about to leave for good has left */
}

void compare(struct model *m) {
    struct field fields[CLIENTS];
    size_t count = look(m, fields);
    int there[CLIENTS] = {0};
    for (size_t i = 0; i < count; i++)
        there[fields[i].owner] = fields[i].count;

    if (count > 1)
        violated(&m->play, "two owners in the lock at once");
    int believers = 0;
    for (int i = 0; i < OWNERS; i++) {
        const struct owner *o = &m->owners[i];
        int low, high;
        if (believes(m, o, &low, &high)) {
            believers++;
            if (there[i] < low || there[i] > high)
                violated(&m->play, "%s believes in %d to %d, the server has %d", name_of(i), low,
                         high, there[i]);
        }
        if (there[i] != 0 && o->count == 0 && !o->op.pending && m->play.now >= o->residue_until)
            violated(&m->play, "held for %s, which does not know of it", name_of(i));
    }
    for (int i = 0; i < JAVAS; i++) {
        const struct java *j = &m->javas[i];
        bool belief = j->count > 0 && !j->broken && m->play.now < j->deadline;
        believers += belief;
        if (belief && there[OWNERS + i] != j->count)
            violated(&m->play, "%s believes in %d, the server has %d", name_of(OWNERS + i),
                     j->count, there[OWNERS + i]);
        if (j->count == 0 && there[OWNERS + i] != 0)
            violated(&m->play, "held for %s, which does not know of it", name_of(OWNERS + i));
    }
    if (believers > 1)
        violated(&m->play, "%d believers at once", believers);
}
