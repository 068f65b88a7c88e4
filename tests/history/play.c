/*
 * The driver of a run: it starts the server and the players, makes trouble until the time is over,
 * and waits for everybody to end.
 *
 * Used by test_history.c, in its one thread.
 */
#include "play.h"

#include "support/wait.h"

#include <stdio.h>
#include <stdlib.h>

#define END_LIMIT_MS 60000

void run_spawn(struct run *run, size_t i) {
    struct part *part = &run->parts[i];
    *part =
        (struct part){.url = run->proxy != NULL ? proxy_url(run->proxy) : server_url(run->server),
                      .dir = run->dir,
                      .seed = run->seed * 100 + (unsigned)run->generation,
                      .begin_ms = run->begin_ms,
                      .end_ms = run->end_ms,
                      .breaks = (run->plan->troubles & TROUBLE_BREAK) != 0};
    snprintf(part->process, sizeof part->process, "c%d", run->generation++);
    run->pids[i] = run_child(play_part, part);
}

static void start(struct run *run) {
    struct server_options options = {.tcp = true,
                                     .aof = (run->plan->troubles & TROUBLE_RESTART) != 0};
    run->dir = temp_dir();
    run->server = server_start(&options);
    if ((run->plan->troubles & TROUBLE_LOSE) != 0)
        run->proxy = proxy_start(server_socket(run->server));
    record_open(&run->record, run->dir, "driver");
}

static void begin(struct run *run) {
    run->begin_ms = now_ms();
    run->end_ms = run->begin_ms + run->plan->duration_ms;
    for (size_t i = 0; i < PLAY_PROCESSES; i++)
        run_spawn(run, i);
}

static void end(struct run *run) {
    trouble_end(run);
    for (size_t i = 0; i < PLAY_PROCESSES; i++) {
        if (!expect_exit(run->pids[i], 0, END_LIMIT_MS))
            support_die("%s, seed %u: a process did not end well", run->plan->title, run->seed);
    }
    record_close(&run->record);
    proxy_free(run->proxy);
    server_free(run->server);
}

char *play_run(const struct plan *plan, unsigned seed, struct remote *jvm) {
    struct run run = {.plan = plan,
                      .seed = seed,
                      .random = seed,
                      .jvm = plan->java ? jvm : NULL,
                      .paused = PLAY_PROCESSES};
    start(&run);
    struct java_players *java = run.jvm != NULL ? java_players_new(&run) : NULL;
    begin(&run);
    while (now_ms() < run.end_ms) {
        trouble_step(&run);
        if (java != NULL)
            java_players_step(java);
        sleep_ms(1);
    }
    java_players_end(java);
    end(&run);
    return run.dir;
}
