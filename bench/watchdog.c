/*
 * Ten thousand watchdog holds on one client: are they all renewed in time, and with how many
 * commands?
 *
 * One thread acquires them all, then polls every hold for some periods: the time left according to the
 * library (no I/O), and according to the server (PTTL, pipelined). Renewal is due when two
 * thirds of the lease are left; a hold that is ever seen with less than half of it is late: that
 * is also where the library itself would warn. Batches are counted by the server: nothing else runs
 * scripts meanwhile.
 */
#include "bench.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#define HOLDS 10000
#define WATCHDOG_MS 3000
#define PERIODS 4
#define LOOK_EVERY_MS 50

struct seen {
    int64_t least_ms; /* the shortest time left, of any hold at any moment */
    uint64_t late;    /* looks that found less than half of the lease */
};

static void note(struct seen *seen, int64_t left_ms) {
    if (left_ms < seen->least_ms)
        seen->least_ms = left_ms;
    if (left_ms < WATCHDOG_MS / 2)
        seen->late++;
}

static void name_of(int index, char *name, size_t size) {
    snprintf(name, size, "bench-watched-%d", index);
}

static void look_at_server(redisContext *context, struct seen *seen) {
    char name[64];
    for (int i = 0; i < HOLDS; i++) {
        name_of(i, name, sizeof name);
        redisAppendCommand(context, "PTTL %s", name);
    }
    for (int i = 0; i < HOLDS; i++) {
        void *answer = NULL;
        if (redisGetReply(context, &answer) != REDIS_OK)
            die("PTTL: %s", context->errstr);
        redisReply *reply = answer;
        note(seen, reply->integer); /* -2, gone, is the latest of all */
        freeReplyObject(reply);
    }
}

static void look_at_client(hf_lock **locks, struct seen *seen) {
    for (int i = 0; i < HOLDS; i++)
        note(seen, hf_lock_remaining_ms(locks[i]));
}

static void print(const struct bench *bench, const struct seen *client, const struct seen *server,
                  const hf_stats *stats, double batches, double seconds) {
    double renewals = (double)stats->renewals;
    printf("\n%d watchdog holds on one client, lease %d ms, watched for %.1f s\n\n", HOLDS,
           WATCHDOG_MS, seconds);
    printf("| what                                          |     seen |\n");
    printf("|-----------------------------------------------|---------:|\n");
    printf("| renewals per hold                             | %8.2f |\n", renewals / HOLDS);
    printf("| renewal scripts, and keys in each             | %.0f, %.1f |\n", batches,
           renewals / batches);
    printf("| shortest time left, by the server (2000: due) | %5ld ms |\n", (long)server->least_ms);
    printf("| shortest time left, by the client             | %5ld ms |\n", (long)client->least_ms);
    printf("| looks that found a hold late (less than half) | %8lu |\n",
           (unsigned long)(server->late + client->late));
    printf("| failed renewals, lost holds                   |   %lu, %lu   |\n",
           (unsigned long)stats->renew_failures, (unsigned long)stats->losses);
    fflush(stdout);
    if (bench->json != NULL)
        fprintf(
            bench->json,
            "{\"group\":\"watchdog\",\"holds\":%d,\"lease_ms\":%d,\"seconds\":%.3f,"
            "\"renewals\":%.0f,\"scripts\":%.0f,\"least_server_ms\":%ld,\"least_client_ms\":%ld,"
            "\"late\":%lu,\"failed\":%lu,\"lost\":%lu}\n",
            HOLDS, WATCHDOG_MS, seconds, renewals, batches, (long)server->least_ms,
            (long)client->least_ms, (unsigned long)(server->late + client->late),
            (unsigned long)stats->renew_failures, (unsigned long)stats->losses);
}

void report_watchdog(const struct bench *bench) {
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = WATCHDOG_MS;
    hf_client *client;
    hf_lock **locks = calloc(HOLDS, sizeof(hf_lock *));
    redisContext *context = connect_hiredis(bench);
    if (locks == NULL)
        die("out of memory");
    check(hf_open(bench->url, &options, &client), "hf_open");
    for (int i = 0; i < HOLDS; i++) {
        char name[64];
        name_of(i, name, sizeof name);
        check(hf_lock_new(client, name, &locks[i]), "hf_lock_new");
        check(hf_lock_acquire(locks[i]), "acquire");
    }
    struct seen by_client = {.least_ms = WATCHDOG_MS}, by_server = {.least_ms = WATCHDOG_MS};
    hf_stats before = HF_STATS_INIT, after = HF_STATS_INIT;
    check(hf_client_stats(client, &before), "hf_client_stats");
    double scripts = script_calls(bench);
    int64_t start_ns = now_ns(), end_ns = start_ns + (int64_t)PERIODS * WATCHDOG_MS / 3 * 1000000;
    while (now_ns() < end_ns) {
        look_at_server(context, &by_server);
        look_at_client(locks, &by_client);
        sleep_ms(LOOK_EVERY_MS);
    }
    scripts = script_calls(bench) - scripts;
    check(hf_client_stats(client, &after), "hf_client_stats");
    after.renewals -= before.renewals;
    print(bench, &by_client, &by_server, &after, scripts, (double)(now_ns() - start_ns) / 1e9);
    for (int i = 0; i < HOLDS; i++) {
        check(hf_lock_release(locks[i]), "release");
        hf_lock_free(locks[i]);
    }
    hf_close(client);
    redisFree(context);
    free(locks);
}
