/*
 * A client that is cut off together with the old primary, which does not know that it was replaced and goes on taking
 * commands: with `sentinel_confirm` its hold ends with its lease. With real servers and sentinels, which the client
 * reaches through proxies.
 */
#include "route/scene.h"
#include "support/proxy.h"

#define WATCHDOG_MS 6000
/* No stall of a busy machine is a failover then: one before the cut would lose the acquire itself. */
#define DOWN_AFTER_MS 10000

struct cut {
    struct watched *watched;
    struct proxy *proxies[WATCHED_SENTINELS];
};

/* Sentinels tell of each other. */
static bool map_to_proxy(const char *host, uint16_t port, char *ret_host, uint16_t *ret_port,
                         void *user) {
    const struct cut *cut = user;
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        if (port == watched_sentinel_port(cut->watched, i)) {
            snprintf(ret_host, HF_HOST_SIZE, "%s", host);
            *ret_port = (uint16_t)proxy_port(cut->proxies[i]);
            return true;
        }
    return false;
}

/* The client has a user of its own, so that all others can be kept out of a server. */
static void begin(struct cut *cut) {
    const struct watched_options options = {.down_after_ms = DOWN_AFTER_MS};
    cut->watched = watched_start(&options);
    for (int i = 0; i < WATCHED_SERVERS; i++)
        cmd_ok(watched_server(cut->watched, i), "ACL SETUSER holder on >word ~* &* +@all");
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        cut->proxies[i] = proxy_start_tcp(watched_sentinel_port(cut->watched, i), PROXY_RESP);
}

static void end(struct cut *cut) {
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        proxy_free(cut->proxies[i]);
    watched_free(cut->watched);
}

static hf_client *open_cut_off(struct cut *cut) {
    hf_options options = HF_OPTIONS_INIT;
    char url[256];
    int len = snprintf(url, sizeof url, "redis-sentinel://holder:word@");
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        len += snprintf(url + len, sizeof url - (size_t)len, "%s127.0.0.1:%d", i > 0 ? "," : "",
                        proxy_port(cut->proxies[i]));
    snprintf(url + len, sizeof url - (size_t)len, "/" WATCHED_NAME "?sentinel_confirm=on");
    options.watchdog_ms = WATCHDOG_MS;
    options.address_map = map_to_proxy;
    options.address_map_user = cut;
    return made(hf_open, url, &options);
}

/* On one side of the cut the client and its server, on the other all sentinels and replicas. The
 * replicas have the lease: nothing is confirmed after the first step. */
static void cut_off(struct cut *cut, struct server *primary) {
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        proxy_blackhole(cut->proxies[i], true, true);
    scene_replicate_from(primary);
    cmd_ok(primary, "ACL SETUSER default resetpass >nobody");
    freeReplyObject(cmd(primary, "CLIENT KILL USER default SKIPME yes"));
}

static bool is_primary(struct server *server) {
    own_reply *reply = cmd(server, "ROLE");
    bool primary =
        reply != NULL && reply->elements > 0 && strcmp(reply->element[0]->str, "master") == 0;
    return primary;
}

CASE_IN(a_hold_beside_the_old_primary_ends_with_its_lease, struct cut, cut, begin, end) {
    struct scene_events events = {0};
    hf_options options = HF_OPTIONS_INIT;
    struct server *old = watched_primary(cut->watched);
    own_client *client = open_cut_off(cut);
    options.watchdog_ms = WATCHDOG_MS;
    own_client *rival_client = made(hf_open, watched_url(cut->watched), &options);
    own_lock *lock = scene_lock(client, HF_PLAIN, "cut");
    own_lock *rival = scene_lock(rival_client, HF_PLAIN, "cut");
    assert_int_equal(hf_lock_on_lost(lock, scene_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    cut_off(cut, old);
    watched_fail_over(cut->watched);
    watched_wait_switch(cut->watched, old);
    assert_int_equal(hf_lock_acquire(rival), HF_OK); /* the new primary has the rest of the lease */
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_true(scene_wait_losses(&events, 1));
    assert_true(is_primary(old)); /* as it says itself */
    assert_int_equal(scene_stats(client).failovers, 0);
    assert_int_equal(hf_lock_release(rival), HF_OK);
}

RUN_CASES(NULL, NULL)
