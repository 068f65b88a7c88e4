/* A world on a server of its own, which may be stopped, restarted or made to forget.
 *
 * Included by test_faults_deadline.c and test_faults_server.c alone. */
#ifndef HF_TEST_LOCK_OWN_SERVER_H
#define HF_TEST_LOCK_OWN_SERVER_H

#include "support/world.h"

#define CMD_MS 1500
#define CONNECT_MS 4000
#define SLACK_MS 6000

static inline hf_options options_of(int64_t watchdog_ms) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = CMD_MS;
    options.connect_timeout_ms = CONNECT_MS;
    options.watchdog_ms = watchdog_ms;
    options.ping_interval_ms = 200;
    return options;
}

static inline void begin(struct world *w, const struct server_options *server_options,
                         int64_t watchdog_ms) {
    hf_options options = options_of(watchdog_ms);
    world_begin_on(w, server_start(server_options), &options);
}

static inline void end(struct world *w) {
    struct server *server = w->server;
    world_end(w);
    server_free(server);
}
#define SERVER_CASE(name, watchdog_ms) CASE_IN(name, struct world, w, begin, end, NULL, watchdog_ms)

#endif
