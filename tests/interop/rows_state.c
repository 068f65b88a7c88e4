/*
 * State equality of the locks that are one hash: plain, non-reentrant, spin, fenced and the two
 * fair ones. The scenarios, each with the kinds it is for; play.c plays them.
 */
#include "interop.h"
#include "play.h"

#include <string.h>

enum {
    PLAIN = 1,
    NONREENTRANT = 2,
    SPIN = 4,
    FENCED = 8,
    FAIR = 16,
    FAIR_NONREENTRANT = 32,

    UNFAIR = PLAIN | NONREENTRANT | SPIN | FENCED,
    BOTH_FAIR = FAIR | FAIR_NONREENTRANT,
    ALL = UNFAIR | BOTH_FAIR,
    NESTING = PLAIN | SPIN | FENCED | FAIR,
    NOT_NESTING = NONREENTRANT | FAIR_NONREENTRANT,
};

#define FULL PLAY_WATCHDOG_MS
#define HELD_BY_A PLAY_NAME " hash A 1\n"

static const struct scenario scenarios[] = {
    {"one hold",
     ALL,
     {
         STEP("isLocked A", "false", NO_KEY),
         STEP("lock A", "held", FULL),
         STEP("isLocked B", "true", FULL),
         STEP("heldBy A", "true", FULL),
         STEP("heldBy B", "false", FULL),
         STEP("try B", "busy", FULL),
         STEP("try B wait=50", "busy", FULL),
         STEP("unlock A", "ok", NO_KEY),
         STEP("try B", "held", FULL),
         STEP("unlock B", "ok", NO_KEY),
     }},
    {"re-entry",
     NESTING,
     {
         STEP("lock A", "held", FULL),
         STEP("lock A", "held", FULL),
         STEP("try A", "held", FULL),
         STEP("count A", "3", FULL),
         STEP("count B", "0", FULL),
         STEP("unlock A", "ok", FULL),
         STEP("unlock A", "ok", FULL),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"no re-entry",
     NOT_NESTING,
     {
         STEP("lock A", "held", FULL),
         STEP("lock A", "deadlock", FULL),
         STEP("try A", "deadlock", FULL),
         STEP("try A wait=50 lease=60000", "deadlock", FULL),
         STEP("count A", "1", FULL),
         STEP("try B", "busy", FULL),
         STEP("unlock A", "ok", NO_KEY),
         STEP("lock A", "held", FULL),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"fixed leases",
     ALL,
     {
         STEP("lock A lease=20000", "held", 20000),
         STEP("try B wait=50 lease=40000", "busy", 20000),
         STEP("unlock A", "ok", NO_KEY),
         STEP("try B wait=5000 lease=40000", "held", 40000),
         STEP("unlock B", "ok", NO_KEY),
     }},
    {"fixed leases, each longer",
     NESTING,
     {
         STEP("lock A lease=20000", "held", 20000),
         STEP("try A wait=5000 lease=40000", "held", 40000),
         STEP("unlock A", "ok", 40000),
         STEP("try B wait=50 lease=20000", "busy", 40000),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"a shorter nested lease; ours never shortens a hold",
     NESTING,
     {
         STEP("lock A lease=40000", "held", 40000),
         STEP("lock A lease=20000", "held", 20000, .c_ttl_ms = 40000),
         STEP("unlock A", "ok", 20000, .c_ttl_ms = 40000),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"a lease nested in a watchdog hold; ours never shortens a hold",
     NESTING,
     {
         STEP("lock A", "held", FULL),
         STEP("lock A lease=15000", "held", 15000, .c_ttl_ms = FULL),
         STEP("lock A lease=60000", "held", 60000),
         STEP("count A", "3", 60000),
     }},
    {"a watchdog hold nested in a lease; Java's handle keeps to the lease it was given",
     PLAIN | FAIR,
     {
         STEP("lock A lease=15000", "held", 15000),
         STEP("lock A", "held", 15000, .c_ttl_ms = FULL),
         STEP("unlock A", "ok", 15000, .c_ttl_ms = FULL),
         STEP("unlock A", "ok", NO_KEY),
         STEP("lock A", "held", FULL),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"forced by another",
     ALL,
     {
         STEP("lock A", "held", FULL),
         STEP("force B", "true", NO_KEY),
         STEP("force B", "false", NO_KEY),
         STEP("lock B", "held", FULL),
         STEP("unlock A", "not owner", FULL),
         STEP("unlock B", "ok", NO_KEY),
     }},
    {"not the owner",
     ALL,
     {
         STEP("lock A", "held", FULL),
         STEP("unlock B", "not owner", FULL),
         STEP("count A", "1", FULL),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"nobody's",
     UNFAIR,
     {
         STEP("unlock B", "not owner", NO_KEY),
         STEP("lock A", "held", FULL),
         STEP("unlock A", "ok", NO_KEY),
         STEP("unlock A", "not owner", NO_KEY),
     }},
    {"nobody's; Redisson's fair lock lets anybody unlock it",
     BOTH_FAIR,
     {
         STEP("unlock B", "ok", NO_KEY, .c_answer = "not owner"),
         STEP("lock A", "held", FULL),
         STEP("!delete", "ok", NO_KEY),
         STEP("unlock A", "ok", NO_KEY, .c_answer = "not owner"),
     }},
    {"deleted under its holder",
     UNFAIR,
     {
         STEP("lock A", "held", FULL),
         STEP("!delete", "ok", NO_KEY),
         STEP("unlock A", "not owner", NO_KEY),
         STEP("lock A", "held", FULL),
         STEP("unlock A", "ok", NO_KEY),
     }},
    {"re-entry onto a lock that is gone; ours is a loss, not a new hold",
     PLAIN | SPIN | FAIR,
     {
         STEP("lock A", "held", FULL),
         STEP("!delete", "ok", NO_KEY),
         STEP("lock A", "held", FULL, .c_answer = "lost", .c_ttl_ms = NO_KEY, .c_state = ""),
         STEP("lock A", "held", FULL, .c_state = HELD_BY_A),
     }},
    {"expired, then another's",
     PLAIN | FAIR,
     {
         STEP("lock A lease=2000", "held", 0, .unsettled = true), /* or it is over by then */
         STEP("!expires", "ok", NO_KEY),
         STEP("lock B", "held", FULL),
         STEP("unlock A", "not owner", FULL),
         STEP("unlock B", "ok", NO_KEY),
     }},
    {"handed over to who waits",
     BOTH_FAIR,
     {
         STEP("lock A", "held", FULL),
         STEP("wait B", "ok", FULL),
         STEP("unlock A", "ok", 0, .unsettled = true),
         STEP("woken B", "held", 0, .unsettled = true),
         STEP("!renewed", "ok", FULL),
         STEP("try A", "busy", FULL),
         STEP("wait A", "ok", FULL),
         STEP("force B", "true", 0, .unsettled = true),
         STEP("woken A", "held", 0, .unsettled = true),
         STEP("!renewed", "ok", FULL),
         STEP("unlock B", "not owner", FULL),
         STEP("unlock A", "ok", NO_KEY),
     }},
};

static const struct play_kind kinds[] = {
    {.name = "plain", .bit = PLAIN},
    {.name = "nonreentrant", .bit = NONREENTRANT},
    {"spin", SPIN, .c_message_when_free = "redisson_lock__channel:{" PLAY_NAME "} 0\n"},
    {"fenced", FENCED, .seed_key = "redisson_lock_token:{" PLAY_NAME "}",
     .seed_value = "8000000000000100"},
    {"fair", FAIR, .fair = true},
    {"nonreentrantfair", FAIR_NONREENTRANT, .fair = true},
};

void lock_leaves_the_same_state(void **state) {
    const char *name = *state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            play(&kinds[i], scenarios, sizeof scenarios / sizeof *scenarios);
    }
}
