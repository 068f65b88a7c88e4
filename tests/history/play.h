/* A run: several processes and JVMs play some kinds on one server, or on a quorum of them, while the
 * driver injects faults; what is left of it is a directory of logs for the checker. */
#ifndef HF_TEST_HISTORY_PLAY_H
#define HF_TEST_HISTORY_PLAY_H

#include "kinds.h"
#include "record.h"

#include "support/proxy.h"
#include "support/remote.h"
#include "support/server.h"
#include "support/shards.h"
#include "support/watched.h"
#include "support/zk.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PLAY_PROCESSES 3
#define PLAY_NAME_MS 500 /* so long everybody meets at one name of a kind; then at the next */
#define PLAY_SERVERS 5   /* of a quorum */
#define PLAY_JVMS 2
#define PLAY_PEERS 3

enum fault {
    FAULT_BREAK = 1,         /* players break locks */
    FAULT_KILL = 2,          /* processes are killed, and others take their part */
    FAULT_PAUSE = 4,         /* and stopped for longer than any lease */
    FAULT_LOSE = 8,          /* replies and connections are lost */
    FAULT_RESTART = 16,      /* a server is killed, and comes back with its data */
    FAULT_WIPE = 32,         /* and comes back without */
    FAULT_SABOTAGE = 64,     /* somebody writes to the servers behind everybody's back */
    FAULT_KILL_JVM = 128,    /* each JVM is killed */
    FAULT_FAIL_OVER = 256,   /* the primary changes */
    FAULT_MOVE = 512,        /* slots move to another server */
    FAULT_FREEZE = 1024,     /* a server stands still for a while */
    FAULT_ONE_WAY = 2048,    /* what one side sends does not arrive for a while */
    FAULT_PART = 4096,       /* a majority of a quorum is cut off from some processes */
    FAULT_BACK = 8192,       /* clocks of servers are stepped back */
    FAULT_DRIFT = 16384,     /* and run faster or slower, within what is allowed for */
    FAULT_POWER = 32768,     /* a server loses its power, and what was not synced is gone */
    FAULT_HANG_UP = 65536,   /* servers end their clients' connections */
    FAULT_OWN_CLOCK = 131072 /* the time of day of the clients is stepped */
};

struct plan {
    const char *title;
    const char *dir; /* where the logs go; NULL: a directory of their own */
    const struct kinds *kinds;
    unsigned faults;
    bool
        cluster; /* what changes are the servers of a cluster; else a primary that sentinels name */
    bool unreported; /* the checker hears nothing of changes */
    bool everysec;   /* servers that lose their power sync every second, not each write */
    bool zk;         /* on an ensemble of ZooKeeper servers */
    bool unguarded;  /* servers that restart have a vote at once, which is wrong */
    int64_t duration_ms;
    bool java;                      /* Redisson plays, too, if it is there, */
    struct remote *jvms[PLAY_JVMS]; /* in these JVMs */
    bool peers; /* redis-py, redsync and node-redlock, too, those that are there */
    struct remote *actors[PLAY_PEERS];
};

/* One process' part; a body for run_child(). */
struct part {
    const struct kinds *kinds;
    const char *url;
    const char *dir; /* where its log goes */
    char process[24];
    unsigned seed;
    int64_t begin_ms, end_ms; /* on now_ms()'s clock */
    bool breaks, unguarded;
};
int play_part(void *arg);

/* The name at which a kind is played now. */
void play_name(const char *kind, int64_t begin_ms, char name[48]);

/* ---- The driver's side ----------------------------------------------------------------------- */

struct run {
    const struct plan *plan;
    unsigned seed;
    unsigned random;
    char *dir;
    size_t servers_len;
    struct server *servers[PLAY_SERVERS];
    struct watched *watched; /* or a primary among three, and their sentinels; NULL: none */
    struct shards *shards;   /* or a cluster; NULL: none */
    struct zk_ensemble *zk;  /* or an ensemble of ZooKeeper; NULL: none */
    struct proxy *proxies[PLAY_SERVERS];  /* NULL: none are needed */
    char urls[1024];                      /* of the servers */
    char far_urls[1024];                  /* through the proxies, if there are any */
    struct java_players *java[PLAY_JVMS]; /* NULL: without */
    struct peer_players *peers;           /* the same */
    int64_t kill_jvm_ms[PLAY_JVMS];
    struct record record;
    int64_t begin_ms, end_ms;
    struct part parts[PLAY_PROCESSES];
    pid_t pids[PLAY_PROCESSES];
    int generation; /* how many processes there have been */
    size_t paused;  /* which is stopped; PLAY_PROCESSES: none */
    int64_t paused_ns, resume_ms;
    int64_t rest_ms;       /* until then the primary does not change */
    struct server *frozen; /* which server stands still; NULL: none */
    struct zk *frozen_zk;
    int64_t frozen_ns, thaw_ms;
    int64_t
        step_ms[PLAY_SERVERS]; /* how far the clocks are stepped; of routes, the first for all */
    int64_t late_ms
        [PLAY_SERVERS]; /* when the commands that a proxy holds back are let go; 0: there are none */
    int64_t apart_ms[PLAY_SERVERS]; /* until when a server is cut off; 0: it is not */
};

/* Plays; the caller frees the directory's name and removes it. */
char *play_run(const struct plan *plan, unsigned seed);

unsigned run_pick(struct run *run, unsigned below);
void run_spawn(struct run *run, size_t i);

/* What happens to them (faults.c): called about every millisecond. */
void faults_begin(struct run *run);
void faults_step(struct run *run);
void faults_end(struct run *run); /* nobody is stopped any more, nothing held back */

/* Redisson's players (java.c). They are the driver's: it sends, and notes when the answers come. */
struct java_players;
struct java_players *java_players_new(struct run *run, struct remote *jvm);
void java_players_step(struct java_players *players);
void java_players_kill(struct java_players *players);
void java_players_end(struct java_players *players); /* waits for their last answers */

/* Other libraries' players, one each, of the string kind (peers.c). NULL is fine. */
struct peer_players;
extern const char *const peer_languages[PLAY_PEERS];
struct remote *peer_actor_new(const char *language); /* NULL: cannot be built here */
struct peer_players *peer_players_new(struct run *run);
void peer_players_step(struct peer_players *players);
void peer_players_end(struct peer_players *players);

#endif
