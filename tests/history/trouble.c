/*
 * What a run does to its players: kills, pauses, restarts, lost replies, sabotage; and the looks at
 * the line of fair locks, by which their order can be judged.
 *
 * Called by the driver's one thread. Whatever ends or empties something is written down, with the
 * times between which it happened.
 */
#include "kinds.h"
#include "play.h"

#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MS (PLAY_WATCHDOG_MS + 300) /* longer than any lease */
#define LATE_MS 1200
#define A_SCRIPT "\r\nEVALSHA\r\n"

unsigned run_pick(struct run *run, unsigned below) {
    return (unsigned)rand_r(&run->random) % below;
}

static bool now_and_then(struct run *run, unsigned trouble, unsigned every_ms) {
    return (run->plan->troubles & trouble) != 0 && run_pick(run, every_ms) == 0;
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
    run->resume_ms = now_ms() + PAUSE_MS;
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

/* ---- Network and server ---------------------------------------------------------------------- */

static void lose_something(struct run *run) {
    record_line(&run->record, "cut %lld", (long long)record_now_ns());
    switch (run_pick(run, 6)) {
    case 0:
        proxy_cut_all(run->proxy);
        break;
    case 1:
        proxy_cut_connections(run->proxy, "\r\nSUBSCRIBE\r\n");
        break;
    case 2:
        if (run->late_ms == 0) {
            proxy_hold_request(run->proxy, A_SCRIPT);
            run->late_ms = now_ms() + run_pick(run, LATE_MS);
        }
        break;
    default:
        proxy_drop_replies_after(run->proxy, A_SCRIPT);
        break;
    }
}

static void deliver_late(struct run *run) {
    proxy_release_held(run->proxy);
    run->late_ms = 0;
}

static void restart(struct run *run) {
    bool wiped = (run->plan->troubles & TROUBLE_WIPE) != 0;
    int64_t from_ns = record_now_ns();
    server_restart(run->server);
    record_line(&run->record, "cut %lld", (long long)from_ns);
    if (wiped)
        record_line(&run->record, "wipe %lld %lld", (long long)from_ns, (long long)record_now_ns());
}

static void sabotage(struct run *run) {
    const struct kind *kind = &history_kinds[run_pick(run, (unsigned)history_kinds_len)];
    char name[48];
    play_name(kind->name, run->begin_ms, name);
    cmd_ok(run->server, "EVAL %s 1 %s", kind->sabotage, name);
}

/* ---- Looks at the line ------------------------------------------------------------------------ */

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
    redisReply *reply = cmd(run->server, "EVAL %s 2 %s redisson_lock_queue:{%s}", both, name, name);
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

void trouble_step(struct run *run) {
    if (run_pick(run, 8) == 0)
        look_at_line(run);
    if (now_and_then(run, TROUBLE_KILL, 700))
        kill_one(run);
    if (now_and_then(run, TROUBLE_PAUSE, 500))
        pause_one(run);
    if (run->paused != PLAY_PROCESSES && now_ms() >= run->resume_ms)
        resume(run);
    if (now_and_then(run, TROUBLE_LOSE, 40))
        lose_something(run);
    if (run->late_ms != 0 && now_ms() >= run->late_ms)
        deliver_late(run);
    if (now_and_then(run, TROUBLE_RESTART | TROUBLE_WIPE, 700))
        restart(run);
    if (now_and_then(run, TROUBLE_SABOTAGE, 4))
        sabotage(run);
}

void trouble_end(struct run *run) {
    resume(run);
    if (run->late_ms != 0)
        deliver_late(run);
    if (run->proxy != NULL)
        proxy_heal(run->proxy);
}
