/* The inside of the read/write lock's model; readwrite_model.h is its face. */
#ifndef HF_TEST_READWRITE_WORLD_H
#define HF_TEST_READWRITE_WORLD_H

#include "readwrite_model.h"

#define LOCK_NAME "thelock"
#define RW_CHANNEL "redisson_rwlock:{thelock}"
#define JAVA_WATCHDOG 4 /* ticks */
#define FRESH_EVERY 2   /* ticks; less than that */

enum { OWNERS = 3, JAVAS = 2, CLIENTS = OWNERS + JAVAS, LEVELS = 6, COPIES = 24, STEPS = 80 };
enum { READ, WRITE, SIDES };
enum script {
    READ_ACQUIRE,
    READ_RELEASE,
    READ_RENEW,
    WRITE_ACQUIRE,
    WRITE_RELEASE,
    WRITE_RENEW,
    FORCE,
    SCRIPTS
};
enum verb { ACQUIRE, RELEASE, RENEW, VERBS };

struct request {
    enum verb verb;
    int who, side;
    int count, lease, serial, sent, not_after;
};

struct part {
    int count;         /* what it holds, as far as it knows */
    int deadline;      /* until when it trusts that */
    bool broken;       /* by force, and it does not know yet */
    int quiet_after;   /* copies that nobody hears of cannot act after this tick */
    int horizon;       /* nothing that it sent lasts beyond this tick */
    int residue_until; /* the server may keep something of it until then */
    int orphans_until; /* the same for keys of reads that were broken */
    bool fixed;        /* the lease is, and only kept fresh */
    struct {
        bool pending, sent;
        enum verb verb; /* ACQUIRE or RELEASE */
        int count, lease, serial, unanswered;
    } op;
};

struct java {
    int count[SIDES];
    int until[LEVELS + 1]; /* of its read holds */
    int write_until;
    int lock_until; /* as others of its kind have shortened it */
    bool broken;
};

struct rw_model {
    struct play play;
    char *sha[SCRIPTS];
    char *java_sha[SIDES][2]; /* lock, unlock */
    char *java_watchdog_sha;
    char *leases_sha;
    struct rw_tally tally;

    /* One schedule. */
    enum rw_discipline discipline;
    int serial;
    struct part parts[OWNERS][SIDES];
    struct java javas[JAVAS];
    struct {
        bool used;
        struct request request;
    } copies[COPIES];
};

extern const char rw_leases_lua[];
extern const char *const rw_script_names[SCRIPTS];
extern const char *const rw_client_names[CLIENTS];
extern const char *const rw_side_names[SIDES];

/* ---- readwrite_world.c: what is true -------------------------------------------------------- */

struct truth {
    bool there, write_mode;
    int count[CLIENTS][SIDES];
    int keys[CLIENTS];  /* live ones of its read holds */
    int first[OWNERS];  /* ticks that its level 1 lasts */
    int longer[OWNERS]; /* levels that last longer than the one below */
};

void rw_look(struct rw_model *m, struct truth *truth);
bool rw_java_believes(const struct rw_model *m, const struct java *j, int side);

/* Compares the lock with what its clients believe. */
void rw_compare(struct rw_model *m);

/* ---- readwrite_owner.c: what a holdfast owner sends, and what becomes of it ----------------- */

void rw_begin_operation(struct rw_model *m, struct part *p, enum verb verb, int count);
void rw_send_operation(struct rw_model *m, int who, int side, bool reliable);
void rw_send_renewal(struct rw_model *m, int who, int side, int lease, bool reliable);

/* Copies that nobody hears of may still act: the next operation has to wait. */
bool rw_must_wait(const struct rw_model *m, const struct part *p);

/* Undoes an acquire, or gives back whatever is left of a hold that was lost. */
void rw_settle(struct rw_model *m, struct part *p, int count);
void rw_lapse(struct rw_model *m, int who, int side); /* its deadline has passed */

/* Runs a request, now; `hears`: the sender gets the answer. */
void rw_run(struct rw_model *m, const struct request *r, bool hears);

#endif
