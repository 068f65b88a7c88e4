/* A fleet in the middle of an upgrade: processes of 0.1 and of this build on one server.
 *
 *     struct member *old = member_new('O');
 *     struct member *young = member_new('N');
 *     say(old, "ok", "acquire plain nightly");
 *     int wait = later(young, "acquire plain nightly");
 *     until_listening("redisson_lock__channel:{nightly}", 1);
 *     say(old, "ok", "release plain nightly");
 *     told(young, wait, "ok");
 *
 * Members live as long as the row, or until they are killed. All is on the test's one thread. */
#ifndef HF_TEST_UPGRADE_FLEET_H
#define HF_TEST_UPGRADE_FLEET_H

#include "support/remote.h"
#include "support/server.h"
#include "support/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Whoever wakes within this was told: a waiter's own poll is twice that. */
#define BY_MESSAGE_MS ((int64_t)5000)

/* The leases of the killed end within this. */
#define BY_LEASE_MS (ENDURING_MS + BY_MESSAGE_MS)

struct member {
    struct remote *remote;
    char version; /* 'O': 0.1; 'N': this build */
    bool dead;
};

extern struct server *fleet_server;

/* Ends the program with 77 where 0.1 cannot be built. */
void fleet_build(void);

/* Set-up and end of a row: an empty server; all members gone. */
int fleet_begin(void **state);
int fleet_end(void **state);

/* `books` and `seat`, if given, are those of a storm. */
struct member *member_new(char version);
struct member *member_in_storm(char version, const char *books, int seat);
void member_kill(struct member *member);

/* Has it do something, and asserts how the answer begins. Returns the answer. */
#define say(member, expected, ...) say_at(member, expected, __FILE__, __LINE__, __VA_ARGS__)
const char *say_at(struct member *member, const char *expected, const char *file, int line,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Has it begin something that is answered later. */
#define later(member, ...) remote_send((member)->remote, __VA_ARGS__)

/* Asserts that the answer of what was begun comes within a bound, and how it begins; or that it has
 * not come yet. */
#define told(member, id, expected) told_at(member, id, expected, BY_MESSAGE_MS, __FILE__, __LINE__)
#define told_after_lease(member, id, expected)                                                     \
    told_at(member, id, expected, BY_LEASE_MS, __FILE__, __LINE__)
const char *told_at(struct member *member, int id, const char *expected, int64_t limit_ms,
                    const char *file, int line);
#define still_waits(member, id) assert_false(remote_answered((member)->remote, id))

/* Wait for somebody to fall asleep: for listeners of a channel, for a length of a list. */
void until_listening(const char *channel, int listeners);
void until_length(const char *list, int length);

/* Asserts that nothing is left on the server, but for tokens, which stay on purpose, and for side keys
 * that 0.1 does not know ("{name}:holdfast_..."), if they expire by themselves. */
void assert_nothing_left(int64_t limit_ms);

#endif
