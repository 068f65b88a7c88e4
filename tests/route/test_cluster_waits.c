/*
 * A client of a cluster that holds nothing and only waits: it notices by itself that the primary it
 * waits at was replaced, though that still answers. With real servers, none of which takes over by
 * itself: on a busy machine the old primary would take its place back.
 */
#include "route/ring.h"

static hf_client *open_with(struct ring *r, const char *option) {
    hf_options options = scene_options();
    char url[512];
    options.report_after_ms = -1; /* so that nothing but the wait is a reason to look */
    snprintf(url, sizeof url, "%s?%s", shards_url(r->shards), option);
    return made(hf_open, url, &options);
}

/* The failover as the old primary sees it, and as the client does. */
struct notice {
    hf_client *client;
    struct server *old;
    uint64_t failovers;
    int64_t replaced_ms, noticed_ms;
};

static void *watch_switch(void *arg) {
    struct notice *notice = arg;
    redisContext *old = redisConnect("127.0.0.1", server_port(notice->old));
    bool is_replica = false;
    for (int64_t end_ms = now_ms() + HANG_MS; !is_replica && now_ms() < end_ms;) {
        own_reply *reply = redisCommand(old, "ROLE");
        is_replica = reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
                     strcmp(reply->element[0]->str, "master") != 0;
    }
    redisFree(old);
    notice->replaced_ms = now_ms();
    bool noticed = is_replica && scene_wait_switches(notice->client, notice->failovers);
    notice->noticed_ms = now_ms();
    return noticed ? notice : NULL;
}

/* A failover by hand. Returns how long after it the waiting client has noticed it. */
static int64_t fail_over(struct ring *r, hf_client *waiting, const char *name) {
    struct notice notice = {.client = waiting,
                            .old = shards_owner_of(r->shards, name),
                            .failovers = scene_stats(waiting).failovers + 1};
    void *noticed;
    ring_replicate(r, notice.old);
    pthread_t thread = started(watch_switch, &notice);
    shards_fail_over(r->shards, notice.old);
    pthread_join(thread, &noticed);
    assert_non_null(noticed);
    return notice.noticed_ms - notice.replaced_ms;
}

/* Without sharded channels no message announces the change. The waiter's next attempt would come up
 * to ten seconds later, and would be redirected. A second is promised; it is only demanded where
 * nothing else is to be done. */
RING_CASE(the_wait_alone_is_a_reason_to_ask_for_roles) {
    struct scene_waiter waiter;
    bool soak = getenv("HF_SOAK") != NULL;
    own_client *holding = open_with(r, "pubsub=classic");
    own_lock *held = scene_lock(holding, HF_PLAIN, "awaited");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    for (int round = 0; round < (soak ? 12 : 1); round++) {
        hf_client *waiting = open_with(r, "pubsub=classic");
        hf_lock *wanted = scene_lock(waiting, HF_PLAIN, "awaited");
        scene_wait_for(&waiter, wanted);
        assert_true(ring_wait_listened(shards_owner_of(r->shards, "awaited"), "awaited"));
        int64_t after_ms = fail_over(r, waiting, "awaited");
        print_message("noticed after %lld ms\n", (long long)after_ms);
        assert_true(!soak || after_ms <= 1000);
        assert_int_equal(scene_stats(waiting).redirects, 0);
        assert_int_equal(hf_lock_release(held), HF_OK);
        assert_int_equal(scene_join(&waiter), HF_OK);
        assert_int_equal(hf_lock_release_as(wanted, waiter.owner), HF_OK);
        hf_lock_free(wanted);
        hf_close(waiting);
        assert_int_equal(hf_lock_acquire(held), HF_OK);
    }
    assert_int_equal(hf_lock_release(held), HF_OK);
}

RUN_CASES(ring_start_by_hand, ring_stop)
