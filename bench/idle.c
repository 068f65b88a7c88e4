/*
 * What it costs to do nothing: many watchdog holds, and for each a waiter, all on one client.
 *
 * The holds are renewed, and waiters poll at least every ten seconds in case they missed a
 * message. Measured is the processor time of the client and of the server while nothing else
 * happens, as a part of one processor.
 */
#include "bench.h"

#include <stdlib.h>

#define MANY 100000
#define MANY_AT_A_GLANCE 10000
#define WATCHED_MS 30000 /* three renewals, and three looks at least */
#define STARTED_AT_ONCE 1000
#define SETTLED_MS 5000 /* by then the last have asked once more */

static void on_end(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    (void)result;
    (void)user;
}

/* So many of them listen. */
static void wait_for_listeners(const struct bench *bench, int n) {
    while (server_info(bench, "stats", "pubsub_channels:") < n)
        sleep_ms(5);
}

static void print(const struct bench *bench, int n, const struct sample *sample) {
    double client = 100 * sample->client_cpu_s / sample->seconds;
    double server = 100 * sample->server_cpu_s / sample->seconds;
    printf("\n%d holds and as many waiters on one client, idle for %.0f s\n\n", n, sample->seconds);
    printf("| what                         |   seen | at most           |\n");
    printf("|------------------------------|-------:|-------------------|\n");
    printf("| client, of one processor     | %4.1f %% | 2 %%%s |\n", client,
           client <= 2 ? "              " : " (NOT REACHED)");
    printf("| server, of one processor     | %4.1f %% | 6 %%%s |\n", server,
           server <= 6 ? "              " : " (NOT REACHED)");
    printf("| scripts in a second          | %6.0f |                   |\n",
           sample->scripts / sample->seconds);
    fflush(stdout);
    if (bench->json != NULL)
        fprintf(bench->json,
                "{\"group\":\"idle\",\"holds\":%d,\"waiters\":%d,\"seconds\":%.3f,"
                "\"client_percent\":%.3f,\"server_percent\":%.3f,\"scripts\":%.0f}\n",
                n, n, sample->seconds, client, server, sample->scripts);
}

void report_idle(const struct bench *bench) {
    int n = bench->run_ms < 1000 ? MANY_AT_A_GLANCE : MANY;
    hf_lock **locks = calloc((size_t)n, sizeof(hf_lock *));
    hf_client *client;
    struct meter meter;
    struct sample sample = {0};
    if (locks == NULL)
        die("out of memory");
    check(hf_open(bench->url, NULL, &client), "hf_open");
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "bench-idle-%d", i);
        check(hf_lock_new(client, name, &locks[i]), "hf_lock_new");
        check(hf_lock_acquire(locks[i]), "acquire");
    }
    for (int i = 0; i < n; i++) {
        check(hf_lock_acquire_start(locks[i], NULL, on_end, NULL, NULL), "acquire_start");
        if (i % STARTED_AT_ONCE == STARTED_AT_ONCE - 1)
            wait_for_listeners(bench, i + 1);
    }
    sleep_ms(SETTLED_MS);
    meter_start(bench, &meter);
    sleep_ms(WATCHED_MS);
    meter_stop(bench, &meter, 0, &sample);
    print(bench, n, &sample);
    check(hf_close(client), "hf_close"); /* ends the waits; what is held runs out */
    for (int i = 0; i < n; i++)
        hf_lock_free(locks[i]);
    free(locks);
}
