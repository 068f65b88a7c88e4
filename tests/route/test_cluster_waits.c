/*
 * A client of a cluster that holds nothing and only waits: it notices by itself that the primary it waits at was
 * replaced, though that still answers. With real servers.
 */
#include "route/ring.h"
#include "support/case.h"

#include <stdio.h>

static hf_client *open_with(struct ring *r, const char *option) {
    hf_options options = scene_options();
    hf_client *client;
    char url[512];
    options.report_after_ms = -1; /* so that nothing but the wait is a reason to look */
    snprintf(url, sizeof url, "%s?%s", shards_url(r->shards), option);
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    return client;
}

/* Without sharded channels no message announces the change. The waiter's next attempt would come up
 * to ten seconds later, and would be redirected. */
RING_CASE(the_wait_alone_is_a_reason_to_ask_for_roles) {
    struct scene_waiter waiter;
    hf_client *holding = open_with(r, "pubsub=classic"), *waiting = open_with(r, "pubsub=classic");
    hf_lock *held = scene_lock(holding, HF_PLAIN, "awaited");
    hf_lock *wanted = scene_lock(waiting, HF_PLAIN, "awaited");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    struct server *old = shards_owner_of(r->shards, "awaited");
    ring_replicate(r, old);
    scene_wait_for(&waiter, wanted);
    assert_true(ring_wait_listened(old, "awaited"));
    shards_fail_over(r->shards, old);
    assert_true(scene_wait_switches(waiting, 1));
    assert_int_equal(scene_stats(waiting).redirects, 0);
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    hf_lock_free(held);
    hf_lock_free(wanted);
    hf_close(holding);
    hf_close(waiting);
}

RUN_CASES(ring_start_with_replicas, ring_stop)
