/*
 * The driver of a run: it starts the servers and the players, injects faults until the time is over,
 * and waits for everybody to end.
 *
 * Used by the test programs, in their one thread.
 */
#include "play.h"

#include "support/power.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

#define END_LIMIT_MS 180000 /* of waits that have no end but that of the others, too */

/* When connections are lost, that may be anybody's. When servers of a quorum forget, one process is so
 * far away that it may not hear of it; without a guard two, so that this shows sooner. */
static bool is_far(const struct run *run, size_t i) {
    unsigned faults = run->plan->faults;
    if (run->proxies[0] == NULL)
        return false;
    if ((faults & (FAULT_LOSE | FAULT_ONE_WAY)) != 0 || i == 0)
        return true;
    return i == 1 && (run->plan->unguarded || (faults & FAULT_PART) != 0);
}

void run_spawn(struct run *run, size_t i) {
    struct part *part = &run->parts[i];
    *part = (struct part){.kinds = run->plan->kinds,
                          .url = is_far(run, i) ? run->far_urls : run->urls,
                          .dir = run->dir,
                          .seed = run->seed * 100 + (unsigned)run->generation,
                          .begin_ms = run->begin_ms,
                          .end_ms = run->end_ms,
                          .breaks = (run->plan->faults & FAULT_BREAK) != 0,
                          .unguarded = run->plan->unguarded};
    snprintf(part->process, sizeof part->process, "c%d", run->generation++);
    run->pids[i] = run_child(play_part, part);
}

static void add_url(char urls[1024], const char *url) {
    size_t len = strlen(urls);
    snprintf(urls + len, 1024 - len, "%s%s", len > 0 ? " " : "", url);
}

static void start_server(struct run *run, size_t i) {
    unsigned faults = run->plan->faults;
    struct server_options options = {.tcp = true,
                                     .aof = (faults & (FAULT_RESTART | FAULT_POWER)) != 0,
                                     .config = run->plan->everysec ? power_everysec : NULL};
    bool forgets = run->plan->kinds->quorum && ((faults & FAULT_WIPE) != 0 || run->plan->everysec);
    run->servers[i] = server_start(&options);
    add_url(run->urls, server_url(run->servers[i]));
    if (!forgets && (faults & (FAULT_LOSE | FAULT_ONE_WAY | FAULT_PART)) == 0)
        return;
    run->proxies[i] = proxy_start(server_socket(run->servers[i]));
    add_url(run->far_urls, proxy_url(run->proxies[i]));
}

static void start(struct run *run) {
    run->dir = run->plan->dir != NULL ? strdup(run->plan->dir) : temp_dir();
    if (run->plan->cluster) {
        /* No server takes over unless asked to: what nobody wrote down would be found wrong. */
        const struct shards_options options = {.replicas = true, .node_timeout_ms = 15000};
        run->shards = shards_start(&options);
        add_url(run->urls, shards_url(run->shards));
    } else if (run->plan->kinds->sessions) {
        run->zk = zk_ensemble_start(NULL);
        add_url(run->urls, zk_ensemble_url(run->zk));
    } else if (run->plan->kinds->moving) {
        const struct watched_options options = {.down_after_ms = 15000}; /* the same */
        run->watched = watched_start(&options);
        add_url(run->urls, watched_url(run->watched));
    } else {
        run->servers_len = run->plan->kinds->quorum ? PLAY_SERVERS : 1;
    }
    for (size_t i = 0; i < run->servers_len; i++)
        start_server(run, i);
    record_open(&run->record, run->dir, "driver");
    for (size_t i = 0; i < run->plan->kinds->len; i++)
        record_line(&run->record, "kind %s", run->plan->kinds->all[i].name);
    for (size_t i = 0; i < PLAY_JVMS; i++)
        if (run->plan->jvms[i] != NULL)
            run->java[i] = java_players_new(run, run->plan->jvms[i]);
    run->peers = peer_players_new(run);
}

static void begin(struct run *run) {
    run->begin_ms = now_ms();
    run->end_ms = run->begin_ms + run->plan->duration_ms;
    faults_begin(run);
    for (size_t i = 0; i < PLAY_PROCESSES; i++)
        run_spawn(run, i);
}

static void play(struct run *run) {
    while (now_ms() < run->end_ms) {
        faults_step(run);
        for (size_t i = 0; i < PLAY_JVMS; i++)
            if (run->java[i] != NULL)
                java_players_step(run->java[i]);
        peer_players_step(run->peers);
        (void)wait_a_moment();
    }
}

static void end(struct run *run) {
    for (size_t i = 0; i < PLAY_JVMS; i++)
        if (run->java[i] != NULL)
            java_players_end(run->java[i]);
    peer_players_end(run->peers);
    faults_end(run);
    for (size_t i = 0; i < PLAY_PROCESSES; i++) {
        if (!expect_exit(run->pids[i], 0, END_LIMIT_MS))
            support_die("%s, seed %u: a process did not end well", run->plan->title, run->seed);
    }
    record_close(&run->record);
    for (size_t i = 0; i < run->servers_len; i++) {
        proxy_free(run->proxies[i]);
        server_free(run->servers[i]);
    }
    watched_free(run->watched);
    shards_free(run->shards);
    if (run->zk != NULL)
        zk_ensemble_free(run->zk);
}

char *play_run(const struct plan *plan, unsigned seed) {
    struct run run = {.plan = plan, .seed = seed, .random = seed, .paused = PLAY_PROCESSES};
    start(&run);
    begin(&run);
    play(&run);
    end(&run);
    return run.dir;
}
