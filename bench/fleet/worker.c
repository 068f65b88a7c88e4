/*
 * What bench/fleet/run starts: a process of the fleet, or one that asks it.
 *
 *   hf_bench_fleet hold URL CLIENTS LOCKS NAME   so many clients, each with so many locks; "ready",
 *                                                and then for each line on the standard input one
 *                                                with the processor time of all threads but this
 *                                                one, in microseconds; ends with the input
 *   hf_bench_fleet ask URL                       a survey, and a line: ms, locks, holders that are
 *                                                alive, missing, ms of processor time
 */
#include <holdfast/holdfast.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEASE_MS 600000 /* so that nothing is renewed meanwhile */

static void give_up(const char *what) {
    fprintf(stderr, "hf_bench_fleet: %s: %s\n", what, hf_last_error()->text);
    exit(1);
}

static int64_t clock_us(clockid_t clock) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static hf_client *open_client(const char *url) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    options.watchdog_ms = LEASE_MS;
    options.ping_interval_ms = LEASE_MS;
    options.cmd_timeout_ms = 60000;
    options.connect_timeout_ms = 120000;
    if (hf_open(url, &options, &client) != HF_OK)
        give_up("open");
    return client;
}

static void take_locks(hf_client *client, const char *name, long which, long locks) {
    char text[64];
    for (long i = 0; i < locks; i++) {
        hf_lock *lock = NULL;
        snprintf(text, sizeof text, "%s-%ld-%ld", name, which, i);
        if (hf_lock_new(client, text, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
            give_up(text);
        hf_lock_free(lock);
    }
}

static int hold(const char *url, long clients, long locks, const char *name) {
    hf_client **all = calloc((size_t)clients, sizeof(hf_client *));
    char line[16];
    for (long i = 0; all != NULL && i < clients; i++) {
        all[i] = open_client(url);
        take_locks(all[i], name, i, locks);
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        printf("%" PRId64 "\n",
               clock_us(CLOCK_PROCESS_CPUTIME_ID) - clock_us(CLOCK_THREAD_CPUTIME_ID));
        fflush(stdout);
    }
    _exit(0); /* the server is about to end, and the locks with it */
}

static size_t count_alive(const hf_fleet *fleet) {
    size_t alive = 0;
    for (size_t i = 0; i < fleet->locks_len; i++)
        for (size_t k = 0; k < fleet->locks[i]->holders_len; k++)
            alive += fleet->locks[i]->holders[k]->presence == HF_PRESENCE_ALIVE;
    return alive;
}

static int ask(const char *url) {
    hf_client *client = open_client(url);
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.limit_ms = 60000;
    if (hf_ping(client) != HF_OK)
        give_up("ping");
    int64_t start_us = clock_us(CLOCK_MONOTONIC), own_us = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    if (hf_survey(client, &options, &fleet) != HF_OK)
        give_up("survey");
    printf("%.1f %zu %zu %u %.1f\n", (double)(clock_us(CLOCK_MONOTONIC) - start_us) / 1000,
           fleet->locks_len, count_alive(fleet), fleet->missing,
           (double)(clock_us(CLOCK_PROCESS_CPUTIME_ID) - own_us) / 1000);
    hf_fleet_free(fleet);
    hf_close(client);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "hold") == 0)
        return hold(argv[2], strtol(argv[3], NULL, 10), strtol(argv[4], NULL, 10), argv[5]);
    if (argc == 3 && strcmp(argv[1], "ask") == 0)
        return ask(argv[2]);
    fprintf(stderr, "hf_bench_fleet: see bench/fleet/run\n");
    return 2;
}
