/* Every function of the library, called once each, on things of its own.
 *
 *     struct walk w;
 *     walk_begin(&w, server);
 *     for (size_t i = 0; i < walk_len; i++) {
 *         walk_prepare(&w);              // fresh handles, operations and outputs
 *         walk_steps[i].call(&w);        // w.result is what it returned
 *         walk_tidy(&w);
 *     }
 *     walk_end(&w);
 *
 * Include as "api/walk.h". Nothing here asserts, so any thread and any child may walk. A walk is
 * for one thread at a time. */
#ifndef HF_TEST_API_WALK_H
#define HF_TEST_API_WALK_H

#include <holdfast/holdfast.h>

#include "support/case.h"
#include "support/server.h"
#include "support/wait.h"

#include <stdatomic.h>

struct walk {
    struct server *server;
    hf_client *client, *manual;   /* the second has HF_MANUAL_DISPATCH */
    unsigned long number, serial; /* of preparations: by this walk, by all of this process */

    /* As prepared; a step that ends one sets it to NULL. */
    hf_client *extra;
    hf_lock *lock, *held, *fenced; /* free; held by an owner that is no thread's, twice */
    hf_owner owner;
    char handle[64]; /* of `held` */
    hf_sem *sem;
    hf_permits *permits;
    hf_permit_id permit;
    hf_latch *latch;
    hf_cancel *cancel;
    hf_op *op; /* waits for `held` */
    hf_cancel *armed;
    hf_op *armed_op; /* the same, under that switch */
    hf_listener *listener;
    atomic_int listening; /* it does */
    hf_lock_info *info;
    hf_server_info *facts;
    hf_fleet *fleet;
    hf_deadlocks *deadlocks;
    char *text;

    /* What steps make. */
    char made_handle[64];
    hf_client *made_client;
    hf_lock *made_lock;
    hf_sem *made_sem;
    hf_permits *made_permits;
    hf_latch *made_latch;
    hf_cancel *made_cancel;
    hf_op *made_op;
    hf_listener *made_listener;
    hf_lock_info *made_info;
    hf_server_info *made_facts;
    hf_fleet *made_fleet;
    hf_deadlocks *made_deadlocks;
    char *made_text;
    hf_permit_id made_id;

    bool yes;
    int64_t value;
    size_t len;
    long long result;
};

/* What a child answers when it is called on what the parent has made. */
enum walk_child { CHILD_FORKED /* HF_EFORKED */, CHILD_ZERO, CHILD_ANY };

struct walk_step {
    const char *name;
    enum walk_child child;
    void (*call)(struct walk *w);
};
extern const struct walk_step walk_steps[];
extern const size_t walk_len;

/* False: something could not be made, and walk_tidy or walk_end is to follow all the same. */
bool walk_begin(struct walk *w, struct server *server);
bool walk_prepare(struct walk *w);
void walk_tidy(struct walk *w);
void walk_end(struct walk *w);

/* Asserts that the steps are just the functions that tests/frame/exports.txt names. */
void walk_assert_complete(void);

#endif
