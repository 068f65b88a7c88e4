/*
 * State equality of the read/write lock, of the semaphores and of the latch. The scenarios; play.c
 * plays them.
 */
#include "interop.h"
#include "play.h"

#include <string.h>

#define FULL PLAY_WATCHDOG_MS
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Read/write lock ------------------------------------------------------------------------- */

#define RW_SAYS_ALL "redisson_rwlock:{" PLAY_NAME "} 1\n"

static const struct scenario readwrite[] = {
    {"two readers",
     1,
     {
         STEP("isLocked A.read", "false", NO_KEY),
         STEP("lock A.read", "held", FULL),
         STEP("isLocked B.read", "true", FULL),
         STEP("isLocked B.write", "false", FULL),
         STEP("try B.write", "busy", FULL),
         STEP("try B.write wait=50", "busy", FULL),
         STEP("try B.read", "held", FULL),
         STEP("count B.read", "1", FULL),
         STEP("heldBy A.read", "true", FULL),
         STEP("unlock A.read", "ok", FULL),
         STEP("heldBy A.read", "false", FULL),
         STEP("unlock B.read", "ok", NO_KEY),
     }},
    {"a writer",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("isLocked B.write", "true", FULL),
         STEP("isLocked B.read", "false", FULL),
         STEP("try B.read", "busy", FULL),
         STEP("try B.read wait=50", "busy", FULL),
         STEP("try B.write", "busy", FULL),
         STEP("count A.write", "1", FULL),
         STEP("count A.read", "0", FULL),
         STEP("heldBy B.write", "false", FULL),
         STEP("unlock A.write", "ok", NO_KEY),
     }},
    {"nested reads",
     1,
     {
         STEP("lock A.read", "held", FULL),
         STEP("lock A.read", "held", FULL),
         STEP("try A.read", "held", FULL),
         STEP("count A.read", "3", FULL),
         STEP("unlock A.read", "ok", FULL),
         STEP("unlock A.read", "ok", FULL),
         STEP("unlock A.read", "ok", NO_KEY),
     }},
    {"nested writes; Java adds the leases up",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("lock A.write", "held", 2 * FULL, .c_ttl_ms = FULL),
         STEP("count A.write", "2", 2 * FULL, .c_ttl_ms = FULL),
         STEP("unlock A.write", "ok", FULL),
         STEP("unlock A.write", "ok", NO_KEY),
     }},
    {"a writer reads",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("lock A.read", "held", FULL),
         STEP("count A.read", "1", FULL),
         STEP("isLocked B.read", "true", FULL),
         STEP("try B.read", "busy", FULL),
         STEP("unlock A.read", "ok", FULL),
         STEP("unlock A.write", "ok", NO_KEY),
     }},
    {"a writer becomes a reader; ours notifies the waiters",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("lock A.read", "held", FULL),
         STEP("unlock A.write", "ok", FULL, .c_messages = RW_SAYS_ALL),
         STEP("isLocked B.write", "false", FULL),
         STEP("try B.read", "held", FULL),
         STEP("unlock A.read", "ok", FULL),
         STEP("unlock B.read", "ok", NO_KEY),
     }},
    {"leases of two readers",
     1,
     {
         STEP("lock A.read lease=20000", "held", 20000),
         STEP("lock B.read lease=40000", "held", 40000),
         STEP("unlock B.read", "ok", 20000),
         STEP("lock B.read lease=50000", "held", 50000),
         STEP("unlock A.read", "ok", 50000),
         STEP("unlock B.read", "ok", NO_KEY),
     }},
    {"nested leases of a reader; ours has one end for all its holds",
     1,
     {
         STEP("lock A.read lease=20000", "held", 20000),
         STEP("lock A.read lease=40000", "held", 40000, .c_ends = true),
         STEP("unlock A.read", "ok", 20000, .c_ttl_ms = 40000, .c_ends = true),
         STEP("unlock A.read", "ok", NO_KEY),
     }},
    {"a reader cannot write; ours says why",
     1,
     {
         STEP("lock A.read", "held", FULL),
         STEP("try A.write", "busy", FULL, .c_answer = "deadlock"),
         STEP("try A.write wait=50", "busy", FULL, .c_answer = "deadlock"),
         STEP("count A.read", "1", FULL),
         STEP("unlock A.read", "ok", NO_KEY),
     }},
    {"forced, each side for itself",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("force B.read", "false", FULL),
         STEP("force B.write", "true", NO_KEY),
         STEP("force B.write", "false", NO_KEY),
         STEP("lock B.read", "held", FULL),
         STEP("force A.write", "false", FULL),
         STEP("force A.read", "true", NO_KEY),
     }},
    {"not the owner",
     1,
     {
         STEP("lock A.read", "held", FULL),
         STEP("unlock B.read", "not owner", FULL),
         STEP("unlock B.write", "not owner", FULL),
         STEP("unlock A.read", "ok", NO_KEY),
         STEP("lock A.write", "held", FULL),
         STEP("unlock B.read", "not owner", FULL),
         STEP("unlock B.write", "not owner", FULL),
         STEP("unlock A.write", "ok", NO_KEY),
     }},
    {"deleted under a writer",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("!delete", "ok", NO_KEY),
         STEP("unlock A.write", "not owner", NO_KEY, .c_messages = ""), /* Java tells of nothing. */
         STEP("lock A.write", "held", FULL),
         STEP("unlock A.write", "ok", NO_KEY),
     }},
    {"deleted under a reader; ours takes its hold keys away",
     1,
     {
         STEP("lock A.read", "held", FULL),
         STEP("!delete", "ok", NO_KEY),
         STEP("unlock A.read", "not owner", NO_KEY, .c_state = ""),
     }},
    {"handed over from side to side",
     1,
     {
         STEP("lock A.write", "held", FULL),
         STEP("wait B.read", "ok", FULL),
         STEP("unlock A.write", "ok", 0, .unsettled = true),
         STEP("woken B.read", "held", FULL),
         STEP("wait A.write", "ok", FULL),
         STEP("unlock B.read", "ok", 0, .unsettled = true),
         STEP("woken A.write", "held", FULL),
         STEP("wait B.write", "ok", FULL),
         STEP("unlock A.write", "ok", 0, .unsettled = true),
         STEP("woken B.write", "held", FULL),
         STEP("unlock B.write", "ok", NO_KEY),
     }},
};

/* ---- Semaphore ------------------------------------------------------------------------------- */

static const struct scenario semaphore[] = {
    {"set, take, give back",
     1,
     {
         STEP("available A", "0", NO_KEY),
         STEP("try A", "busy", NO_KEY),
         STEP("setPermits A permits=3", "true", NO_TTL),
         STEP("setPermits B permits=5", "false", NO_TTL),
         STEP("available B", "3", NO_TTL),
         STEP("try B permits=2", "held", NO_TTL),
         STEP("try A permits=2", "busy", NO_TTL),
         STEP("try A permits=2 wait=50", "busy", NO_TTL),
         STEP("acquire A", "held", NO_TTL),
         STEP("available B", "0", NO_TTL),
         STEP("release B permits=2", "ok", NO_TTL),
         STEP("release A", "ok", NO_TTL),
     }},
    {"changed by either",
     1,
     {
         STEP("setPermits A permits=3", "true", NO_TTL),
         STEP("add B permits=4", "ok", NO_TTL),
         STEP("drain A", "7", NO_TTL),
         STEP("drain B", "0", NO_TTL),
         STEP("add B permits=-2", "ok", NO_TTL,
              .c_messages = ""), /* Java tells a negative number. */
         STEP("available A", "-2", NO_TTL),
         STEP("releaseIfExists B permits=3", "true", NO_TTL),
         STEP("release A", "ok", NO_TTL),
         STEP("delete B", "true", NO_KEY),
         STEP("delete A", "false", NO_KEY),
         STEP("releaseIfExists B", "false", NO_KEY),
         STEP("release A permits=2", "ok", NO_TTL),
         STEP("available B", "2", NO_TTL),
     }},
    {"that ends; ours keeps its end when it is changed",
     1,
     {
         STEP("setPermits A permits=3 ttl=20000", "true", 20000),
         STEP("try B", "held", 20000),
         STEP("release B", "ok", 20000),
         STEP("add B", "ok", NO_TTL, .c_ttl_ms = 20000),
         STEP("drain A", "4", NO_TTL, .c_ttl_ms = 20000),
     }},
    {"nothing, and less",
     1,
     {
         STEP("setPermits A permits=1", "true", NO_TTL),
         STEP("try B permits=0", "held", NO_TTL),
         STEP("try B permits=-1", "refused", NO_TTL),
         STEP("release B permits=0", "ok", NO_TTL),
         STEP("release B permits=-1", "refused", NO_TTL),
         STEP("available A", "1", NO_TTL),
     }},
    {"handed over",
     1,
     {
         STEP("setPermits A permits=1", "true", NO_TTL),
         STEP("acquire A", "held", NO_TTL),
         STEP("wait B", "ok", NO_TTL),
         STEP("release A", "ok", 0, .unsettled = true),
         STEP("woken B", "held", NO_TTL),
         STEP("wait A permits=3", "ok", NO_TTL),
         STEP("add B permits=3", "ok", 0, .unsettled = true),
         STEP("woken A", "held", NO_TTL),
     }},
    {"waited for before it exists",
     1,
     {
         STEP("wait B permits=2", "ok", NO_KEY),
         STEP("setPermits A permits=2", "true", 0, .unsettled = true),
         STEP("woken B", "held", NO_TTL),
         STEP("wait A", "ok", NO_TTL),
         STEP("releaseIfExists B permits=2", "true", 0, .unsettled = true),
         STEP("woken A", "held", NO_TTL),
     }},
};

/* ---- Permits --------------------------------------------------------------------------------- */

static const struct scenario permits[] = {
    {"taken by either, given back by the other",
     1,
     {
         STEP("available A", "0", NO_KEY),
         STEP("trySetPermits A permits=3", "true", NO_TTL),
         STEP("trySetPermits B permits=9", "false", NO_TTL),
         STEP("acquire A lease=20000", "held", NO_TTL),
         STEP("available B", "2", NO_TTL),
         STEP("permits B", "3", NO_TTL),
         STEP("acquired B", "1", NO_TTL),
         STEP("updateLease B lease=40000 P1", "true", NO_TTL),
         STEP("try B permits=3", "busy", NO_TTL),
         STEP("try B permits=2 wait=5000 lease=20000", "held", NO_TTL),
         STEP("tryRelease B P1", "true", NO_TTL),
         STEP("tryRelease B P1", "false", NO_TTL),
         STEP("tryRelease A P2 P3", "2", NO_TTL),
     }},
    {"without an end",
     1,
     {
         STEP("trySetPermits A permits=2", "true", NO_TTL),
         STEP("acquire A", "held", NO_TTL),
         STEP("try B permits=2 wait=50", "busy", NO_TTL),
         STEP("updateLease B lease=40000 P1", "true", NO_TTL),
         STEP("try B", "held", NO_TTL),
         STEP("tryRelease A P2 P1", "2", NO_TTL),
         STEP("tryRelease A P2 P1", "0", NO_TTL),
         STEP("delete B", "true", NO_KEY),
         STEP("delete A", "false", NO_KEY),
     }},
    {"more and fewer",
     1,
     {
         STEP("setPermits A permits=5", "ok", NO_TTL),
         STEP("setPermits B permits=3", "ok", NO_TTL, .c_messages = ""), /* None came free. */
         STEP("acquire A permits=2 lease=60000", "held", NO_TTL),
         STEP("setPermits B permits=1", "ok", NO_TTL, .c_messages = ""), /* None came free. */
         STEP("available A", "-1", NO_TTL),
         STEP("permits A", "1", NO_TTL),
         STEP("acquired B", "2", NO_TTL),
         STEP("add A permits=3", "ok", NO_TTL),
         STEP("available B", "2", NO_TTL),
         STEP("tryRelease B P1 P2", "2", NO_TTL),
         STEP("permits A", "4", NO_TTL),
     }},
    {"all or none",
     1,
     {
         STEP("trySetPermits A permits=4", "true", NO_TTL),
         STEP("acquire A permits=2 lease=60000", "held", NO_TTL),
         STEP("tryRelease B P1", "true", NO_TTL),
         STEP("tryRelease B P1 P2", "0", NO_TTL),
         STEP("acquired A", "1", NO_TTL),
         STEP("tryRelease A P2", "true", NO_TTL),
     }},
    {"handed over",
     1,
     {
         STEP("trySetPermits A permits=1", "true", NO_TTL),
         STEP("acquire A lease=60000", "held", NO_TTL),
         STEP("wait B", "ok", NO_TTL),
         STEP("tryRelease A P1", "true", 0, .unsettled = true),
         STEP("woken B", "held", NO_TTL),
         STEP("wait A", "ok", NO_TTL),
         STEP("add B permits=1", "ok", 0, .unsettled = true),
         STEP("woken A", "held", NO_TTL),
     }},
    {"run out, and taken by who waits",
     1,
     {
         STEP("trySetPermits A permits=1", "true", NO_TTL),
         /* B sleeps before it has run out, and hears of its end sooner than "woken" gives up. */
         STEP("acquire A lease=3000", "held", NO_TTL),
         STEP("wait B", "ok", 0, .unsettled = true),
         STEP("woken B", "held", NO_TTL, .c_messages = ""), /* Nothing is left for anybody else. */
         STEP("tryRelease A P1", "false", NO_TTL),
         STEP("updateLease A lease=9000 P1", "false", NO_TTL),
         STEP("tryRelease A P2", "true", NO_TTL),
     }},
};

/* ---- Latch ----------------------------------------------------------------------------------- */

#define LATCH_OPENS "redisson_countdownlatch__channel__{" PLAY_NAME "} 0\n"

static const struct scenario latch[] = {
    {"set and counted down by either",
     1,
     {
         STEP("count A", "0", NO_KEY),
         STEP("await A", "true", NO_KEY),
         STEP("setCount A count=2", "true", NO_TTL),
         STEP("setCount B count=5", "false", NO_TTL),
         STEP("count B", "2", NO_TTL),
         STEP("await A wait=50", "false", NO_TTL),
         STEP("countDown A", "ok", NO_TTL),
         STEP("count A", "1", NO_TTL),
         STEP("countDown B", "ok", NO_KEY),
         STEP("await A", "true", NO_KEY),
         STEP("countDown A", "ok", NO_KEY),
         STEP("setCount B count=1", "true", NO_TTL),
     }},
    {"awaited by the other",
     1,
     {
         STEP("setCount A count=2", "true", NO_TTL),
         STEP("wait B", "ok", NO_TTL),
         STEP("countDown A", "ok", NO_TTL),
         STEP("countDown A", "ok", NO_KEY),
         STEP("woken B", "held", NO_KEY),
         STEP("setCount B count=1", "true", NO_TTL),
         STEP("wait A", "ok", NO_TTL),
         STEP("countDown B", "ok", NO_KEY),
         STEP("woken A", "held", NO_KEY),
     }},
    {"deleted; ours opens it",
     1,
     {
         STEP("setCount A count=2", "true", NO_TTL),
         STEP("delete A", "true", NO_KEY, .c_messages = LATCH_OPENS),
         STEP("delete B", "false", NO_KEY),
         STEP("await B", "true", NO_KEY),
     }},
    {"set to nothing; ours refuses",
     1,
     {
         STEP("setCount A count=0", "true", NO_TTL, .c_answer = "refused", .c_ttl_ms = NO_KEY,
              .c_state = "", .c_messages = ""),
     }},
};

/* ---- The rows -------------------------------------------------------------------------------- */

static const struct {
    struct play_kind kind;
    const struct scenario *scenarios;
    size_t count;
} tables[] = {
    {{.name = "readwrite", .bit = 1}, readwrite, COUNT(readwrite)},
    {{.name = "semaphore", .bit = 1}, semaphore, COUNT(semaphore)},
    {{.name = "permits", .bit = 1}, permits, COUNT(permits)},
    {{.name = "latch", .bit = 1}, latch, COUNT(latch)},
};

void other_leaves_the_same_state(void **state) {
    const char *name = *state;
    for (size_t i = 0; i < COUNT(tables); i++) {
        if (strcmp(tables[i].kind.name, name) == 0)
            play(&tables[i].kind, tables[i].scenarios, tables[i].count);
    }
}
