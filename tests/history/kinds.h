/* What can be done to a thing of each kind, at random: a visit.
 *
 * A visit is some operations of one thread on one name, each of them recorded, with nothing left
 * held at the end unless it was lost. It asserts nothing: the checker judges. */
#ifndef HF_TEST_HISTORY_KINDS_H
#define HF_TEST_HISTORY_KINDS_H

#include "record.h"

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAY_WATCHDOG_MS 1500
#define QUORUM_WATCHDOG_MS 600 /* and so long a server that comes back has no vote */
#define ROUTE_WATCHDOG_MS 4500 /* a hold may well outlive a failover */
#define ZK_WATCHDOG_MS 3000    /* of sessions: a member that was killed starts in a second or two */
#define PLAY_LEASE_MS 250      /* the shortest; the longest is twice that */
#define PLAY_WAIT_MS 120
#define PLAY_PERMITS 3
#define PLAY_COHORT_MS 12 /* some holds: so that locks are passed on, and let go */

struct kind;

/* One thread's part in a history. */
struct player {
    const struct kind *kind;
    hf_client *client;
    struct record *record;
    unsigned random;
    bool breaks; /* locks are broken, too */
};

struct kind {
    const char *name; /* what the checker calls its model, and Java the kind */
    hf_kind lock;
    unsigned flags; /* of the lock */
    void (*visit)(struct player *player, const char *name);
    /* A command that ends or adds something behind everybody's back; the checker must notice. */
    const char *sabotage;
    bool watches; /* how long a hold can be trusted is an operation, see recorded_lock.c */
};

/* Kinds that are played together. */
struct kinds {
    const struct kind *all;
    size_t len;
    unsigned players; /* of a kind, in each process */
    int visits;       /* of each at one name: a checker's work must have an end */
    bool quorum;      /* on several servers */
    bool moving;      /* on a primary that changes */
    bool sessions;    /* on ZooKeeper: holds end with their sessions */
    bool cohorts;     /* several of a process play one kind */
    int64_t watchdog_ms;
};

extern const struct kinds kinds_of_one_server, kinds_of_a_quorum, kinds_of_a_route,
    kinds_of_cohorts, kinds_of_zk;

unsigned play_pick(struct player *player, unsigned below);
bool play_chance(struct player *player, unsigned percent);
void play_pause(struct player *player, unsigned below_ms); /* so many ms at most, often none */

void visit_lock(struct player *player, const char *name);
void visit_readwrite(struct player *player, const char *name);
void visit_multi(struct player *player, const char *name);
void visit_group(struct player *player, const char *name);
void visit_semaphore(struct player *player, const char *name);
void visit_permits(struct player *player, const char *name);
void visit_latch(struct player *player, const char *name);

#endif
