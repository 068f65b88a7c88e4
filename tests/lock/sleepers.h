/* Operations that wait for locks of the rival's, each for its own, and are parked: nothing of them is under way.
 *
 *     struct sleepers s;
 *     sleepers_begin(&s, &w, 100, HF_FOREVER, NULL);
 *     assert_int_equal(hf_lock_release(s.rivals[7]), HF_OK);
 *     assert_int_equal(sleepers_join(&s, 7), HF_OK);
 *     sleepers_end(&s);
 *
 * Include as "lock/sleepers.h". They have a client of their own, behind a proxy of its own. */
#ifndef HF_TEST_LOCK_SLEEPERS_H
#define HF_TEST_LOCK_SLEEPERS_H

#include "support/memory.h"
#include "support/world.h"

struct sleeper {
    hf_lock *lock, *rival; /* of the same name; the rival holds it */
    hf_op *op;
    int64_t start_ms; /* when it began, or a little earlier */
    atomic_int calls; /* of its callback */
    hf_result result; /* as the callback got */
};

struct sleepers {
    struct world *w;
    struct proxy *proxy;
    struct memory memory;
    hf_client *client;
    struct sleeper *all;
    size_t len;
    bool manual; /* HF_MANUAL_DISPATCH: what is dispatched is dispatched by `dispatcher` */
    pthread_t dispatcher;
    atomic_bool over;
};

/* `options`: of their client; NULL: WORLD_OPTIONS. All have attempted twice when this returns, and sleep. */
void sleepers_begin(struct sleepers *s, struct world *w, size_t len, int64_t wait_ms,
                    const hf_options *given);
/* Nothing is left of them, unless the client could not tell the server. */
void sleepers_end(struct sleepers *s);

void sleepers_name(const struct sleepers *s, size_t i, char name[64]);

/* What is on its way to the client now has been dealt with. */
void sleepers_settle(struct sleepers *s);

/* Waits for its callback, which has run once then, and gives back what it got. Its code. */
int sleepers_join(struct sleepers *s, size_t i);

/* A body for run_child(): in a forked child every call says so, and the client can be closed. At
 * least three of them. */
int sleepers_forked(void *sleepers);

#endif
