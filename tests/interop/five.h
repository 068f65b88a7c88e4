/* Five independent servers for locks of a quorum, and a Java client on each.
 *
 *     five_begin();                                    // they are up and empty
 *     java_open(five.java, "redlock", "nightly", "Q"); // five.java is "q0,q1,q2,q3,q4"
 *     hf_open(five.urls, ...);
 *
 * They are started by the first row that wants them, and serve all that come after it. A row that does
 * something to a server has one of its own in that place: Redisson takes seconds to come back to a
 * server that was away, and the next row must not wait for that. */
#ifndef HF_TEST_INTEROP_FIVE_H
#define HF_TEST_INTEROP_FIVE_H

#include "interop.h"
#include "support/proxy.h"

#define FIVE_MAJORITY 3

struct five {
    struct server *servers[FIVE];
    char names[FIVE][24]; /* of Java's clients */
    char urls[2048];      /* for C */
    char java[256];       /* Java's clients, as the command `open` wants them */
};
extern struct five five;

void five_begin(void);
void five_stop(void); /* ends them; nothing if there are none */

/* Another server in place `i`, for this row only. Its Java client sends nothing twice, and waits for an
 * answer for so long. */
void five_replace(int i, int64_t java_timeout_ms);

/* For this row, Java reaches server `i` through a proxy, and waits for any answer for a minute. */
void five_reach_through(int i, const struct proxy *proxy);

/* ---- Both sides on one name ------------------------------------------------------------------ */

#define FIVE_NAME "guarded"

/* So long does Java wait: a RedLock waits at each of its servers for a fifth of it, so that only a
 * message wakes it within BY_MESSAGE_MS. */
#define FIVE_WAIT_MS 100000

/* Java's handle is called "Q", and is this thread's. */
struct five_pair {
    hf_client *client; /* without a restart guard */
    hf_lock *lock;
    char owner[128]; /* C's own thread, on every server */
    int thread;
};

struct five_pair five_pair(int64_t watchdog_ms); /* C's; 0: the default */
void five_pair_end(struct five_pair *pair);      /* nothing is left on the servers */

/* A hold of C's on all five: an acquire returns when a majority has granted it. */
void five_c_takes_all(struct five_pair *pair);

/* Waits that have fallen asleep: Java's command, C's operation. */
int five_java_waits(const char *handle, int thread);
hf_op *five_c_waits(const struct five_pair *pair, hf_owner owner);

/* By a message. */
void five_assert_java_woken(int command);
void five_assert_c_woken(hf_op *op); /* frees it */

/* Java's isHeldByThread(); older versions have none of locks made of several. */
void five_assert_java_holds(const char *handle, int thread, bool yes);

#define assert_java(answer, ...) assert_string_equal(java_call(suite.java, __VA_ARGS__), answer)

/* ---- What the servers know ------------------------------------------------------------------- */

/* On how many that are up the name is taken; or by this owner. */
int five_locked(void);
int five_held(const char *owner);
bool five_wait_held(const char *owner, int servers);

/* The wall clock's time from which on a majority is free, if nobody renews it any more. */
int64_t five_free_at(void);

void five_assert_empty(void);

/* Somebody else's lock on this server, for a minute. */
void five_occupy(int server);
void five_vacate(int server);

#endif
