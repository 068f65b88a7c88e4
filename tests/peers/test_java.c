/*
 * Beside ShedLock and Spring Integration, and what is limited with these.
 */
#include "peers.h"

#include "support/case.h"

static const struct peer peers[] = {
    {"shedlock", "ShedLock",
     "job-lock:test:", PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_CARELESS},
    {"shedlock-safe", "ShedLock", "job-lock:test:", PEER_WAITS | PEER_EXTENDS | PEER_TELLS},
    {"spring", "Spring", "locks:", PEER_WAITS | PEER_EXTENDS | PEER_TELLS},
    {"spring-pubsub", "Spring", "locks:", PEER_EXTENDS | PEER_TELLS},
};
static const struct peer *const pubsub = &peers[3];

/* With PUB_SUB_LOCK its waiters sleep until its own release publishes. Ours does not: they wake
 * when their wait ends, or when somebody else publishes. */
CASE_AROUND(a_waiter_of_spring_with_pubsub_is_not_woken, peers_begin_case, peers_end_case) {
    struct pair pair;
    char attempt[128];
    pair_begin(&pair, pubsub);
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    struct monitor *monitor = monitor_start(suite.server);
    int waiting = remote_send(suite.actor, "take long");
    /* Once before it listens, and once after. */
    snprintf(attempt, sizeof attempt, "\"GET\" \"%s\"", pair.key);
    assert_true(monitor_wait(monitor, attempt, 2, REMOTE_LIMIT_MS));
    monitor_stop(monitor);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_true(HOLDS_FOR(!key_exists(suite.server, pair.key), 300));
    assert_false(remote_answered(suite.actor, waiting));
    cmd_ok(suite.server, "PUBLISH locks-channel:%s %s", pair.name, pair.key);
    assert_answer("ok", remote_answer(suite.actor, waiting), __FILE__, __LINE__);
    it_says("ok", "release long");
    pair_end(&pair);
}

int main(void) {
    return peers_run("java", peers, sizeof peers / sizeof *peers);
}
