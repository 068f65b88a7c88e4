/*
 * Beside redis-py, pottery, redlock-py, aioredlock and python-redis-lock, and what is limited with these.
 */
#include "peers.h"

#include "support/case.h"

static const struct peer peers[] = {
    {"redis-py", "redis-py", "", PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_SEES_OTHERS},
    {"pottery", "pottery", "redlock:", PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_SEES_OWN},
    {"redlock-py", "redlock-py", "", PEER_WAITS},
    {"aioredlock", "aioredlock", "",
     PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_RECREATES | PEER_SEES_OTHERS},
    {"python-redis-lock", "python-redis-lock",
     "lock:", PEER_EXTENDS | PEER_TELLS | PEER_SEES_OTHERS},
};
static const struct peer *const redis_py = &peers[0], *const python_redis_lock = &peers[4];

/* By default redis-py's locks have no TTL: what a killed client holds stays until somebody frees it by its token. */
CASE_AROUND(a_lock_of_redis_py_without_a_ttl, peers_begin_case, peers_end_case) {
    struct pair pair;
    pair_begin(&pair, redis_py);
    struct remote *victim = peers_start("python");
    assert_answer(
        "ok", remote_call(victim, "open h redis-py %s 0 %d", pair.name, server_port(suite.server)),
        __FILE__, __LINE__);
    assert_answer("ok", remote_call(victim, "try h"), __FILE__, __LINE__);
    remote_kill(victim);
    remote_free(victim);
    assert_int_equal(pttl(suite.server, pair.key), -1);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));

    char *token = token_of(&pair);
    hf_result adopted = HF_RESULT_INIT;
    assert_hf(HF_OK, hf_lock_adopt(pair.lock, token, LONG_MS, &adopted));
    it_says("busy", "try long");
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, adopted.owner));
    it_says("ok", "try long");
    it_says("ok", "release long");
    free(token);
    pair_end(&pair);
}

static bool it_sleeps_in_blpop(void) {
    char *clients = cmd_str(suite.server, "CLIENT LIST");
    bool found = strstr(clients, "cmd=blpop") != NULL;
    free(clients);
    return found;
}

/* Its waiters sleep until its own release pushes to a list. Ours does not: they try again after
 * their own lease, or when somebody else pushes. */
CASE_AROUND(a_waiter_of_python_redis_lock_is_not_woken, peers_begin_case, peers_end_case) {
    struct pair pair;
    pair_begin(&pair, python_redis_lock);
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    int waiting = remote_send(suite.actor, "take long");
    assert_true(WAIT_FOR(it_sleeps_in_blpop(), REMOTE_LIMIT_MS));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_true(HOLDS_FOR(it_sleeps_in_blpop() && !key_exists(suite.server, pair.key), 300));
    assert_false(remote_answered(suite.actor, waiting));
    cmd_ok(suite.server, "LPUSH lock-signal:%s 1", pair.name);
    assert_answer("ok", remote_answer(suite.actor, waiting), __FILE__, __LINE__);
    it_says("ok", "release long");
    pair_end(&pair);
}

int main(void) {
    return peers_run("python", peers, sizeof peers / sizeof *peers);
}
