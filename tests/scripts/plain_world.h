/* The inside of the plain lock's model; plain_model.h is its face. */
#ifndef HF_TEST_PLAIN_WORLD_H
#define HF_TEST_PLAIN_WORLD_H

#include "plain_model.h"

#define LOCK_NAME "thelock"

enum { OWNERS = 3, JAVAS = 2, CLIENTS = OWNERS + JAVAS, FORCER = OWNERS, COPIES = 24 };
enum script { ACQUIRE, RELEASE, FORCE, RENEW, SCRIPTS };

struct request {
    enum script script;
    int sender;    /* an owner's number, or FORCER */
    int target;    /* FORCE: whose hold, an owner or, from OWNERS on, a Java client */
    int count;     /* ACQUIRE: held before; RELEASE: held now */
    int lease;     /* ticks */
    int serial;    /* of the operation it belongs to */
    int sent;      /* tick */
    int not_after; /* tick */
};

struct copy {
    bool used;
    bool connected; /* the sender's connection lives, so it will hear the reply */
    struct request request;
};

struct operation {
    bool pending;
    bool sent;
    enum script script; /* ACQUIRE or RELEASE */
    int count;
    int lease;
    int serial;
    int unanswered; /* copies whose reply never came */
};

struct owner {
    int count;         /* what it holds, as far as it knows */
    int deadline;      /* until when it trusts that */
    bool broken;       /* by force, and it does not know yet */
    int quiet_after;   /* copies on broken connections cannot act after this tick */
    int horizon;       /* nothing that it sent makes the lock last beyond this tick */
    int residue_until; /* its deadline passed: the server may keep its field until then */
    struct operation op;
};

struct java {
    int count;
    int deadline;
    bool broken;
};

struct field {
    int owner; /* as request.target */
    int count;
};

struct model {
    struct play play;
    char *sha[SCRIPTS];
    char *java_lock_sha;
    char *java_unlock_sha;
    struct model_tally tally;

    /* One schedule. */
    enum discipline discipline;
    int serial;
    struct owner owners[OWNERS];
    struct java javas[JAVAS];
    struct copy copies[COPIES];
};

/* ---- plain_world.c: names, and what is true ------------------------------------------------- */

const char *script_name(enum script script);
const char *name_of(int client); /* as a field of the lock */

/* Who is in the lock, and how many there are. */
size_t look(struct model *m, struct field fields[CLIENTS]);

/* Compares the lock with what its clients believe. */
void compare(struct model *m);

/* ---- plain_owner.c: what a holdfast owner does and concludes -------------------------------- */

void owner_step(struct model *m, int who);
void begin_operation(struct model *m, struct owner *o, enum script script, int count);
void send_operation(struct model *m, int who, bool reliable);

/* Copies on broken connections may still act: the next operation has to wait. */
bool must_wait(const struct model *m, const struct owner *o);

void answered(struct model *m, const struct request *r, int code, int value);
void lapse(struct model *m, int who); /* its deadline has passed */

/* ---- plain_network.c: what becomes of a request --------------------------------------------- */

/* Sends a request, and decides what becomes of it and of its connection. */
void transmit(struct model *m, struct request r, bool reliable);
void run_copy(struct model *m, struct copy *c);
void run_pipe(struct model *m, int sender); /* all that is under way on its connection */

#endif
