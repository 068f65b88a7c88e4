/*
 * A protected register: each holder of a lock reads it, works for a while, and writes what it read
 * plus one. Another that wrote in between has lost its update; both are reported, with their times.
 * The register is a server of its own that no fault touches, with or without a check of tokens.
 *
 * A worker is a process with one library's lock in it, driven by lines (tests/peers/README.md), and
 * its application, which is here: a stopped process means that its application rests, too. Faults
 * come while somebody is inside, and make that holder's work long, so that what a fault lets in can
 * be seen. One thread.
 *
 * On standard output: a line `lost ...` for each lost update, and at the end a line of counts, `key=value ...`.
 */
#include "lab.h"

#include "support/java.h"
#include "support/power.h"
#include "support/proxy.h"
#include "support/remote.h"
#include "support/server.h"
#include "support/shards.h"
#include "support/step.h"
#include "support/wait.h"
#include "support/watched.h"
#include "support/zk_net.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, MEMBERS = 3, LEASE_MS = 1000, LONG_LEASE_MS = 12000, SESSION_MS = 4000 };
/* A follower that is cut off serves its clients for so long. */
enum { TICK_MS = 500, SYNC_LIMIT = 40 };
enum {
    WORK_MS = 8,
    PAUSE_MS = 15,
    SLOW_MS = 700,
    FAILOVER_MS = 4000,
    STOP_MS = 1700,
    FREEZE_MS = 2500,
    CUT_MS = 2000, /* between two cuts of a follower */
    TAKEOVER_TIMEOUT_MS = 15000,
    FIND_TIMEOUT_MS = 60000, /* where another must come in */
    CALM_MS = 900,
    NO_FAULT_MS = 120000 /* a run in which no fault came by then has failed */
};

enum language { OURS, PYTHON, NODE, GO, JAVA, CURATOR };

struct subject {
    const char *name;
    enum language language;
    const char *peer;  /* as its actor knows it; of ours, the kind */
    const char *check; /* what the application asks right before it writes; NULL: nothing */
    bool tokens;       /* the store checks them */
};

/* Of the others once as their first examples are, once with the question about the hold that their interface has. */
static const struct subject subjects[] = {
    {"holdfast", OURS, "plain", "remaining", false},
    {"holdfast-tokens", OURS, "fenced", "remaining", true},
    {"holdfast-string", OURS, "string", "remaining", false},
    {"holdfast-fair", OURS, "fair", "remaining", false},
    {"holdfast-write", OURS, "write", "remaining", false},
    {"set-nx-by-hand", PYTHON, "by-hand", NULL, false},
    {"redis-py", PYTHON, "redis-py", NULL, false},
    {"redis-py-owned", PYTHON, "redis-py", "owned", false},
    {"redis-py-async", PYTHON, "redis-py-async", NULL, false},
    {"redlock-py", PYTHON, "redlock-py", NULL, false},
    {"pottery", PYTHON, "pottery", NULL, false},
    {"flock", PYTHON, "flock", NULL, false},
    {"redsync", GO, "redsync", NULL, false},
    {"redsync-until", GO, "redsync", "owned", false},
    {"node-redlock", NODE, "node-redlock-5", NULL, false},
    {"node-redlock-expiration", NODE, "node-redlock-5", "owned", false},
    {"redisson", JAVA, "plain", NULL, false},
    {"redisson-held", JAVA, "plain", "heldBy", false},
    {"redisson-redlock", JAVA, "redlock", NULL, false},
    {"curator", CURATOR, "mutex", "held", false},
};

enum fault {
    NONE,
    STOP,
    STOP_LATE,
    KILL,
    WIPE,
    FAILOVER,
    MEMBERS_WIPED,
    CLOCK,
    CLOCK_BACK,
    FREEZE,
    POWER_ALWAYS,
    POWER_EVERYSEC,
    POWER_SNAPSHOTS,
    CANCEL,
    FOLLOWER_CUT
};
static const char *const faults[] = {"none",
                                     "holder-stopped",
                                     "holder-stopped-after-its-check",
                                     "holder-killed",
                                     "server-restarts-empty",
                                     "failover-with-a-lagging-replica",
                                     "members-restart-empty",
                                     "clock-stepped",
                                     "clock-stepped-back",
                                     "server-freezes",
                                     "power-loss",
                                     "power-loss-everysec",
                                     "power-loss-snapshots",
                                     "task-cancelled",
                                     "follower-cut-off"};

enum state { IDLE, TRYING, CANCELLING, INSIDE, ASKING, CHECKED, RELEASING };

struct worker {
    int number;
    struct remote *remote;
    enum state state;
    int request;
    int64_t due_ms; /* when it goes on */
    bool stopped;
    bool victim; /* of a fault that has not passed: it goes on when another has written, */
    int64_t timeout_at_ms; /* or then */
    long long seen, token;
    int64_t entered_ms;
    int64_t overtaken_ms; /* when another came in beside it; 0: none has */
};

struct lab {
    const struct subject *subject;
    enum fault fault;
    bool quorum;
    unsigned random;
    int lease_ms;
    struct server *book;
    struct server *servers[MEMBERS];
    struct watched *watched;
    struct shards *shards;
    struct zk_net *zk;
    int cut; /* which member of the ensemble is cut off; -1: none */
    struct server *frozen;
    int64_t thaw_ms;
    int64_t free_since_ms;      /* nobody is inside; 0: somebody is */
    int64_t cancelled_ms;       /* an acquire was cancelled, and nobody has come in since; 0: no */
    int64_t silent_ms, free_ms; /* the longest */
    long long stranded;
    int64_t back_ms;
    char where[512]; /* urls, or ports */
    struct worker workers[WORKERS];
    int64_t begin_ms, end_ms, calm_until_ms, mend_ms;
    int64_t
        limit_ms; /* until then it goes on if nothing was found, and a fault must find something; 0: it need not */
    int64_t found_ms; /* after the beginning: the first lost update; -1: none */
    int last;         /* who wrote last */
    int64_t last_ms;
    long long attempts, acquired, busy, errors, writes, refused, rejected, lost, faults,
        released_lost;
};

static unsigned pick(struct lab *lab, unsigned below) {
    return (unsigned)rand_r(&lab->random) % below;
}

/* On a busy machine the time may be over before anybody was inside, so that no fault came; that says nothing. */
static bool is_over(const struct lab *lab) {
    int64_t ms = now_ms();
    bool waits_for_fault =
        lab->fault != NONE && lab->faults == 0 && ms < lab->begin_ms + NO_FAULT_MS;
    bool waits_for_finding = lab->found_ms < 0 && ms < lab->limit_ms;
    return ms >= lab->end_ms && !waits_for_fault && !waits_for_finding;
}

static void note_finding(struct lab *lab) {
    if (lab->found_ms < 0)
        lab->found_ms = now_ms() - lab->begin_ms;
}

/* ---- Actors ---------------------------------------------------------------------------------- */

static int run_build(const char *script, const char *dir, const char *what) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execl(script, script, dir, what, (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        support_die("%s cannot be run", script);
    return WEXITSTATUS(status);
}

static int build(const struct subject *subject) {
    static const char *const languages[] = {[PYTHON] = "python", [NODE] = "node", [GO] = "go"};
    if (subject->language == OURS)
        return 0;
    if (subject->language == JAVA)
        return java_build(JAVA_REDISSON);
    if (subject->language == CURATOR)
        return java_build(JAVA_CURATOR);
    return run_build(HF_PEERS_BUILD, HF_PEERS_DIR, languages[subject->language]);
}

static void must(struct worker *worker, const char *command) {
    const char *answer = remote_call(worker->remote, "%s", command);
    if (strncmp(answer, "ok", 2) != 0)
        support_die("%s: %s", command, answer);
}

static bool is_java(const struct lab *lab) {
    return lab->subject->language == JAVA || lab->subject->language == CURATOR;
}

/* Of an ensemble each worker has a server of its own. */
static const char *where(const struct lab *lab, const struct worker *worker) {
    return lab->zk != NULL ? zk_url(zk_net_member(lab->zk, worker->number)) : lab->where;
}

/* A lock of several clients, one for each server. */
static void open_redlock(struct lab *lab, struct worker *worker) {
    char command[1024];
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(command, sizeof command, "client c%d %s codec=string watchdog=%d", i,
                 server_tcp_url(lab->servers[i]), lab->lease_ms);
        must(worker, command);
    }
    must(worker, "open c0,c1,c2 redlock lab h");
}

static void open_lock(struct lab *lab, struct worker *worker) {
    char command[1024];
    if (lab->subject->language == CURATOR) {
        snprintf(command, sizeof command, "client c %s session=%d", where(lab, worker),
                 lab->lease_ms);
        must(worker, command);
        must(worker, "open c mutex /lab h");
        return;
    }
    if (strcmp(lab->subject->peer, "redlock") == 0) {
        open_redlock(lab, worker);
        return;
    }
    if (lab->subject->language == JAVA) {
        snprintf(command, sizeof command, "client c %s codec=string watchdog=%d", lab->where,
                 lab->lease_ms);
        must(worker, command);
        must(worker, "open c plain lab h");
        return;
    }
    snprintf(command, sizeof command, "open h %s lab %d %s", lab->subject->peer, lab->lease_ms,
             where(lab, worker));
    must(worker, command);
}

static void start_worker(struct lab *lab, struct worker *worker) {
    static const char *const ours[] = {"/proc/self/exe", "actor", NULL};
    static const char *const python[] = {HF_PEERS_DIR "/python/venv/bin/python",
                                         HF_SOURCE_DIR "/tests/peers/python/actor.py", NULL};
    static const char *const node[] = {"node", HF_SOURCE_DIR "/tests/peers/node/actor.js",
                                       HF_PEERS_DIR "/node", NULL};
    static const char *const go[] = {HF_PEERS_DIR "/go/actor", NULL};
    static const char *const *const programs[] = {
        [OURS] = ours, [PYTHON] = python, [NODE] = node, [GO] = go};
    int number = worker->number;
    *worker = (struct worker){.number = number, .due_ms = now_ms()};
    if (is_java(lab))
        worker->remote = java_start(lab->subject->language == JAVA ? JAVA_REDISSON : JAVA_CURATOR);
    else
        worker->remote = remote_start(programs[lab->subject->language]);
    open_lock(lab, worker);
}

/* ---- The register ---------------------------------------------------------------------------- */

/* Either answers -1 to a token that is behind one it has seen. */
#define SEEN                                                                                       \
    "if ARGV[1] ~= '0' then local seen = redis.call('get', KEYS[2]) "                              \
    "if seen and tonumber(seen) > tonumber(ARGV[1]) then return -1 end "                           \
    "redis.call('set', KEYS[2], ARGV[1]) end "

static long long book_read(struct lab *lab, long long token) {
    return cmd_int(lab->book, "EVAL %s 2 book seen %lld",
                   SEEN "return tonumber(redis.call('get', KEYS[1]) or '0')",
                   lab->subject->tokens ? token : 0LL);
}

static long long book_write(struct lab *lab, long long token, long long value) {
    return cmd_int(
        lab->book, "EVAL %s 2 book seen %lld %lld",
        SEEN
        "local was = tonumber(redis.call('get', KEYS[1]) or '0') redis.call('set', KEYS[1], ARGV[2]) return was",
        lab->subject->tokens ? token : 0LL, value);
}

static void write_it(struct lab *lab, struct worker *worker) {
    if (worker->overtaken_ms != 0 && now_ms() - worker->overtaken_ms > lab->silent_ms)
        lab->silent_ms = now_ms() - worker->overtaken_ms;
    long long was = book_write(lab, worker->token, worker->seen + 1);
    if (was < 0) {
        lab->rejected++;
        return;
    }
    lab->writes++;
    if (was != worker->seen) {
        lab->lost++;
        note_finding(lab);
        printf(
            "lost at_ms=%lld holder=w%d entered_ms=%lld read=%lld found=%lld written_by=w%d written_ms=%lld\n",
            (long long)(now_ms() - lab->begin_ms), worker->number,
            (long long)(worker->entered_ms - lab->begin_ms), worker->seen, was, lab->last,
            (long long)(lab->last_ms - lab->begin_ms));
    }
    lab->last = worker->number;
    lab->last_ms = now_ms();
}

/* ---- A worker's application ------------------------------------------------------------------ */

static void ask(struct lab *lab, struct worker *worker, enum state state, const char *verb) {
    const char *suffix = !is_java(lab)               ? ""
                         : strcmp(verb, "lock") == 0 ? " thread=1 wait=20"
                                                     : " thread=1";
    worker->request = remote_send(worker->remote, "%s h%s", verb, suffix);
    worker->state = state;
}

static void leave(struct lab *lab, struct worker *worker) {
    ask(lab, worker, RELEASING, is_java(lab) ? "unlock" : "release");
}

static bool believes(const struct worker *worker) {
    return worker->state == INSIDE || worker->state == ASKING || worker->state == CHECKED;
}

/* Whoever is inside already is overtaken from now on. */
static void note_entry(struct lab *lab, struct worker *worker) {
    for (int i = 0; i < WORKERS; i++) {
        struct worker *other = &lab->workers[i];
        if (other != worker && believes(other) && other->overtaken_ms == 0)
            other->overtaken_ms = now_ms();
    }
    worker->overtaken_ms = 0;
    if (lab->free_since_ms != 0 && now_ms() - lab->free_since_ms > lab->free_ms)
        lab->free_ms = now_ms() - lab->free_since_ms;
    lab->free_since_ms = 0;
    if (lab->cancelled_ms != 0 && now_ms() - lab->cancelled_ms > lab->lease_ms / 2) {
        lab->stranded++;
        note_finding(lab);
        printf("stranded at_ms=%lld for_ms=%lld\n", (long long)(lab->cancelled_ms - lab->begin_ms),
               (long long)(now_ms() - lab->cancelled_ms));
    }
    lab->cancelled_ms = 0;
}

static void note_whether_free(struct lab *lab) {
    bool inside = false;
    for (int i = 0; i < WORKERS; i++)
        inside |= believes(&lab->workers[i]) || lab->workers[i].state == RELEASING;
    if (inside)
        lab->free_since_ms = 0;
    else if (lab->free_since_ms == 0)
        lab->free_since_ms = now_ms();
}

static void answered_try(struct lab *lab, struct worker *worker, const char *answer) {
    bool taken = is_java(lab) ? strcmp(answer, "ok true") == 0 : strncmp(answer, "ok", 2) == 0;
    bool busy = strncmp(answer, "busy", 4) == 0 || strcmp(answer, "ok false") == 0;
    worker->state = IDLE;
    worker->due_ms = now_ms() + 1 + pick(lab, PAUSE_MS);
    lab->attempts++;
    lab->busy += busy;
    lab->errors += !taken && !busy;
    if (!taken)
        return;
    lab->acquired++;
    worker->token = lab->subject->language == OURS ? strtoll(answer + 2, NULL, 10) : 0;
    worker->seen = book_read(lab, worker->token);
    worker->entered_ms = now_ms();
    if (worker->seen < 0) {
        lab->rejected++;
        leave(lab, worker);
        return;
    }
    note_entry(lab, worker);
    worker->state = INSIDE;
    worker->due_ms = now_ms() + 1 + pick(lab, WORK_MS);
}

/* What its application makes of the answer to its last question. */
static bool is_sure(const struct lab *lab, const char *answer) {
    switch (lab->subject->language) {
    case OURS:
        return strncmp(answer, "ok", 2) == 0 && strtoll(answer + 2, NULL, 10) > 0;
    case JAVA:
    case CURATOR:
        return strcmp(answer, "ok true") == 0;
    default:
        return strcmp(answer, "ok") == 0;
    }
}

static void answered(struct lab *lab, struct worker *worker, const char *answer) {
    switch (worker->state) {
    case TRYING:
        answered_try(lab, worker, answer);
        break;
    case CANCELLING:
        lab->cancelled_ms = now_ms();
        worker->state = IDLE;
        worker->due_ms = now_ms() + 1;
        break;
    case ASKING:
        if (!is_sure(lab, answer)) {
            lab->refused++;
            leave(lab, worker);
            break;
        }
        worker->state = CHECKED;
        worker->due_ms = now_ms();
        break;
    default:
        lab->released_lost += strncmp(answer, "ok", 2) != 0;
        worker->state = IDLE;
        worker->due_ms = now_ms() + 1 + pick(lab, PAUSE_MS);
        break;
    }
}

static void go_on(struct lab *lab, struct worker *worker) {
    switch (worker->state) {
    case IDLE:
        if (!is_over(lab) || lab->mend_ms != 0)
            ask(lab, worker, TRYING, lab->subject->language == CURATOR ? "lock" : "try");
        break;
    case INSIDE:
        if (lab->subject->check != NULL) {
            ask(lab, worker, ASKING, lab->subject->check);
            break;
        }
        write_it(lab, worker);
        leave(lab, worker);
        break;
    case CHECKED:
        write_it(lab, worker);
        leave(lab, worker);
        break;
    default:
        break;
    }
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void stop(struct worker *worker) {
    stop_process(remote_pid(worker->remote));
    worker->stopped = true;
    worker->due_ms = now_ms() + STOP_MS;
}

static void forget_at_replicas(struct lab *lab, const struct server *primary) {
    for (int i = 0; i < WATCHED_SERVERS; i++) {
        struct server *replica = watched_server(lab->watched, i);
        if (replica == primary)
            continue;
        cmd_ok(replica, "CONFIG SET replica-read-only no");
        cmd_ok(replica, "FLUSHALL");
        cmd_ok(replica, "CONFIG SET replica-read-only yes");
    }
}

/* Clients that find their server by a sentinel get the new one from it; here the lab does that for those without. */
static void tell_of_primary(struct lab *lab, const struct server *primary) {
    if (lab->subject->language == OURS || lab->subject->language == JAVA)
        return;
    snprintf(lab->where, sizeof lab->where, "%d", server_port(primary));
    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &lab->workers[i];
        if (worker->victim)
            continue; /* it is at work, and hears of nothing */
        if (worker->state == TRYING || worker->state == RELEASING)
            (void)remote_answer(worker->remote, worker->request);
        open_lock(lab, worker);
        worker->state = IDLE;
        worker->due_ms = now_ms();
    }
}

static void fail_over(struct lab *lab) {
    struct server *old = watched_primary(lab->watched);
    server_kill(old);
    forget_at_replicas(lab, old);
    watched_fail_over(lab->watched);
    tell_of_primary(lab, watched_wait_switch(lab->watched, old));
}

/* The power of the one server, or of one of several; or its leader does not hear the holder's
 * server, nor is heard there. */
static void lose_power(struct lab *lab) {
    (void)power_loss(lab->servers[0]);
    server_wait_ready(lab->servers[0]);
}

static void cut_follower(struct lab *lab, int member, bool lost) {
    for (int other = 0; other < MEMBERS; other++) {
        if (other == member)
            continue;
        zk_net_lose(lab->zk, member, other, lost);
        zk_net_lose(lab->zk, other, member, lost);
    }
    lab->cut = lost ? member : -1;
}

/* How long the victim waits for another to come in. After some faults none may, so it goes on within its lease. */
static int64_t takeover_timeout_ms(const struct lab *lab) {
    switch (lab->fault) {
    case POWER_ALWAYS:
    case CLOCK_BACK:
        return SLOW_MS;
    case POWER_EVERYSEC:
    case POWER_SNAPSHOTS:
        return 3 * LEASE_MS;
    default:
        return lab->limit_ms != 0 ? FIND_TIMEOUT_MS : TAKEOVER_TIMEOUT_MS;
    }
}

static void strike(struct lab *lab, struct worker *victim) {
    lab->faults++;
    printf("fault at_ms=%lld holder=w%d\n", (long long)(now_ms() - lab->begin_ms), victim->number);
    victim->victim = true;
    switch (lab->fault) {
    case STOP:
    case STOP_LATE:
        stop(victim);
        break;
    case KILL:
        remote_kill(victim->remote);
        remote_free(victim->remote);
        start_worker(lab, victim);
        break;
    case WIPE:
        server_restart(lab->servers[0]);
        break;
    case MEMBERS_WIPED:
        for (int i = 0; i < 2; i++)
            server_restart(lab->servers[i]);
        break;
    case FAILOVER:
        fail_over(lab);
        break;
    case CLOCK:
        step_clock(lab->servers[0], 3 * LEASE_MS);
        break;
    case CLOCK_BACK:
        lab->back_ms -= LEASE_MS / 2;
        step_clock(lab->servers[0], lab->back_ms);
        break;
    case FREEZE:
        lab->frozen = lab->servers[0];
        server_freeze(lab->frozen);
        lab->thaw_ms = now_ms() + FREEZE_MS;
        break;
    case POWER_ALWAYS:
    case POWER_EVERYSEC:
    case POWER_SNAPSHOTS:
        lose_power(lab);
        break;
    case FOLLOWER_CUT:
        cut_follower(lab, victim->number, true);
        break;
    default:
        break;
    }
    lab->last = victim->number;
    victim->timeout_at_ms = now_ms() + takeover_timeout_ms(lab);
    int64_t slow_ms = lab->fault == FAILOVER ? FAILOVER_MS : SLOW_MS;
    lab->mend_ms = now_ms() + slow_ms;
    if (victim->victim && !victim->stopped)
        victim->due_ms = now_ms() + slow_ms;
}

static void mend(struct lab *lab) {
    lab->mend_ms = 0;
    lab->calm_until_ms = now_ms() + CALM_MS;
    if (lab->fault == FAILOVER)
        watched_heal(lab->watched);
    if (lab->fault == CLOCK)
        step_clock(lab->servers[0], 0);
    if (lab->cut >= 0) {
        cut_follower(lab, lab->cut, false);
        zk_net_wait_whole(lab->zk);
        lab->calm_until_ms = now_ms() + CUT_MS;
    }
}

static bool may_strike(const struct lab *lab, const struct worker *worker) {
    enum state when = lab->fault == STOP_LATE && lab->subject->check != NULL ? CHECKED : INSIDE;
    if (lab->fault == NONE || lab->mend_ms != 0 || worker->victim ||
        now_ms() < lab->calm_until_ms || is_over(lab))
        return false;
    if (lab->fault == CANCEL)
        return worker->state == IDLE && lab->cancelled_ms == 0 && lab->free_since_ms != 0;
    return worker->state == when &&
           (lab->fault != FOLLOWER_CUT || worker->number != zk_net_leader(lab->zk));
}

/* The worker's acquire is cancelled while it is on its way. */
static void cancel(struct lab *lab, struct worker *worker) {
    lab->faults++;
    printf("fault at_ms=%lld holder=w%d\n", (long long)(now_ms() - lab->begin_ms), worker->number);
    lab->calm_until_ms = now_ms() + CALM_MS / 3;
    ask(lab, worker, CANCELLING, "cancel");
}

static bool is_waiting(const struct worker *worker) {
    return worker->state == TRYING || worker->state == CANCELLING || worker->state == ASKING ||
           worker->state == RELEASING;
}

static void step_worker(struct lab *lab, struct worker *worker) {
    /* So that what a fault lets in has come in. */
    bool rests = worker->victim && lab->last == worker->number && now_ms() < worker->timeout_at_ms;
    if (worker->stopped) {
        if (rests || now_ms() < worker->due_ms)
            return;
        kill(remote_pid(worker->remote), SIGCONT);
        worker->stopped = false;
    }
    bool waits = is_waiting(worker);
    if (waits && remote_answered(worker->remote, worker->request))
        answered(lab, worker, remote_answer(worker->remote, worker->request));
    if (may_strike(lab, worker)) {
        if (lab->fault == CANCEL)
            cancel(lab, worker);
        else
            strike(lab, worker);
        return;
    }
    waits = is_waiting(worker);
    if (!waits && !rests && now_ms() >= worker->due_ms) {
        bool moved_on = worker->victim && lab->fault == FAILOVER &&
                        lab->subject->language != OURS && lab->subject->language != JAVA;
        worker->victim = false;
        go_on(lab, worker);
        if (moved_on && worker->state == RELEASING) { /* its old server is gone */
            (void)remote_answer(worker->remote, worker->request);
            open_lock(lab, worker);
            worker->state = IDLE;
        }
    }
}

/* ---- A run ----------------------------------------------------------------------------------- */

static void add_word(char text[512], const char *format, const char *url, int port) {
    size_t len = strlen(text);
    if (url != NULL)
        snprintf(text + len, 512 - len, format, len > 0 ? " " : "", url);
    else
        snprintf(text + len, 512 - len, "%s%d", len > 0 ? " " : "", port);
}

static bool start_servers(struct lab *lab, const char *topology) {
    const struct server_options options = {
        .tcp = true,
        .aof = lab->fault == POWER_ALWAYS || lab->fault == POWER_EVERYSEC,
        .config = lab->fault == POWER_EVERYSEC    ? power_everysec
                  : lab->fault == POWER_SNAPSHOTS ? power_snapshots
                                                  : NULL};
    bool urls = lab->subject->language == OURS || lab->subject->language == JAVA;
    if (strcmp(topology, "zk") == 0) {
        const struct zk_options zk = {
            .tick_ms = TICK_MS, .sync_limit = SYNC_LIMIT, .keeps_containers = true};
        lab->lease_ms = SESSION_MS;
        zk_net_enter();
        lab->zk = zk_net_start(MEMBERS, &zk);
        lab->book = server_start(NULL);
        return true;
    }
    if (strcmp(topology, "cluster") == 0) {
        lab->shards = shards_start(NULL);
        snprintf(lab->where, sizeof lab->where, "%s", shards_url(lab->shards));
        lab->book = server_start(NULL);
        return urls;
    }
    if (strcmp(topology, "sentinel") == 0) {
        lab->lease_ms = LONG_LEASE_MS; /* longer than a failover */
        const struct watched_options watched = {.down_after_ms = 15000};
        lab->watched = watched_start(&watched);
        add_word(lab->where, "%s%s", urls ? watched_url(lab->watched) : NULL,
                 urls ? 0 : server_port(watched_primary(lab->watched)));
    } else {
        lab->quorum = strcmp(topology, "quorum") == 0;
        if (!lab->quorum && strcmp(topology, "one") != 0)
            return false;
        for (int i = 0; i < (lab->quorum ? MEMBERS : 1); i++) {
            lab->servers[i] = server_start(&options);
            add_word(lab->where, "%s%s", urls ? server_tcp_url(lab->servers[i]) : NULL,
                     server_port(lab->servers[i]));
        }
    }
    lab->book = server_start(NULL);
    return true;
}

static bool has_everything(const struct lab *lab) {
    switch (lab->fault) {
    case WIPE:
    case CLOCK:
    case CLOCK_BACK:
    case FREEZE:
    case POWER_ALWAYS:
    case POWER_EVERYSEC:
    case POWER_SNAPSHOTS:
        return lab->servers[0] != NULL && !lab->quorum;
    case FOLLOWER_CUT:
        return lab->zk != NULL;
    case MEMBERS_WIPED:
        return lab->quorum;
    case FAILOVER:
        return lab->watched != NULL;
    default:
        return true;
    }
}

static void play(struct lab *lab) {
    while (!is_over(lab) || lab->mend_ms != 0) {
        for (int i = 0; i < WORKERS; i++)
            step_worker(lab, &lab->workers[i]);
        note_whether_free(lab);
        if (lab->frozen != NULL && now_ms() >= lab->thaw_ms) {
            server_unfreeze(lab->frozen);
            lab->frozen = NULL;
        }
        bool over = true;
        for (int i = 0; i < WORKERS; i++)
            over &= !lab->workers[i].victim;
        if (lab->mend_ms != 0 && over && now_ms() >= lab->mend_ms)
            mend(lab);
        (void)wait_a_moment();
    }
    /* Whoever is inside finishes. */
    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &lab->workers[i];
        int64_t limit_ms = now_ms() + HANG_MS;
        while (worker->state != IDLE) {
            step_worker(lab, worker);
            (void)wait_a_moment();
            if (now_ms() > limit_ms)
                support_die("worker %d does not end", i);
        }
    }
}

static void end(struct lab *lab) {
    for (int i = 0; i < WORKERS; i++) {
        remote_kill(lab->workers[i].remote);
        remote_free(lab->workers[i].remote);
    }
    for (int i = 0; i < MEMBERS; i++)
        server_free(lab->servers[i]);
    watched_free(lab->watched);
    shards_free(lab->shards);
    if (lab->zk != NULL)
        zk_net_free(lab->zk);
    server_free(lab->book);
}

int lab_register(const char *subject, const char *topology, const char *fault, unsigned seed,
                 int seconds, int limit) {
    struct lab lab = {.random = seed,
                      .fault = (enum fault)(sizeof faults / sizeof *faults),
                      .lease_ms = LEASE_MS,
                      .cut = -1,
                      .last = -1,
                      .found_ms = -1};
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (strcmp(subjects[i].name, subject) == 0)
            lab.subject = &subjects[i];
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i], fault) == 0)
            lab.fault = (enum fault)i;
    if (lab.subject == NULL || lab.fault >= sizeof faults / sizeof *faults) {
        fprintf(stderr, "lab: no such subject or fault: %s %s\n", subject, fault);
        return 2;
    }
    int status = build(lab.subject);
    if (status != 0)
        return status;
    if (strcmp(topology, "zk") == 0) {
        zk_need();
        zk_net_need();
    }
    if ((lab.fault == CLOCK || lab.fault == CLOCK_BACK) && !step_preload(HF_TEST_STEPPED_CLOCK)) {
        fputs("SKIP: the clock of this server cannot be stepped\n", stderr);
        return EXIT_SKIPPED;
    }
    bool power =
        lab.fault == POWER_ALWAYS || lab.fault == POWER_EVERYSEC || lab.fault == POWER_SNAPSHOTS;
    if (power && !power_preload(HF_TEST_SYNCED)) {
        fputs("SKIP: what this server syncs is not known\n", stderr);
        return EXIT_SKIPPED;
    }
    if (!start_servers(&lab, topology) || !has_everything(&lab)) {
        fprintf(stderr, "lab: %s does not go with the topology %s\n", fault, topology);
        return 2;
    }
    for (int i = 0; i < WORKERS; i++) {
        lab.workers[i].number = i;
        start_worker(&lab, &lab.workers[i]);
    }
    lab.begin_ms = now_ms();
    lab.end_ms = lab.begin_ms + (int64_t)seconds * 1000;
    lab.limit_ms = limit > 0 ? lab.begin_ms + (int64_t)limit * 1000 : 0;
    lab.calm_until_ms = lab.begin_ms + CALM_MS;
    play(&lab);
    printf("attempts=%lld acquired=%lld busy=%lld errors=%lld writes=%lld lost=%lld "
           "refused_by_deadline=%lld rejected_by_token=%lld release_failed=%lld faults=%lld "
           "stranded=%lld silent_ms=%lld free_ms=%lld found_ms=%lld\n",
           lab.attempts, lab.acquired, lab.busy, lab.errors, lab.writes, lab.lost, lab.refused,
           lab.rejected, lab.released_lost, lab.faults, lab.stranded, (long long)lab.silent_ms,
           (long long)lab.free_ms, (long long)lab.found_ms);
    end(&lab);
    if (lab.fault != NONE && lab.faults == 0) {
        fputs("lab: nobody was inside, so no fault came\n", stderr);
        return 2;
    }
    return lab.lost > 0 || lab.stranded > 0 ? 1 : 0;
}
