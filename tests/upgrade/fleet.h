/* A fleet in the middle of an upgrade: processes of an older version and of this build on one server.
 *
 *     struct member *old = member_new(OLD);
 *     struct member *young = member_new(NEW);
 *     say(old, "ok", "acquire plain nightly");
 *     int wait = later(young, "acquire plain nightly");
 *     until_subscribed("redisson_lock__channel:{nightly}", 1);
 *     say(old, "ok", "release plain nightly");
 *     answered(young, wait, "ok");
 *
 * Members live as long as the case, or until they are killed. The test has one thread. */
#ifndef HF_TEST_UPGRADE_FLEET_H
#define HF_TEST_UPGRADE_FLEET_H

#include "support/case.h"
#include "support/remote.h"
#include "support/server.h"
#include "support/wait.h"

/* A waiter that wakes within this was notified: it polls only half as often. */
#define BY_MESSAGE_MS ((int64_t)5000)

/* The leases of killed members end within this. */
#define BY_LEASE_MS (ENDURING_MS + BY_MESSAGE_MS)

enum version { OLD, NEW }; /* one of fleet_old_versions; this build */

struct member {
    struct remote *remote;
    enum version version;
    bool dead;
};

/* Another older version is one more row, and a branch in actor/actor.c if the API has changed since. */
struct old_version {
    const char *name, *commit;
};
extern const struct old_version fleet_old_versions[];
extern const size_t fleet_old_versions_len;

extern struct server *fleet_server;
extern const char *fleet_url; /* where members go, if not there */

/* Builds that version and makes it OLD. False where it cannot be built: its history is not there. */
bool fleet_build(const struct old_version *version);

/* Set-up and end of a case: an empty server; all members gone. */
int fleet_begin(void **state);
int fleet_end(void **state);

/* `books` and `number`, if given, are those of a storm. */
struct member *member_new(enum version version);
struct member *member_in_storm(enum version version, const char *books, int number);
void member_kill(struct member *member);

/* Sends a command, and asserts how its answer begins. Returns the answer. */
#define say(member, expected, ...) say_at(member, expected, __FILE__, __LINE__, __VA_ARGS__)
const char *say_at(struct member *member, const char *expected, const char *file, int line,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Sends a command that is answered later. Returns its id. */
#define later(member, ...) remote_send((member)->remote, __VA_ARGS__)

/* Asserts that the answer to such a command comes within a bound, and how it begins; or that it has
 * not come yet. */
#define answered(member, id, expected)                                                             \
    answered_at(member, id, expected, BY_MESSAGE_MS, __FILE__, __LINE__)
#define answered_after_lease(member, id, expected)                                                 \
    answered_at(member, id, expected, BY_LEASE_MS, __FILE__, __LINE__)
const char *answered_at(struct member *member, int id, const char *expected, int64_t limit_ms,
                        const char *file, int line);
#define still_waits(member, id) assert_false(remote_answered((member)->remote, id))

/* Wait until waiters sleep: for subscribers of a channel, for a length of a list. */
void until_subscribed(const char *channel, int subscribers);
void until_length(const char *list, int length);

/* Asserts that no key is left on the server, except tokens, which stay on purpose, and side keys
 * that 0.1 does not know ("{name}:holdfast_..."), if they have a TTL. */
void assert_nothing_left(int64_t limit_ms);

#endif
