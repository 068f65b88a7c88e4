/*
 * A process of a run: one client, and threads for each kind of which each makes one visit after the other.
 *
 * Runs in a forked child, so nothing here may use cmocka. It may be killed or stopped at any time.
 */
#include "kinds.h"
#include "play.h"

#include "support/wait.h"

#include <stdio.h>
#include <string.h>

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
        if (visits++ < part->kinds->visits)
            thread->player.kind->visit(&thread->player, name);
        play_pause(&thread->player, 5);
    }
    return NULL;
}

static hf_client *open_client(const struct part *part) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    options.watchdog_ms = part->kinds->watchdog_ms;
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 2000;
    options.fair_wait_ms = 5000;
    options.restart_guard_ms = part->unguarded ? 0 : -1;
    return hf_open(part->url, &options, &client) == HF_OK ? client : NULL;
}

static bool start(struct thread *thread, const struct part *part, size_t i) {
    thread->part = part;
    thread->player.kind = &part->kinds->all[i / part->kinds->players];
    thread->player.random = part->seed * 31 + (unsigned)i;
    thread->player.breaks = part->breaks;
    return pthread_create(&thread->id, NULL, play, thread) == 0;
}

int play_part(void *arg) {
    const struct part *part = arg;
    size_t len = part->kinds->len * part->kinds->players;
    struct record record = {.fd = -1};
    record_open(&record, part->dir, part->process);
    hf_client *client = open_client(part);
    if (client == NULL)
        return 1;
    struct thread *threads = calloc(len, sizeof *threads);
    if (threads == NULL)
        return 1;
    for (size_t i = 0; i < len; i++) {
        threads[i].player.client = client;
        threads[i].player.record = &record;
        if (!start(&threads[i], part, i))
            return 1;
    }
    for (size_t i = 0; i < len; i++)
        pthread_join(threads[i].id, NULL);
    hf_close(client);
    record_close(&record);
    free(threads);
    return 0;
}
