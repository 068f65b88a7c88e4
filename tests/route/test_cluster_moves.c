/*
 * Slots that move from one server of a cluster to another while something in them is held, renewed and
 * waited for; moves that stop half way; the lock first, or what is beside it. With real slots, of three
 * primaries without replicas: nobody takes over from anybody here.
 *
 * What a migration does to read/write locks is in test_cluster_readwrite.c.
 */
#include "route/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CROWD 200

struct move {
    struct ring *ring;
    unsigned slot;
    struct server *from, *to;
};

static struct move move_of(struct ring *ring, const char *name) {
    struct move move = {.ring = ring, .slot = shards_slot(ring->shards, name)};
    move.from = shards_owner(ring->shards, move.slot);
    move.to = shards_other(ring->shards, move.from);
    return move;
}

static void open_slot(const struct move *move) {
    shards_open_slot(move->ring->shards, move->slot, move->from, move->to);
}

static void move_key(const struct move *move, const char *key) {
    shards_move_key(move->ring->shards, move->from, move->to, key);
}

static void close_slot(const struct move *move) {
    shards_move_keys(move->ring->shards, move->slot, move->from, move->to);
    shards_close_slot(move->ring->shards, move->slot, move->from, move->to);
}

/* ---- From one moment to the next ---- */

static void moves_while_waited_for(struct ring *r, any_kind kind, const char *name) {
    struct scene_waiter waiter;
    hf_lock *lock = scene_lock(r->client, kind, name);
    hf_lock *rival = scene_lock(r->rival, kind == HF_READ ? HF_WRITE : kind, name);
    bool listens = (kind & HF_SPIN) == 0;
    struct move move = move_of(r, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(!listens || ring_wait_listened(move.from, name));

    open_slot(&move);
    close_slot(&move);
    assert_true(!listens || ring_wait_listened(move.to, name));
    assert_int_equal(hf_lock_extend(lock, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_true(key_exists(move.to, name));
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
}

static void every_kind_of_lock_while_held_and_waited_for(void **state) {
    static const any_kind kinds[] = {HF_PLAIN,
                                     HF_PLAIN | HF_NONREENTRANT,
                                     HF_PLAIN | HF_SPIN,
                                     HF_PLAIN | HF_FENCED,
                                     HF_FAIR,
                                     HF_READ,
                                     HF_WRITE};
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "moved-%zu", i);
        moves_while_waited_for(&r, kinds[i], name);
    }
    assert_int_equal(scene_stats(r.client).losses, 0);
    ring_end(&r);
}

/* Operations that sleep, and have nothing but a place on the list of those who listen. */
struct crowd {
    struct server *server; /* where they ask, */
    long long asked;       /* and how often it had been asked before */
    hf_lock *locks[CROWD], *rivals[CROWD];
    hf_op *ops[CROWD];
};

static bool all_have_asked_twice(void *arg) {
    const struct crowd *crowd = arg;
    return server_calls(crowd->server, "evalsha") >= crowd->asked + 2 * CROWD;
}

static void wait_in_crowd(struct ring *r, struct crowd *crowd, struct server *server) {
    crowd->server = server;
    for (int i = 0; i < CROWD; i++) {
        char name[32];
        snprintf(name, sizeof name, "{crowd}-%d", i);
        crowd->locks[i] = scene_lock(r->client, HF_PLAIN, name);
        crowd->rivals[i] = scene_lock(r->rival, HF_PLAIN, name);
        assert_int_equal(hf_lock_acquire(crowd->rivals[i]), HF_OK);
    }
    crowd->asked = server_calls(server, "evalsha");
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(hf_lock_acquire_start(crowd->locks[i], NULL, NULL, NULL, &crowd->ops[i]),
                         HF_OK);
    assert_true(wait_until(all_have_asked_twice, crowd, HANG_MS));
}

static void those_who_sleep_move_along(void **state) {
    static struct crowd crowd;
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    struct move move = move_of(&r, "{crowd}");
    wait_in_crowd(&r, &crowd, move.from);
    open_slot(&move);
    close_slot(&move);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(hf_lock_release(crowd.rivals[i]), HF_OK);
    for (int i = 0; i < CROWD; i++) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(crowd.ops[i], HANG_MS, &result), HF_OK);
        assert_int_equal(hf_lock_release_as(crowd.locks[i], result.owner), HF_OK);
        assert_int_equal(hf_lock_try(crowd.rivals[i]), HF_OK); /* nobody has it twice */
        assert_int_equal(hf_lock_release(crowd.rivals[i]), HF_OK);
        hf_op_free(crowd.ops[i]);
        hf_lock_free(crowd.locks[i]);
        hf_lock_free(crowd.rivals[i]);
    }
    assert_int_equal(scene_stats(r.client).losses, 0);
    ring_end(&r);
}

struct thing_waiter {
    pthread_t thread;
    hf_sem *sem;
    hf_latch *latch;
    int result;
};

static void *wait_for_thing(void *arg) {
    struct thing_waiter *waiter = arg;
    waiter->result =
        waiter->sem != NULL ? hf_sem_acquire(waiter->sem, 1) : hf_latch_await(waiter->latch);
    return NULL;
}

static void wait_in_thread(struct thing_waiter *waiter) {
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_thing, waiter), 0);
}

static void what_is_no_lock_while_waited_for(void **state) {
    struct ring r;
    struct thing_waiter for_sem = {.sem = NULL}, for_latch = {.sem = NULL};
    hf_sem *sem;
    hf_latch *latch;
    bool set;
    (void)state;
    ring_begin(&r, NULL);
    struct move moves[] = {move_of(&r, "sem"), move_of(&r, "latch")};
    assert_int_equal(hf_sem_new(r.client, "sem", &sem), HF_OK);
    assert_int_equal(hf_sem_new(r.rival, "sem", &for_sem.sem), HF_OK);
    assert_int_equal(hf_latch_new(r.client, "latch", &latch), HF_OK);
    assert_int_equal(hf_latch_new(r.rival, "latch", &for_latch.latch), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 0, 0, &set), HF_OK);
    assert_int_equal(hf_latch_try_set(latch, 1, &set), HF_OK);
    wait_in_thread(&for_sem);
    wait_in_thread(&for_latch);
    assert_true(ring_wait_listened(moves[0].from, "sem"));
    assert_true(ring_wait_listened(moves[1].from, "latch"));

    for (int i = 0; i < 2; i++) {
        open_slot(&moves[i]);
        close_slot(&moves[i]);
    }
    assert_true(ring_wait_listened(moves[0].to, "sem"));
    assert_true(ring_wait_listened(moves[1].to, "latch"));
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    pthread_join(for_sem.thread, NULL);
    pthread_join(for_latch.thread, NULL);
    assert_int_equal(for_sem.result, HF_OK);
    assert_int_equal(for_latch.result, HF_OK);
    hf_sem_free(sem);
    hf_sem_free(for_sem.sem);
    hf_latch_free(latch);
    hf_latch_free(for_latch.latch);
    ring_end(&r);
}

/* ---- Half way ---- */

/* One key is the whole lock: whoever comes is sent after it. */
static void one_key_is_used_wherever_it_is(void **state) {
    static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_NONREENTRANT, HF_PLAIN | HF_SPIN};
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "open-%zu", i);
        struct move move = move_of(&r, name);
        hf_lock *lock = scene_lock(r.client, kinds[i], name);
        hf_lock *rival = scene_lock(r.rival, kinds[i], name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        open_slot(&move);
        assert_int_equal(hf_lock_extend(lock, 2 * LONG_MS), HF_OK); /* it has not moved yet */
        move_key(&move, name);
        assert_int_equal(hf_lock_extend(lock, 3 * LONG_MS), HF_OK);
        assert_int_equal(hf_lock_try(rival), HF_EBUSY);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(hf_lock_try(rival), HF_OK); /* what is nowhere is made over there */
        assert_int_equal(hf_lock_try(lock), HF_EBUSY);
        close_slot(&move);
        assert_true(key_exists(move.to, name));
        assert_int_equal(hf_lock_release(rival), HF_OK);
        assert_int_equal(hf_lock_try(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        hf_lock_free(lock);
        hf_lock_free(rival);
    }
    assert_true(scene_stats(r.client).redirects > 0);
    assert_int_equal(scene_stats(r.client).losses, 0);
    ring_end(&r);
}

/* A slot that stays open for longer than a lease: what is held by one key is renewed over there. */
static void holds_outlive_a_move_that_has_stopped(void **state) {
    static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_FENCED, HF_FAIR};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    struct ring r;
    struct move moves[KINDS];
    hf_lock *locks[KINDS];
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    (void)state;
    ring_begin(&r, &options);
    for (size_t i = 0; i < KINDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "stopped-%zu", i);
        moves[i] = move_of(&r, name);
        locks[i] = scene_lock(r.client, kinds[i], name);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
        open_slot(&moves[i]);
        move_key(&moves[i], name);
    }
    sleep_ms(ENDURING_MS + ENDURING_MS / 9);
    for (size_t i = 0; i < KINDS; i++) {
        assert_true(hf_lock_remaining_ms(locks[i]) > 0);
        close_slot(&moves[i]);
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(scene_stats(r.client).losses, 0);
    ring_end(&r);
}

static long long count_refused(struct server *server) {
    char *info = cmd_str(server, "INFO errorstats");
    const char *found = strstr(info, "errorstat_TRYAGAIN:count=");
    long long count = found != NULL ? atoll(strchr(found, '=') + 1) : 0;
    free(info);
    return count;
}

struct refusals {
    const struct move *move;
    long long before;
};

static long long count_refusals(const struct move *move) {
    return count_refused(move->from) + count_refused(move->to);
}

static bool is_refused(void *arg) {
    const struct refusals *refusals = arg;
    return count_refusals(refusals->move) > refusals->before;
}

/* What needs several keys, of which some are here and some over there, waits until all are in one place. */
static void waits_for_the_rest(struct ring *r, any_kind kind, const char *name) {
    struct scene_waiter waiter;
    struct move move = move_of(r, name);
    hf_lock *lock = scene_lock(r->client, kind, name);
    hf_lock *rival = scene_lock(r->rival, kind, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct refusals refusals = {&move, count_refusals(&move)};
    open_slot(&move);
    move_key(&move, name);
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(is_refused, &refusals, HANG_MS));
    close_slot(&move);
    assert_true(ring_wait_listened(move.to, name));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
}

static void several_keys_wait_until_all_have_moved(void **state) {
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    waits_for_the_rest(&r, HF_PLAIN | HF_FENCED, "rest-fenced");
    waits_for_the_rest(&r, HF_FAIR, "rest-fair");
    assert_int_equal(scene_stats(r.client).losses, 0);
    assert_int_equal(scene_stats(r.rival).losses, 0);
    ring_end(&r);
}

/* The token is over there, the lock is not: nobody draws one twice, and all get larger. */
static void what_is_beside_a_lock_moves_first(void **state) {
    struct ring r;
    struct scene_waiter waiter;
    int64_t first, second;
    (void)state;
    ring_begin(&r, NULL);
    struct move move = move_of(&r, "beside");
    hf_lock *lock = scene_lock(r.client, HF_PLAIN | HF_FENCED, "beside");
    hf_lock *rival = scene_lock(r.rival, HF_PLAIN | HF_FENCED, "beside");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_token(lock, &first), HF_OK);
    struct refusals refusals = {&move, count_refusals(&move)};
    open_slot(&move);
    redisReply *keys = cmd(move.from, "CLUSTER GETKEYSINSLOT %u 100", move.slot);
    assert_true(keys->elements > 1);
    for (size_t i = 0; i < keys->elements; i++)
        if (strcmp(keys->element[i]->str, "beside") != 0)
            move_key(&move, keys->element[i]->str);
    freeReplyObject(keys);
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(is_refused, &refusals, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK); /* this is one key */
    close_slot(&move);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_token_as(rival, waiter.owner, &second), HF_OK);
    assert_true(second > first);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
    ring_end(&r);
}

/* ---- Told of a release over there ---- */

struct redirected {
    hf_client *client;
    uint64_t before;
};

static bool is_redirected(void *arg) {
    const struct redirected *redirected = arg;
    return scene_stats(redirected->client).redirects > redirected->before;
}

#define NEXT_LOOK_MS 9000

/* Whoever is sent after a lock that has moved learns of its release, though nobody over there has the slot
 * yet: sooner than by the next look of a waiter that listens, which is after ten seconds. */
static void handed_over_while_the_slot_is_open(void **state) {
    struct ring r;
    struct scene_waiter waiter;
    (void)state;
    ring_begin(&r, NULL);
    struct move move = move_of(&r, "handed");
    hf_lock *lock = scene_lock(r.client, HF_PLAIN, "handed");
    hf_lock *rival = scene_lock(r.rival, HF_PLAIN, "handed");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    open_slot(&move);
    move_key(&move, "handed");
    struct redirected redirected = {r.rival, scene_stats(r.rival).redirects};
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(is_redirected, &redirected, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    int64_t released_ms = now_ms();
    assert_int_equal(scene_join(&waiter), HF_OK);
    int64_t passed_ms = now_ms() - released_ms;
    print_message("handed over through ASK in %lld ms\n", (long long)passed_ms);
    assert_true(passed_ms < NEXT_LOOK_MS);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    close_slot(&move);
    hf_lock_free(lock);
    hf_lock_free(rival);
    ring_end(&r);
}

/* Whoever has listened since before hears nothing of a release over there, but the slot's end does not
 * escape it: the server itself takes the subscription away. */
static void released_over_there_while_somebody_listens_here(void **state) {
    struct ring r;
    struct scene_waiter waiter;
    (void)state;
    ring_begin(&r, NULL);
    struct move move = move_of(&r, "left");
    hf_lock *lock = scene_lock(r.client, HF_PLAIN, "left");
    hf_lock *rival = scene_lock(r.rival, HF_PLAIN, "left");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(ring_wait_listened(move.from, "left"));
    open_slot(&move);
    move_key(&move, "left");
    assert_int_equal(hf_lock_release(lock), HF_OK);
    close_slot(&move); /* and all servers know it */
    int64_t closed_ms = now_ms();
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_true(now_ms() - closed_ms < NEXT_LOOK_MS);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
    ring_end(&r);
}

/* ---- Which messages ---- */

static void assert_channels(struct server *server, const char *question, bool any) {
    redisReply *reply = cmd(server, question);
    assert_int_equal(reply->elements > 0, any);
    freeReplyObject(reply);
}

/* As the url says, whatever the servers could do; by default as the first of them answers. */
static void the_url_chooses_the_messages(void **state) {
    static const struct {
        const char *option;
        bool sharded;
    } choices[] = {
        {"", true}, {"?pubsub=auto", true}, {"?pubsub=sharded", true}, {"?pubsub=classic", false}};
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    redisReply *reply = cmd(shards_server(r.shards, 0), "PUBSUB SHARDCHANNELS");
    bool old = reply->type == REDIS_REPLY_ERROR; /* before 7.0 there is nothing to choose */
    freeReplyObject(reply);
    for (size_t i = 0; !old && i < sizeof choices / sizeof choices[0]; i++) {
        char url[512], name[32];
        hf_options options = scene_options();
        hf_client *clients[2];
        struct scene_waiter waiter;
        snprintf(url, sizeof url, "%s%s", shards_url(r.shards), choices[i].option);
        snprintf(name, sizeof name, "chosen-%zu", i);
        for (int k = 0; k < 2; k++)
            assert_int_equal(hf_open(url, &options, &clients[k]), HF_OK);
        hf_lock *lock = scene_lock(clients[0], HF_PLAIN, name);
        hf_lock *rival = scene_lock(clients[1], HF_PLAIN, name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        scene_wait_for(&waiter, rival);
        struct server *server = shards_owner_of(r.shards, name);
        assert_true(ring_wait_listened(server, name));
        assert_channels(server, "PUBSUB SHARDCHANNELS *chosen*", choices[i].sharded);
        assert_channels(server, "PUBSUB CHANNELS *chosen*", !choices[i].sharded);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(scene_join(&waiter), HF_OK);
        assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
        hf_lock_free(lock);
        hf_lock_free(rival);
        hf_close(clients[0]);
        hf_close(clients[1]);
    }
    ring_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_lock_while_held_and_waited_for),
        cmocka_unit_test(those_who_sleep_move_along),
        cmocka_unit_test(what_is_no_lock_while_waited_for),
        cmocka_unit_test(one_key_is_used_wherever_it_is),
        cmocka_unit_test(holds_outlive_a_move_that_has_stopped),
        cmocka_unit_test(several_keys_wait_until_all_have_moved),
        cmocka_unit_test(what_is_beside_a_lock_moves_first),
        cmocka_unit_test(handed_over_while_the_slot_is_open),
        cmocka_unit_test(released_over_there_while_somebody_listens_here),
        cmocka_unit_test(the_url_chooses_the_messages),
    };
    return cmocka_run_group_tests(tests, ring_start, ring_stop);
}
