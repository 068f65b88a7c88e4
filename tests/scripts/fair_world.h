/* The inside of the fair lock's model; fair_model.h is its face. */
#ifndef HF_TEST_FAIR_WORLD_H
#define HF_TEST_FAIR_WORLD_H

#include "fair_model.h"

/* What the channels of its waiters begin with; then their names. */
#define CHANNELS "redisson_lock__channel:{f}:"

enum {
    OWNERS = 4,
    JAVAS = 3,
    STEPS = 160,
    NOT_AFTER = 2, /* ticks from sending */
    HORIZON = 20,
    CONFIRM = 4,
    JAVA_WAIT = 30,
    COPIES = 16,
    MAILS = 8,
    SEEN = 64
};

enum script { ACQUIRE, RELEASE, GIVE_UP, RENEW, SCRIPTS };
extern const char *const fair_script_names[SCRIPTS];

struct request {
    enum script script;
    char owner[16];
    bool old, waits;
    int lease, confirm, not_after;
    int64_t arrival;
};

enum state { IDLE, WAITING, HOLDING };

struct owner {
    int generation; /* of its name: a process that crashed does not come back */
    enum state state;
    bool pending; /* a command is to be answered */
    bool sent;    /* a copy of it went unanswered */
    struct request request;
    int sent_at, quiet_until;
    /* waiting */
    bool once, heard;
    int lease, confirm, least_confirm, asked_at;
    int64_t arrival, answered_us;
    /* holding */
    int deadline;
    bool provisional;
    int residue_until; /* it lost a hold that the server may still have */
    int64_t mail[MAILS];
    int mails;
};

struct java {
    int generation;
    enum state state;
    int deadline;
    bool heard, was_heard; /* now, and when the queue was last looked at */
};

/* Somebody in the queue. */
struct seen {
    char name[16];
    int64_t until_ms;
};

struct fair_model {
    struct server *server;
    struct play play;
    redisContext *subscriber;
    char *sha[SCRIPTS], *look_sha, *java_sha[3];
    char *old_sha[SCRIPTS]; /* of version 0.1 */
    char *shortened_sha;    /* an acquire that does not care who hears */
    struct fair_tally tally;
    enum fair_discipline discipline;
    int64_t instant; /* us within the tick: grows with every script */
    bool with_java;
    int olds;      /* so many owners are clients of version 0.1 */
    int java_died; /* Java clients, in this schedule */
    /* The line when it was last looked at; a Java client has acted since then. */
    struct seen seen[SEEN];
    int seen_len;
    bool java_acts;
    struct owner owners[OWNERS];
    struct java javas[JAVAS];
    struct request copies[COPIES];
    int copies_len;
};

/* ---- fair_world.c: names, subscriptions, and what is true ------------------------------------ */

const char *fair_name_of(const struct fair_model *m, int who, char name[16]);
const char *fair_java_name(const struct fair_model *m, int who, char name[16]);
int64_t fair_now_us(const struct fair_model *m);

void fair_listen(struct fair_model *m, int who, bool on);
void fair_java_listen(struct fair_model *m, int who, bool on);

/* Compares the lock and the queue with what their clients believe. */
void fair_compare(struct fair_model *m);

void fair_load_looks(struct fair_model *m);

/* ---- fair_java.c: Redisson's clients -------------------------------------------------------- */

void fair_java_step(struct fair_model *m, int who);
void fair_java_leave(struct fair_model *m, int who);
void fair_load_java(struct fair_model *m);

#endif
