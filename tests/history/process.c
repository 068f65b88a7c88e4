/*
 * A process of a run: one client, and a thread for each kind that makes one visit after the other.
 *
 * Runs in a forked child, so nothing here may use cmocka. It may be killed or stopped at any time.
 */
#include "kinds.h"
#include "play.h"

#include "support/wait.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many visits at one name: a checker's work must have an end. */
#define VISITS_PER_NAME 25

struct thread {
    const struct part *part;
    struct player player;
    pthread_t id;
};

void play_name(const char *kind, int64_t begin_ms, char name[48]) {
    snprintf(name, 48, "%s.%lld", kind, (long long)((now_ms() - begin_ms) / PLAY_NAME_MS));
}

static void *play(void *arg) {
    struct thread *thread = arg;
    const struct part *part = thread->part;
    char last[48] = "";
    int visits = 0;
    while (now_ms() < part->end_ms) {
        char name[48];
        play_name(thread->player.kind->name, part->begin_ms, name);
        if (strcmp(name, last) != 0) {
            snprintf(last, sizeof last, "%s", name);
            visits = 0;
        }
        if (visits++ < VISITS_PER_NAME)
            thread->player.kind->visit(&thread->player, name);
        play_pause(&thread->player, 5);
    }
    return NULL;
}

int play_part(void *arg) {
    const struct part *part = arg;
    struct record record = {.fd = -1};
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    record_open(&record, part->dir, part->process);
    options.watchdog_ms = PLAY_WATCHDOG_MS;
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 2000;
    options.fair_wait_ms = 5000;
    if (hf_open(part->url, &options, &client) != HF_OK)
        return 1;

    struct thread *threads = calloc(history_kinds_len, sizeof *threads);
    if (threads == NULL)
        return 1;
    for (size_t i = 0; i < history_kinds_len; i++) {
        threads[i].part = part;
        threads[i].player = (struct player){.kind = &history_kinds[i],
                                            .client = client,
                                            .record = &record,
                                            .random = part->seed * 31 + (unsigned)i,
                                            .breaks = part->breaks};
        if (pthread_create(&threads[i].id, NULL, play, &threads[i]) != 0)
            return 1;
    }
    for (size_t i = 0; i < history_kinds_len; i++)
        pthread_join(threads[i].id, NULL);
    hf_close(client);
    record_close(&record);
    free(threads);
    return 0;
}
