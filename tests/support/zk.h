/* Private, real ZooKeeper servers for a test: one alone, or an ensemble of three.
 *
 *     int main(void) {
 *         zk_need(); // exits with 77 where no server can be had
 *     ...
 *     struct zk *zk = zk_start(NULL);
 *     hf_open(zk_url(zk), NULL, &client);
 *     ...
 *     zk_free(zk);
 *
 * Include as "support/zk.h". Each server is a JVM with a directory and a loopback port of its own,
 * started by the supervisor (supervisor.h), so none survives the test. A tick is 500 ms, so session
 * timeouts are granted from 1 s to 10 s unless the options say otherwise. Nothing is forced to
 * disk.
 *
 * The members of an ensemble reach each other through wires of ours, which can be cut: a follower
 * that is cut off from its leader goes on serving its clients until it notices, after
 * `sync_limit` ticks. (Votes take other ways, which are never cut.)
 *
 * Only the process that started a server may stop, kill, restart, freeze or free it, one thread at
 * a time. A fixture that breaks prints why, with the server's log, and aborts. */
#ifndef HF_TEST_ZK_H
#define HF_TEST_ZK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct zk;

struct zk_options {
    int tick_ms;               /* 0: 500 */
    int sync_limit;            /* ticks; 0: 20 */
    bool fsync;                /* for benchmarks */
    bool keeps_containers;     /* that are empty; else it deletes them, once a minute */
    const char *const *config; /* more lines, e.g. "maxSessionTimeout=3000"; NULL at the end */
};

/* Fetches the server's classes, which are kept in the build directory, or ends the program with
 * status 77 and a line that says why they cannot be had. */
void zk_need(void);

/* Where they are, as zk_need found them. */
const char *zk_classpath(void);

/* Starts a server and returns when it serves. */
struct zk *zk_start(const struct zk_options *options);
void zk_free(struct zk *zk); /* NULL is fine */

const char *zk_url(const struct zk *zk); /* zk://127.0.0.1:port */
int zk_port(const struct zk *zk);
pid_t zk_pid(const struct zk *zk); /* 0 while it is down */

/* ---- Its life -------------------------------------------------------------------------------- */

void zk_kill(struct zk *zk);          /* SIGKILL; gone when this returns */
void zk_launch(struct zk *zk);        /* after a kill: at the same port, with its data; at once */
void zk_wait_serving(struct zk *zk);  /* until it serves (an ensemble's: until it has a quorum) */
void zk_restart(struct zk *zk);       /* the three of them in turn */
void zk_restart_empty(struct zk *zk); /* the same, and what it knew is gone */
/* Starts it anew, so that the next sequential node beneath the path gets this number. Its digests
 * of the tree have to be off ("digest.enabled=false"). */
void zk_set_next_number(struct zk *zk, const char *path, int32_t number);
void zk_freeze(struct zk *zk);   /* SIGSTOP: connections stay, nothing answers */
void zk_unfreeze(struct zk *zk); /* SIGCONT */

/* ---- What it says ---------------------------------------------------------------------------- */

/* Sends one of the four-letter words ("ruok", "mntr", "dump", "cons", "wchp") and returns the
 * answer, which the caller frees; NULL when nobody listens, "" when nothing was said in 5 s. */
char *zk_word(const struct zk *zk, const char *word);

/* One line of "mntr": its number, or -1 if there is none. */
long long zk_number(const struct zk *zk, const char *name);

/* ---- Three of them --------------------------------------------------------------------------- */

enum { ZK_MEMBERS = 3 };

struct zk_ensemble;

/* Returns when there is a leader, and both others follow it. */
struct zk_ensemble *zk_ensemble_start(const struct zk_options *options);
void zk_ensemble_free(struct zk_ensemble *ensemble);

const char *zk_ensemble_url(const struct zk_ensemble *ensemble); /* of all three */
struct zk *zk_member(struct zk_ensemble *ensemble, int member);

/* The member that leads now, or -1. The other: waits until one leads and serves. */
int zk_leader(struct zk_ensemble *ensemble);
int zk_wait_leader(struct zk_ensemble *ensemble);

/* Waits until all three serve under one leader, and returns it. */
int zk_wait_whole(struct zk_ensemble *ensemble);

/* Nothing passes any more between a member and the other two, in either direction, until it is
 * joined again; what was on its way then arrives. */
void zk_cut(struct zk_ensemble *ensemble, int member);
void zk_join(struct zk_ensemble *ensemble, int member);

#endif
