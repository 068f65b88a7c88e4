/*
 * A fair lock with 10 to 10 000 waiters in its queue: what does it cost the server to hand it over?
 *
 * One client, one thread, asynchronous waiters with owners of their own. Each holder releases the lock
 * and queues again, so the queue keeps its length. The server's time is what INFO commandstats reports
 * for scripts, divided by hand-overs; it includes the acquire that queues again and now and then a
 * waiter's sign of life. "scripts" is the number of scripts.
 */
#include "bench.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#define NAME "bench-queue"
#define ROUNDS 7
#define HANDOVERS 500
#define WAIT_ALL_MS 60000

static const int lengths[] = {10, 100, 1000, 10000};

struct line {
    hf_client *client;
    hf_lock *lock;
    long granted;
    struct waiter *holder; /* the last who got it */
    bool open; /* they go on; else whoever has the lock keeps it, and nobody lines up again */
};

struct waiter {
    struct line *line;
    hf_owner owner;
};

static void enqueue(struct waiter *waiter);

static void on_released(hf_op *op, const hf_result *result, void *user) {
    struct waiter *waiter = user;
    (void)op;
    if (result->code == HF_ECLOSED)
        return;
    check(result->code, "release");
    if (waiter->line->open)
        enqueue(waiter);
}

static void on_granted(hf_op *op, const hf_result *result, void *user) {
    struct waiter *waiter = user;
    (void)op;
    if (result->code == HF_ECLOSED)
        return;
    check(result->code, "acquire");
    waiter->line->granted++;
    waiter->line->holder = waiter;
    if (waiter->line->open)
        check(hf_lock_release_start(waiter->line->lock, waiter->owner, on_released, waiter, NULL),
              "release_start");
}

static void enqueue(struct waiter *waiter) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = waiter->owner;
    check(hf_lock_acquire_start(waiter->line->lock, &options, on_granted, waiter, NULL),
          "acquire_start");
}

static void dispatch_for(struct line *line, int64_t ms) {
    int64_t end_ns = now_ns() + ms * 1000000;
    while (now_ns() < end_ns)
        if (hf_dispatch(line->client, 10) < 0)
            die("hf_dispatch: %s", hf_last_error()->text);
}

static long long queue_length(redisContext *context) {
    redisReply *reply = redisCommand(context, "LLEN redisson_lock_queue:{%s}", NAME);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER)
        die("LLEN: %s", reply != NULL ? reply->str : context->errstr);
    long long length = reply->integer;
    freeReplyObject(reply);
    return length;
}

/* All of them in the queue, and listening: then nothing is sent any more but signs of life. */
static void wait_until_quiet(const struct bench *bench, struct line *line, redisContext *context,
                             int n) {
    int64_t end_ns = now_ns() + (int64_t)WAIT_ALL_MS * 1000000;
    double before, after = -1;
    do {
        if (now_ns() > end_ns)
            die("%d waiters did not line up", n);
        before = after;
        dispatch_for(line, 300);
        after = script_calls(bench);
    } while (queue_length(context) < n || after - before > n / 50.0);
}

struct cost {
    double server_us, scripts, wall_us; /* of a hand-over */
};

static double script_us(const struct bench *bench) {
    redisContext *context = connect_hiredis(bench);
    redisReply *reply = redisCommand(context, "INFO commandstats");
    const char *line = reply != NULL ? strstr(reply->str, "cmdstat_evalsha:") : NULL;
    const char *us = line != NULL ? strstr(line, "usec=") : NULL;
    double value = us != NULL ? strtod(us + 5, NULL) : 0;
    freeReplyObject(reply);
    redisFree(context);
    return value;
}

static struct cost measure_round(const struct bench *bench, struct line *line) {
    double us = script_us(bench), scripts = script_calls(bench);
    long before = line->granted;
    int64_t start_ns = now_ns();
    while (line->granted < before + HANDOVERS)
        if (hf_dispatch(line->client, 1000) <= 0)
            die("no waiter got the lock for a second");
    double handovers = (double)(line->granted - before);
    return (struct cost){.server_us = (script_us(bench) - us) / handovers,
                         .scripts = (script_calls(bench) - scripts) / handovers,
                         .wall_us = (double)(now_ns() - start_ns) / 1e3 / handovers};
}

static struct cost measure_length(const struct bench *bench, int n) {
    struct line line = {.open = false};
    hf_options options = HF_OPTIONS_INIT;
    options.flags = HF_MANUAL_DISPATCH;
    check(hf_open(bench->url, &options, &line.client), "hf_open");
    hf_lock_options fair = HF_LOCK_OPTIONS_INIT;
    fair.kind = HF_FAIR;
    check(hf_lock_new_with(line.client, NAME, strlen(NAME), &fair, &line.lock), "new");
    struct waiter *waiters = calloc((size_t)n + 1, sizeof *waiters);
    redisContext *context = connect_hiredis(bench);
    if (waiters == NULL)
        die("out of memory");
    for (int i = 0; i <= n; i++) { /* one of them is the first holder */
        waiters[i] = (struct waiter){.line = &line, .owner = (hf_owner)i + 1};
        enqueue(&waiters[i]);
    }
    wait_until_quiet(bench, &line, context, n);
    line.open = true;
    check(hf_lock_release_start(line.lock, line.holder->owner, on_released, line.holder, NULL),
          "release_start");
    measure_round(bench, &line); /* warms up */
    double values[3][ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct cost cost = measure_round(bench, &line);
        values[0][i] = cost.server_us;
        values[1][i] = cost.scripts;
        values[2][i] = cost.wall_us;
    }
    line.open = false;
    hf_close(line.client);
    hf_lock_free(line.lock);
    redisReply *reply = redisCommand(
        context, "DEL %s redisson_lock_queue:{%s} redisson_lock_timeout:{%s} holdfast_fair:{%s}",
        NAME, NAME, NAME, NAME);
    freeReplyObject(reply);
    redisFree(context);
    free(waiters);
    return (struct cost){median(values[0], ROUNDS), median(values[1], ROUNDS),
                         median(values[2], ROUNDS)};
}

void report_queue(const struct bench *bench) {
    double first_us = 0;
    printf("\na fair lock with many in its queue: per hand-over, %d of them, medians of %d\n\n",
           HANDOVERS, ROUNDS);
    printf("| in the queue | server us | against 10 | scripts | wall us |\n");
    printf("|-------------:|----------:|-----------:|--------:|--------:|\n");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct cost cost = measure_length(bench, lengths[i]);
        if (first_us == 0)
            first_us = cost.server_us;
        printf("| %12d | %9.1f | %10.2f | %7.2f | %7.1f |\n", lengths[i], cost.server_us,
               cost.server_us / first_us, cost.scripts, cost.wall_us);
        fflush(stdout);
        if (bench->json != NULL)
            fprintf(bench->json,
                    "{\"group\":\"queue\",\"waiters\":%d,\"server_us\":%.2f,\"scripts\":%.2f,"
                    "\"wall_us\":%.2f}\n",
                    lengths[i], cost.server_us, cost.scripts, cost.wall_us);
    }
}
