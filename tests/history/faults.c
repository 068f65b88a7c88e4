/*
 * What a run does to its players: kills, pauses, restarts, lost replies, sabotage; and the looks at
 * the queue of fair locks, by which their order can be judged.
 *
 * Called by the driver's one thread. Whatever ends or empties something is written down, with the
 * times between which it happened.
 */
#include "play.h"

#include "support/power.h"
#include "support/step.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_MS (PLAY_WATCHDOG_MS + 300) /* longer than any lease */
#define ROUTE_PAUSE_MS (ROUTE_WATCHDOG_MS + 300)
#define SESSION_PAUSE_MS (ZK_WATCHDOG_MS + 1500)
#define LATE_MS 1200
#define FROZEN_MS 2000 /* a server is, at most */
#define BACK_MS 400    /* a clock is stepped, at most */
#define DRIFT_PPM 8000 /* of 10000 that clients allow for */
#define OPEN_MS 100    /* a slot is, at most */
#define CUT_OFF_MS 200 /* a replica is, before it takes over */
#define REST_MS                                                                                    \
    4000 /* of a primary, between two restarts: a cluster keeps it out for half of that */
#define SLOTS 16384
#define MAJORITY 3 /* of PLAY_SERVERS */
#define A_SCRIPT "\r\nEVALSHA\r\n"

unsigned run_pick(struct run *run, unsigned below) {
    return (unsigned)rand_r(&run->random) % below;
}

static bool now_and_then(struct run *run, unsigned fault, unsigned every_ms) {
    return (run->plan->faults & fault) != 0 && run_pick(run, every_ms) == 0;
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void kill_one(struct run *run) {
    size_t i = run_pick(run, PLAY_PROCESSES);
    if (i == run->paused)
        return;
    kill_child(run->pids[i]);
    record_line(&run->record, "kill %s %lld", run->parts[i].process, (long long)record_now_ns());
    run_spawn(run, i);
}

static void pause_one(struct run *run) {
    if (run->paused != PLAY_PROCESSES)
        return;
    run->paused = run_pick(run, PLAY_PROCESSES);
    run->paused_ns = record_now_ns();
    const struct kinds *kinds = run->plan->kinds;
    run->resume_ms = now_ms() + (kinds->moving     ? ROUTE_PAUSE_MS
                                 : kinds->sessions ? SESSION_PAUSE_MS
                                                   : PAUSE_MS);
    stop_process(run->pids[run->paused]);
}

static void resume(struct run *run) {
    if (run->paused == PLAY_PROCESSES)
        return;
    kill(run->pids[run->paused], SIGCONT);
    record_line(&run->record, "pause %s %lld %lld", run->parts[run->paused].process,
                (long long)run->paused_ns, (long long)record_now_ns());
    run->paused = PLAY_PROCESSES;
}

/* Each at a moment of its own, not right at the beginning or the end. */
static void choose_kills_of_jvms(struct run *run) {
    unsigned duration_ms = (unsigned)run->plan->duration_ms;
    for (size_t i = 0; i < PLAY_JVMS; i++)
        run->kill_jvm_ms[i] = run->begin_ms + duration_ms / 6 + run_pick(run, duration_ms * 2 / 3);
}

static void kill_jvms(struct run *run) {
    for (size_t i = 0; i < PLAY_JVMS; i++)
        if (run->java[i] != NULL && now_ms() >= run->kill_jvm_ms[i])
            java_players_kill(run->java[i]);
}

/* ---- Network and servers --------------------------------------------------------------------- */

static void lose_something(struct run *run) {
    size_t i = run_pick(run, (unsigned)run->servers_len);
    struct proxy *proxy = run->proxies[i];
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
    switch (run_pick(run, 6)) {
    case 0:
        proxy_cut_all(proxy);
        break;
    case 1:
        proxy_cut_connections(proxy, "\r\nSUBSCRIBE\r\n");
        break;
    case 2:
        if (run->late_ms[i] == 0) {
            proxy_hold_request(proxy, A_SCRIPT);
            run->late_ms[i] = now_ms() + run_pick(run, LATE_MS);
        }
        break;
    default:
        proxy_drop_replies_after(proxy, A_SCRIPT);
        break;
    }
}

static void deliver_late(struct run *run, size_t i) {
    proxy_release_held(run->proxies[i]);
    run->late_ms[i] = 0;
}

/* A client that reaches a server through its proxy does not for a while, or is not reached; what
 * was sent arrives after that. */
static void cut_ways(struct run *run, size_t i, bool to, bool from) {
    if (run->apart_ms[i] != 0)
        return;
    proxy_blackhole(run->proxies[i], to, from);
    run->apart_ms[i] = now_ms() + run_pick(run, LATE_MS);
}

static void cut_off(struct run *run, size_t i) {
    cut_ways(run, i, true, true);
}

static void cut_one_way(struct run *run) {
    bool to = run_pick(run, 2) == 0;
    size_t i = run_pick(run, (unsigned)run->servers_len);
    int64_t now_ns = record_now_ns();
    if (run->apart_ms[i] != 0)
        return;
    record_line(&run->record, "cut %lld", (long long)now_ns);
    record_line(&run->record, "fault one-way-%s %lld", to ? "out" : "in", (long long)now_ns);
    cut_ways(run, i, to, !to);
}

/* Of a quorum; two processes of three are behind the proxies. */
static void part_from_majority(struct run *run) {
    size_t first = run_pick(run, (unsigned)run->servers_len);
    int64_t now_ns = record_now_ns();
    record_line(&run->record, "cut %lld", (long long)now_ns);
    record_line(&run->record, "fault majority-cut %lld", (long long)now_ns);
    for (size_t i = 0; i < MAJORITY; i++)
        cut_off(run, (first + i) % run->servers_len);
}

static void join_again(struct run *run, size_t i) {
    proxy_blackhole(run->proxies[i], false, false);
    run->apart_ms[i] = 0;
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
}

static void mend(struct run *run, bool all) {
    for (size_t i = 0; i < run->servers_len; i++) {
        if (run->late_ms[i] != 0 && (all || now_ms() >= run->late_ms[i]))
            deliver_late(run, i);
        if (run->apart_ms[i] != 0 && (all || now_ms() >= run->apart_ms[i]))
            join_again(run, i);
    }
}

/* Its power is lost, or it is killed. */
static void relaunch(struct run *run, struct server *server) {
    if ((run->plan->faults & FAULT_POWER) != 0)
        (void)power_loss(server);
    else
        server_relaunch(server);
}

static void restart(struct run *run, size_t first, size_t len) {
    bool wiped = (run->plan->faults & FAULT_WIPE) != 0 || run->plan->everysec;
    int64_t from_ns = record_now_ns();
    record_line(&run->record, "cut %lld", (long long)from_ns);
    for (size_t i = 0; i < len; i++)
        relaunch(run, run->servers[(first + i) % run->servers_len]);
    for (size_t i = 0; i < len; i++)
        server_wait_ready(run->servers[(first + i) % run->servers_len]);
    if (wiped)
        record_line(&run->record, "wipe %lld %lld", (long long)from_ns, (long long)record_now_ns());
}

/* A majority of a quorum forgets, and clients that are far away hear nothing of it for a while. */
static void forget(struct run *run, size_t first) {
    for (size_t i = 0; i < MAJORITY; i++)
        cut_off(run, (first + i) % run->servers_len);
    restart(run, first, MAJORITY);
}

/* The primary, or one of a cluster's, is killed and comes back before anybody takes its place. */
static void restart_on_route(struct run *run) {
    struct server *server = run->shards != NULL ? shards_owner(run->shards, run_pick(run, SLOTS))
                                                : watched_primary(run->watched);
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
    server_relaunch(server);
    server_wait_ready(server);
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
    run->rest_ms = now_ms() + REST_MS;
}

static void restart_member(struct run *run) {
    struct zk *member = zk_member(run->zk, (int)run_pick(run, ZK_MEMBERS));
    if (member == run->frozen_zk)
        return;
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
    zk_kill(member);
    zk_launch(member);
    zk_wait_serving(member);
    run->rest_ms = now_ms() + REST_MS / 4;
}

static void restart_some(struct run *run) {
    if (run->zk != NULL) {
        restart_member(run);
        return;
    }
    if (run->servers_len == 0) {
        restart_on_route(run);
        return;
    }
    size_t first = run_pick(run, (unsigned)run->servers_len);
    if (run->far_urls[0] != '\0' && (run->plan->unguarded || run_pick(run, 3) == 0))
        forget(run, first);
    else
        restart(run, first, run->servers_len > 1 && run_pick(run, 2) == 0 ? MAJORITY : 1);
}

/* ---- Servers that stand still ---------------------------------------------------------------- */

static struct server *some_server(struct run *run) {
    if (run->servers_len > 0)
        return run->servers[run_pick(run, (unsigned)run->servers_len)];
    return run->shards != NULL ? shards_owner(run->shards, run_pick(run, SLOTS))
                               : watched_primary(run->watched);
}

static bool is_frozen(const struct run *run) {
    return run->frozen != NULL || run->frozen_zk != NULL;
}

/* Of an ensemble often the leader. */
static void freeze(struct run *run) {
    if (is_frozen(run))
        return;
    bool long_leases = run->plan->kinds->moving || run->plan->kinds->sessions;
    run->frozen_ns = record_now_ns();
    record_line(&run->record, "cut %lld", (long long)run->frozen_ns);
    if (run->zk != NULL) {
        int leader = zk_leader(run->zk);
        int member = leader >= 0 && run_pick(run, 2) == 0 ? leader : (int)run_pick(run, ZK_MEMBERS);
        run->frozen_zk = zk_member(run->zk, member);
        zk_freeze(run->frozen_zk);
    } else {
        run->frozen = some_server(run);
        server_freeze(run->frozen);
    }
    run->thaw_ms = now_ms() + run_pick(run, long_leases ? 3 * FROZEN_MS : FROZEN_MS);
}

static void thaw(struct run *run) {
    if (!is_frozen(run))
        return;
    if (run->frozen != NULL)
        server_unfreeze(run->frozen);
    else
        zk_unfreeze(run->frozen_zk);
    int64_t now_ns = record_now_ns();
    record_line(&run->record, "fault freeze %lld %lld", (long long)run->frozen_ns,
                (long long)now_ns);
    record_line(&run->record, "cut %lld", (long long)now_ns);
    run->frozen = NULL;
    run->frozen_zk = NULL;
    run->rest_ms = now_ms() + PLAY_NAME_MS;
}

static size_t servers_of_route(struct run *run) {
    return run->shards != NULL ? (size_t)shards_count(run->shards) : WATCHED_SERVERS;
}

static struct server *server_of_route(struct run *run, size_t i) {
    return run->shards != NULL ? shards_server(run->shards, (int)i)
                               : watched_server(run->watched, (int)i);
}

/* Whatever was asked may have been done, and nobody hears of it. */
static void hang_up(struct run *run) {
    struct server *server = some_server(run);
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
    cmd_ok(server, "CLIENT KILL TYPE %s", run_pick(run, 3) == 0 ? "pubsub" : "normal");
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Never forward again: then leases would end before their time, as nobody promises that they do not. */
static void step_back(struct run *run) {
    size_t len = run->servers_len > 0 ? run->servers_len : servers_of_route(run);
    size_t i = run_pick(run, (unsigned)len);
    struct server *server = run->servers_len > 0 ? run->servers[i] : server_of_route(run, i);
    run->step_ms[i] -= 1 + run_pick(run, BACK_MS);
    step_clock(server, run->step_ms[i]);
    record_line(&run->record, "fault clock-back %lld %lld", (long long)record_now_ns(),
                (long long)run->step_ms[i]);
}

/* Each at its own rate, from the beginning on: a rate that changes would be a step as well. */
static void drift(struct run *run) {
    size_t len = run->servers_len > 0 ? run->servers_len : servers_of_route(run);
    for (size_t i = 0; i < len; i++) {
        struct server *server = run->servers_len > 0 ? run->servers[i] : server_of_route(run, i);
        int ppm = run_pick(run, 2) == 0 ? DRIFT_PPM : -DRIFT_PPM;
        step_slew(server, ppm);
        record_line(&run->record, "fault drift %lld %d", (long long)record_now_ns(), ppm);
    }
}

/* Of all processes of the run, forward and back. */
static void step_own(struct run *run) {
    int64_t step_ms = (int64_t)run_pick(run, 7200000) - 3600000;
    step_this(step_ms);
    record_line(&run->record, "fault own-clock %lld %lld", (long long)record_now_ns(),
                (long long)step_ms);
}

/* A server of a route that restarts has its data. */
static void keep_data(struct run *run) {
    for (size_t i = 0; i < servers_of_route(run); i++) {
        struct server *server = server_of_route(run, i);
        cmd_ok(server, "CONFIG SET appendfsync always");
        cmd_ok(server, "CONFIG SET appendonly yes");
        cmd_ok(server, "CONFIG REWRITE");
    }
}

/* ---- A primary that changes ------------------------------------------------------------------ */

/* The last writes of the primary are not at the replicas, for certain: they have forgotten all of it. */
static void forget_at_replicas(struct run *run, const struct server *primary) {
    for (int i = 0; i < WATCHED_SERVERS; i++) {
        struct server *replica = watched_server(run->watched, i);
        if (replica == primary)
            continue;
        cmd_ok(replica, "CONFIG SET replica-read-only no");
        cmd_ok(replica, "FLUSHALL");
        cmd_ok(replica, "CONFIG SET replica-read-only yes");
    }
}

/* By hand, so that the old primary answers until it is demoted, or by its death. Replicas forget only when it
 * is dead: else what it goes on to send them would be a part of something that they do not have. The
 * sentinels would wait long until they take it for dead, so the test asks them. */
static void replace_primary(struct run *run, bool loses) {
    struct server *old = watched_primary(run->watched);
    if (loses || run_pick(run, 2) != 0)
        server_kill(old);
    if (loses)
        forget_at_replicas(run, old);
    watched_fail_over(run->watched);
    watched_wait_switch(run->watched, old);
    watched_heal(run->watched);
}

/* The same for one of a cluster. What is lost is what it wrote while its replica was cut off. */
static void replace_one_of_several(struct run *run, bool loses) {
    struct server *old = shards_owner(run->shards, run_pick(run, SLOTS));
    if (loses) {
        shards_cut_off_replica(run->shards, old);
        linger(1 + run_pick(run, CUT_OFF_MS));
    }
    if (!loses && run_pick(run, 2) == 0)
        shards_fail_over(run->shards, old);
    else
        shards_lose_writes(run->shards, old);
    shards_mend(run->shards);
}

static void fail_over(struct run *run) {
    bool loses = run->plan->unreported || run_pick(run, 2) == 0;
    int64_t from_ns = record_now_ns();
    record_line(&run->record, "cut %lld", (long long)from_ns);
    if (run->shards != NULL)
        replace_one_of_several(run, loses);
    else
        replace_primary(run, loses);
    int64_t to_ns = record_now_ns();
    int64_t notified_ns = to_ns + ROUTE_WATCHDOG_MS * INT64_C(1000000);
    if (!run->plan->unreported)
        record_line(&run->record, "change %lld %lld %lld", (long long)from_ns, (long long)to_ns,
                    (long long)notified_ns);
    run->rest_ms = now_ms() + 2 * PLAY_NAME_MS;
}

/* ---- Slots that move ------------------------------------------------------------------------- */

/* What is played just now, perhaps with a while between its keys. Nothing may come of it, so nothing is
 * written down. */
static void move_slot(struct run *run) {
    const struct kinds *kinds = run->plan->kinds;
    char name[48];
    play_name(kinds->all[run_pick(run, (unsigned)kinds->len)].name, run->begin_ms, name);
    unsigned slot = shards_slot(run->shards, name);
    struct server *from = shards_owner(run->shards, slot), *to = shards_other(run->shards, from);
    shards_open_slot(run->shards, slot, from, to);
    if (run_pick(run, 2) == 0)
        shards_move_key(run->shards, from, to, name);
    linger(run_pick(run, OPEN_MS));
    shards_move_keys(run->shards, slot, from, to);
    shards_close_slot(run->shards, slot, from, to);
}

static void sabotage(struct run *run) {
    const struct kinds *kinds = run->plan->kinds;
    const struct kind *kind = &kinds->all[run_pick(run, (unsigned)kinds->len)];
    char name[48];
    play_name(kind->name, run->begin_ms, name);
    for (size_t i = 0; i < run->servers_len; i++)
        cmd_ok(run->servers[i], "EVAL %s 1 %s", kind->sabotage, name);
}

/* ---- Reads of the queue ----------------------------------------------------------------------- */

static void add_words(char *text, size_t size, const redisReply *words) {
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < words->elements && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s", i > 0 ? "," : "",
                                words->element[i]->str);
}

/* Holder and waiters at one moment, from the server itself: no call of ours shows them together. */
static void look_at_line(struct run *run) {
    static const char both[] =
        "return {redis.call('hkeys', KEYS[1]), redis.call('lrange', KEYS[2], 0, -1)}";
    char name[48], holder[256], queue[3000];
    play_name("fair", run->begin_ms, name);
    struct subject subject = {.name = name, .kind = "fair", .owner = "driver"};
    struct operation operation = record_call(&run->record, &subject, "look", " ");
    redisReply *reply =
        cmd(run->servers[0], "EVAL %s 2 %s redisson_lock_queue:{%s}", both, name, name);
    bool known = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;
    if (known) {
        add_words(holder, sizeof holder, reply->element[0]);
        add_words(queue, sizeof queue, reply->element[1]);
    }
    record_return(&operation, known ? HF_OK : HF_EUNREACH, "holder=%s queue=%s",
                  known ? holder : "", known ? queue : "");
    freeReplyObject(reply);
}

/* ---- All of it ------------------------------------------------------------------------------- */

void faults_begin(struct run *run) {
    run->rest_ms = run->begin_ms + PLAY_NAME_MS;
    choose_kills_of_jvms(run);
    if ((run->plan->faults & FAULT_DRIFT) != 0)
        drift(run);
    if ((run->plan->faults & FAULT_RESTART) != 0 && run->plan->kinds->moving)
        keep_data(run);
}

/* What befalls servers, one at a time. */
static void strike_servers(struct run *run) {
    bool rested = now_ms() >= run->rest_ms && !is_frozen(run);
    bool alone = run->servers_len > 0;
    unsigned restarts = FAULT_RESTART | FAULT_WIPE | FAULT_POWER;
    if (run->thaw_ms != 0 && now_ms() >= run->thaw_ms)
        thaw(run);
    if ((alone ? !is_frozen(run) : rested) &&
        now_and_then(run, restarts, run->plan->unguarded ? 300 : 700))
        restart_some(run);
    if (rested && now_and_then(run, FAULT_FREEZE, 400))
        freeze(run);
    if (!is_frozen(run) && now_and_then(run, FAULT_HANG_UP, 150))
        hang_up(run);
    if (!is_frozen(run) && now_and_then(run, FAULT_BACK, 150))
        step_back(run);
    if (now_and_then(run, FAULT_OWN_CLOCK, 100))
        step_own(run);
    if (rested && now_and_then(run, FAULT_FAIL_OVER, 300))
        fail_over(run);
}

void faults_step(struct run *run) {
    bool quorum = run->plan->kinds->quorum;
    if (run->plan->kinds == &kinds_of_one_server && !is_frozen(run) && run_pick(run, 8) == 0)
        look_at_line(run);
    if (now_and_then(run, FAULT_KILL, 700))
        kill_one(run);
    if (now_and_then(run, FAULT_PAUSE, 500))
        pause_one(run);
    if (run->paused != PLAY_PROCESSES && now_ms() >= run->resume_ms)
        resume(run);
    if ((run->plan->faults & FAULT_KILL_JVM) != 0)
        kill_jvms(run);
    if (now_and_then(run, FAULT_LOSE, 40))
        lose_something(run);
    if (quorum && now_and_then(run, FAULT_LOSE, 300))
        cut_off(run, run_pick(run, (unsigned)run->servers_len));
    if (now_and_then(run, FAULT_ONE_WAY, 150))
        cut_one_way(run);
    if (quorum && now_and_then(run, FAULT_PART, 300))
        part_from_majority(run);
    mend(run, false);
    strike_servers(run);
    if (now_and_then(run, FAULT_SABOTAGE, 4))
        sabotage(run);
    if (now_and_then(run, FAULT_MOVE, 50))
        move_slot(run);
}

void faults_end(struct run *run) {
    resume(run);
    thaw(run);
    if ((run->plan->faults & FAULT_OWN_CLOCK) != 0)
        step_this(0);
    mend(run, true);
    for (size_t i = 0; i < run->servers_len; i++)
        if (run->proxies[i] != NULL)
            proxy_heal(run->proxies[i]);
}
