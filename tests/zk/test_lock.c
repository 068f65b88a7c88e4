/*
 * Locks with one holder on a ZooKeeper server: what an owner, a rival and the client that looks on see of them.
 */
#include "support/case.h"
#include "zk/scene.h"

#define PASSES_MS 1000 /* a lease that is to run out */

/* Two clients, and a handle of each on one lock. */
struct pair {
    hf_client *clients[2];
    hf_lock *mine, *theirs;
};

static struct pair meet(any_kind kind, const char *name) {
    struct pair pair = {.clients = {scene_direct(SURVIVES_MS), scene_direct(SURVIVES_MS)}};
    pair.mine = scene_lock(pair.clients[0], kind, name);
    pair.theirs = scene_lock(pair.clients[1], kind, name);
    return pair;
}

static void part(struct pair *pair) {
    hf_lock_free(pair->mine);
    hf_lock_free(pair->theirs);
    hf_close(pair->clients[0]);
    hf_close(pair->clients[1]);
}

/* ---- Each kind ---- */

static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_NONREENTRANT, HF_PLAIN | HF_SPIN,
                                 HF_FAIR,  HF_PLAIN | HF_FENCED,       HF_FAIR | HF_NONREENTRANT};
#define KINDS (sizeof kinds / sizeof kinds[0])

CASE_AROUND(each_kind_excludes, scene_heal, NULL) {
    int64_t last = 0;
    for (size_t i = 0; i < KINDS; i++) {
        struct pair pair = meet(kinds[i], "kinds");
        int64_t token = 0;
        assert_hf(HF_OK, hf_lock_acquire(pair.mine));
        assert_hf(HF_OK, hf_lock_token(pair.mine, &token));
        assert_true(token > last);
        last = token;
        assert_hf(HF_EBUSY, hf_lock_try(pair.theirs));
        hf_op *op = scene_acquire_start(pair.theirs);
        assert_nodes("kinds", 2);
        assert_hf(HF_OK, hf_lock_release(pair.mine));
        hf_owner owner = scene_acquired(op);
        assert_hf(HF_OK, hf_lock_token_as(pair.theirs, owner, &token));
        assert_true(token > last);
        last = token;
        assert_hf(HF_OK, hf_lock_release_as(pair.theirs, owner));
        assert_nodes("kinds", 0);
        part(&pair);
    }
}

CASE_AROUND(an_owner_comes_again, scene_heal, NULL) {
    struct pair pair = meet(HF_PLAIN, "again");
    hf_lock *strict = scene_lock(pair.clients[0], HF_PLAIN | HF_NONREENTRANT, "again");
    int64_t count = 0, ttl_ms = 0;
    bool flag = false;
    for (int i = 0; i < 3; i++)
        assert_hf(HF_OK, hf_lock_acquire(pair.mine));
    assert_hf(HF_EDEADLK, hf_lock_acquire(strict));
    assert_hf(HF_OK, hf_lock_hold_count(pair.mine, &count));
    assert_int_equal(count, 3);
    assert_hf(HF_OK, hf_lock_ttl_ms(pair.mine, &ttl_ms));
    assert_true(ttl_ms > 0 && ttl_ms <= SURVIVES_MS);
    assert_hf(HF_OK, hf_lock_ttl_ms(pair.theirs, &ttl_ms));
    assert_int_equal(ttl_ms, -1);
    assert_int_equal(zk_count(scene.eyes, "/again"), 1);
    for (int i = 0; i < 3; i++) {
        assert_hf(HF_OK, hf_lock_is_locked(pair.theirs, &flag));
        assert_true(flag);
        assert_hf(HF_OK, hf_lock_release(pair.mine));
    }
    assert_hf(HF_ENOTOWNER, hf_lock_release(pair.mine));
    assert_hf(HF_OK, hf_lock_is_locked(pair.theirs, &flag));
    assert_false(flag);
    assert_hf(HF_OK, hf_lock_ttl_ms(pair.theirs, &ttl_ms));
    assert_int_equal(ttl_ms, -2);
    hf_lock_free(strict);
    part(&pair);
}

/* ---- Waits that end in vain ---- */

CASE_AROUND(a_waiter_that_gives_up_leaves_the_queue, scene_heal, NULL) {
    struct pair pair = meet(HF_FAIR, "vain");
    assert_hf(HF_OK, hf_lock_acquire(pair.mine));
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(pair.theirs, 50));
    assert_nodes("vain", 1);
    hf_op *op = scene_acquire_start(pair.theirs);
    assert_nodes("vain", 2);
    hf_op_cancel(op);
    assert_hf(HF_ECANCELED, joined(op, NULL));
    assert_nodes("vain", 1);
    op = scene_acquire_start(pair.theirs); /* the same owner may come back at once */
    assert_nodes("vain", 2);
    assert_hf(HF_OK, hf_lock_release(pair.mine));
    assert_hf(HF_OK, hf_lock_release_as(pair.theirs, scene_acquired(op)));
    part(&pair);
}

/* One of this process waits in the queue for a plain lock, all of them for a fair one. */
CASE_AROUND(a_process_sends_one, scene_heal, NULL) {
    struct pair pair = meet(HF_PLAIN, "one");
    hf_op *ops[3];
    assert_hf(HF_OK, hf_lock_acquire(pair.mine));
    for (int i = 0; i < 3; i++)
        ops[i] = scene_acquire_start(pair.theirs);
    assert_nodes("one", 2);
    assert_hf(HF_OK, hf_lock_release(pair.mine));
    for (int i = 0; i < 3; i++)
        assert_hf(HF_OK, hf_lock_release_as(pair.theirs, scene_acquired(ops[i])));
    assert_nodes("one", 0);
    part(&pair);
}

/* ---- Leases ---- */

CASE_AROUND(a_lease_is_ours_to_end, scene_heal, NULL) {
    struct pair pair = meet(HF_PLAIN, "lease");
    struct scene_events events = {0};
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = PASSES_MS;
    assert_hf(HF_OK, hf_lock_on_lost(pair.mine, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire_with(pair.mine, &options, NULL));
    assert_true(hf_lock_remaining_ms(pair.mine) <= PASSES_MS);
    assert_hf(HF_OK, hf_lock_acquire(pair.theirs));
    assert_true(scene_wait_losses(&events, 1));
    assert_hf(HF_ELOST, hf_lock_release(pair.mine));
    assert_hf(HF_OK, hf_lock_release(pair.theirs));
    part(&pair);
}

/* A lease that is longer than the session is worth is proved bit by bit; one that is extended ends later. */
CASE_AROUND(a_lease_may_be_long, scene_heal, NULL) {
    struct pair pair = meet(HF_PLAIN, "long");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 10 * SURVIVES_MS;
    assert_hf(HF_OK, hf_lock_acquire_with(pair.mine, &options, NULL));
    assert_true(hf_lock_remaining_ms(pair.mine) <= SURVIVES_MS);
    assert_hf(HF_OK, hf_lock_extend(pair.mine, 20 * SURVIVES_MS));
    assert_true(hf_lock_remaining_ms(pair.mine) > 0);
    assert_hf(HF_OK, hf_lock_release(pair.mine));
    part(&pair);
}

/* The path of the only node under the name. */
static void node_at(const char *name, char path[160]) {
    struct zk_children *nodes;
    snprintf(path, 160, "/%s", name);
    nodes = zk_children(scene.eyes, path);
    assert_true(nodes != NULL && nodes->count == 1);
    snprintf(path, 160, "/%s/%s", name, nodes->names[0]);
    zk_children_free(nodes);
}

/* Whether it is held when the first lease would have ended. False: its session is over, on a busy machine. */
static bool lengthen_during_a_heartbeat(bool nested) {
    const char *name = nested ? "nested" : "extended";
    hf_client *client = scene_proxied(SHORT_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, name),
            *next = scene_lock(client, HF_PLAIN, "next");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 2 * SHORT_MS;
    assert_hf(HF_OK, hf_lock_acquire_with(lock, &options, NULL));
    char path[160];
    node_at(name, path);
    int64_t session = zk_owner(scene.eyes, path);
    proxy_stall_request(scene.proxy, "multi");
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    int64_t end_ms = now_ms() + options.lease_ms;
    options.lease_ms = 20 * SHORT_MS;
    int err = nested ? hf_lock_acquire_with(lock, &options, NULL)
                     : hf_lock_extend(lock, options.lease_ms);
    (void)proxy_release_held(scene.proxy);
    bool held = err == HF_OK;
    held = held && HOLDS_FOR(hf_lock_remaining_ms(lock) > 0, end_ms - now_ms());
    if (!held) {
        assert_hf(HF_OK, hf_lock_acquire(next));
        node_at("next", path);
        assert_true(zk_owner(scene.eyes, path) != session);
    }
    hf_lock_free(lock);
    hf_lock_free(next);
    hf_close(client);
    return held;
}

/* A heartbeat that is under way was sent before that, and takes nothing back. */
CASE_AROUND(a_lease_gets_longer_during_a_heartbeat, scene_heal, NULL) {
    for (int nested = 0; nested < 2; nested++) {
        int rounds = 0;
        while (!lengthen_during_a_heartbeat(nested != 0))
            assert_true(++rounds < SCENE_ROUNDS);
    }
}

/* ---- Breaking and looking ---- */

CASE_AROUND(a_broken_hold_is_lost, scene_heal, NULL) {
    struct pair pair = meet(HF_PLAIN, "broken");
    struct scene_events events = {0};
    bool broken = false;
    assert_hf(HF_OK, hf_lock_break(pair.theirs, &broken));
    assert_false(broken);
    assert_hf(HF_OK, hf_lock_on_lost(pair.mine, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(pair.mine));
    hf_op *op = scene_acquire_start(pair.theirs);
    assert_nodes("broken", 2);
    assert_hf(HF_OK, hf_lock_break(pair.theirs, &broken));
    assert_true(broken);
    hf_owner owner = scene_acquired(op);
    assert_true(scene_wait_losses(&events, 1)); /* by its next heartbeat */
    assert_hf(HF_ELOST, hf_lock_release(pair.mine));
    assert_hf(HF_OK, hf_lock_release_as(pair.theirs, owner));
    part(&pair);
}

/* Four nodes in one heartbeat. One may not be read any more: that hold ends with its lease. One is gone. The others
 * go on. */
CASE_AROUND(one_refused_node_does_not_stop_the_others, scene_heal, NULL) {
    enum { FOUR = 4, REFUSED = 1, GONE = 2 };
    static const char *const names[FOUR] = {"four-0", "four-1", "four-2", "four-3"};
    own_client *client = scene_direct(SURVIVES_MS / 3);
    struct scene_events events = {0};
    hf_lock *locks[FOUR];
    char path[160];
    for (int i = 0; i < FOUR; i++) {
        locks[i] = scene_lock(client, HF_PLAIN, names[i]);
        assert_hf(HF_OK, hf_lock_acquire(locks[i]));
    }
    assert_hf(HF_OK, hf_lock_on_lost(locks[REFUSED], scene_on_event, &events));
    node_at(names[REFUSED], path);
    assert_int_equal(zk_forbid(scene.eyes, path), 0);
    node_at(names[GONE], path);
    assert_int_equal(zk_delete(scene.eyes, path), 0);
    assert_true(scene_wait_losses(&events, 1));
    assert_int_equal(scene_stats(client).losses, 2);
    for (int i = 0; i < FOUR; i++) {
        assert_hf(i == REFUSED || i == GONE ? HF_ELOST : HF_OK, hf_lock_release(locks[i]));
        hf_lock_free(locks[i]);
    }
}

CASE_AROUND(the_queue_is_shown, scene_heal, NULL) {
    struct pair pair = meet(HF_FAIR, "shown");
    hf_lock_info *info = NULL;
    char owner[80];
    assert_hf(HF_OK, hf_lock_inspect(pair.mine, &info));
    assert_int_equal(info->kind, HF_FOUND_FREE);
    assert_int_equal(info->ttl_ms, -2);
    hf_lock_info_free(info);
    assert_hf(HF_OK, hf_lock_acquire(pair.mine));
    hf_op *op = scene_acquire_start(pair.theirs);
    assert_nodes("shown", 2);
    assert_hf(HF_OK, hf_lock_inspect(pair.theirs, &info));
    assert_int_equal(info->kind, HF_FOUND_FAIR);
    assert_int_equal(info->holders_len, 1);
    assert_int_equal(info->waiters_len, 1);
    snprintf(owner, sizeof owner, "%s:%llu", hf_client_id(pair.clients[0]),
             (unsigned long long)hf_owner_self());
    assert_string_equal(info->holders[0]->owner, owner);
    assert_int_equal(info->holders[0]->count, 1);
    assert_non_null(strstr(info->holders[0]->connection, "test_zk_lock"));
    assert_memory_equal(info->waiters[0]->owner, hf_client_id(pair.clients[1]), 36);
    hf_lock_info_free(info);
    assert_hf(HF_OK, hf_lock_release(pair.mine));
    assert_hf(HF_OK, hf_lock_release_as(pair.theirs, scene_acquired(op)));
    part(&pair);
}

/* ---- Names, urls, users ---- */

CASE_AROUND(names_are_paths, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    hf_lock *lock = NULL, *same = scene_lock(client, HF_PLAIN, "deep/er/still");
    assert_hf(HF_EINVAL, hf_lock_new(client, "/deep/er/still", &lock));
    assert_hf(HF_EINVAL, hf_lock_new(client, "a//b", &lock));
    assert_hf(HF_EINVAL, hf_lock_new(client, "a/../b", &lock));
    assert_hf(HF_EINVAL, hf_lock_new(client, "zookeeper/quota", &lock));
    assert_hf(HF_OK, hf_lock_acquire(same));
    assert_int_equal(zk_count(scene.eyes, "/deep/er/still"), 1);
    assert_hf(HF_OK, hf_lock_release(same));
    hf_lock_free(same);
}

static char *url_of(const char *before, const char *behind) {
    return text_of("zk://%s%s%s", before, zk_url(scene.zk) + strlen("zk://"), behind);
}

CASE_AROUND(a_chroot_has_to_be_there, scene_heal, NULL) {
    char *url = url_of("", "/home/of");
    hf_client *client = scene_client(url, SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "locks/one");
    assert_hf(HF_EINVAL, hf_lock_acquire(lock));
    assert_non_null(strstr(hf_last_error()->text, "/home/of"));
    assert_int_equal(zk_make(scene.eyes, "/home", "", 0), 0);
    assert_int_equal(zk_make(scene.eyes, "/home/of", "", 0), 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_int_equal(zk_count(scene.eyes, "/home/of/locks/one"), 1);
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
    free(url);
}

/* What is made with a user is that user's, unless the url says otherwise. */
CASE_AROUND(a_user_has_nodes_of_its_own, scene_heal, NULL) {
    char *known = url_of("ann:secret@", ""), *open = url_of("ann:secret@", "?acl=open");
    hf_client *ann = scene_client(known, SURVIVES_MS), *bob = scene_direct(SURVIVES_MS),
              *anybody = scene_client(open, SURVIVES_MS);
    hf_lock *hers = scene_lock(ann, HF_PLAIN, "hers"), *not_his = scene_lock(bob, HF_PLAIN, "hers");
    assert_hf(HF_OK, hf_lock_acquire(hers));
    assert_hf(HF_EPERM, hf_lock_acquire(not_his));
    assert_hf(HF_OK, hf_lock_release(hers));
    hf_lock *shared = scene_lock(anybody, HF_PLAIN, "shared"),
            *also_his = scene_lock(bob, HF_PLAIN, "shared");
    assert_hf(HF_OK, hf_lock_acquire(shared));
    assert_hf(HF_EBUSY, hf_lock_try(also_his));
    assert_hf(HF_OK, hf_lock_release(shared));
    assert_hf(HF_OK, hf_lock_acquire(also_his));
    hf_lock *all[] = {hers, not_his, shared, also_his};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        hf_lock_free(all[i]);
    hf_close(ann);
    hf_close(bob);
    hf_close(anybody);
    free(known);
    free(open);
}

/* What other recipes keep under a name is not taken for a lock's line. */
CASE_AROUND(other_recipes_are_left_alone, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "theirs");
    hf_lock_info *info = NULL;
    assert_int_equal(zk_make(scene.eyes, "/theirs", "", 0), 0);
    assert_int_equal(zk_make(scene.eyes, "/theirs/leases", "", 0), 0);
    assert_hf(HF_EWRONGTYPE, hf_lock_try(lock));
    assert_hf(HF_EWRONGTYPE, hf_lock_acquire(lock));
    assert_nodes("theirs", 1);
    assert_hf(HF_EWRONGTYPE, hf_lock_break(lock, NULL));
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    assert_int_equal(info->kind, HF_FOUND_PERMITS);
    hf_lock_info_free(info);
    assert_int_equal(zk_make(scene.eyes, "/theirs/lock-0000000001", "", 0), 0);
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    assert_int_equal(info->kind, HF_FOUND_OTHER);
    assert_non_null(info->type_name);
    hf_lock_info_free(info);
}

CASE_AROUND(several_are_no_quorum, scene_heal, NULL) {
    hf_client *client = NULL;
    assert_hf(HF_ENOTSUP, hf_open("zk://a zk://b zk://c", NULL, &client));
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
