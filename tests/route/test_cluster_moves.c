/*
 * Slots that move to another server of a cluster while locks in them are held, renewed and waited
 * for; moves that stop half way; the lock's key first, or the keys beside it. With real slots, on
 * three primaries without replicas, so no failover happens.
 *
 * test_cluster_readwrite.c has read/write locks, test_cluster_atomic.c atomic moves.
 */
#include "route/ring.h"

#define WAITERS 200

/* ---- From one moment to the next ---- */

static void moves_while_waited_for(struct ring *r, any_kind kind, const char *name) {
    struct scene_waiter waiter;
    own_lock *lock = scene_lock(r->client, kind, name);
    own_lock *rival = scene_lock(r->rival, scene_rival_of(kind), name);
    bool listens = (kind & HF_SPIN) == 0;
    struct ring_move move = ring_move_of(r, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(!listens || ring_wait_listened(move.from, name));

    ring_open_slot(&move);
    ring_close_slot(&move);
    assert_true(!listens || ring_wait_listened(move.to, name));
    assert_int_equal(hf_lock_extend(lock, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_true(key_exists(move.to, name));
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

RING_CASE(every_kind_of_lock_while_held_and_waited_for) {
    for (size_t i = 0; i < SCENE_KINDS; i++) {
        own_text *name = text_of("moved-%zu", i);
        moves_while_waited_for(r, scene_kinds[i], name);
    }
    assert_int_equal(scene_stats(r->client).losses, 0);
}

/* Operations that sleep, and have nothing but a place on the list of the listeners. */
struct waiters {
    struct server *server; /* where they ask, */
    long long asked;       /* and how often it had been asked before */
    hf_lock *locks[WAITERS], *rivals[WAITERS];
    hf_op *ops[WAITERS];
};

static bool all_have_asked_twice(void *arg) {
    const struct waiters *waiters = arg;
    return server_calls(waiters->server, "evalsha") >= waiters->asked + 2 * WAITERS;
}

static void begin_waiters(struct ring *r, struct waiters *waiters, struct server *server) {
    waiters->server = server;
    for (int i = 0; i < WAITERS; i++) {
        own_text *name = text_of("{waiters}-%d", i);
        waiters->locks[i] = scene_lock(r->client, HF_PLAIN, name);
        waiters->rivals[i] = scene_lock(r->rival, HF_PLAIN, name);
        assert_int_equal(hf_lock_acquire(waiters->rivals[i]), HF_OK);
    }
    waiters->asked = server_calls(server, "evalsha");
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(
            hf_lock_acquire_start(waiters->locks[i], NULL, NULL, NULL, &waiters->ops[i]), HF_OK);
    assert_true(wait_until(all_have_asked_twice, waiters, HANG_MS));
}

RING_CASE(sleeping_waiters_advance) {
    static struct waiters waiters;
    struct ring_move move = ring_move_of(r, "{waiters}");
    begin_waiters(r, &waiters, move.from);
    ring_open_slot(&move);
    ring_close_slot(&move);
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(hf_lock_release(waiters.rivals[i]), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(waiters.ops[i], HANG_MS, &result), HF_OK);
        assert_int_equal(hf_lock_release_as(waiters.locks[i], result.owner), HF_OK);
        assert_int_equal(hf_lock_try(waiters.rivals[i]), HF_OK); /* nobody has it twice */
        assert_int_equal(hf_lock_release(waiters.rivals[i]), HF_OK);
        hf_op_free(waiters.ops[i]);
        hf_lock_free(waiters.locks[i]);
        hf_lock_free(waiters.rivals[i]);
    }
    assert_int_equal(scene_stats(r->client).losses, 0);
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

RING_CASE(the_key_becomes_no_lock_while_waited_for) {
    struct thing_waiter for_sem = {.sem = NULL}, for_latch = {.sem = NULL};
    hf_sem *sem;
    hf_latch *latch;
    bool set;
    struct ring_move moves[] = {ring_move_of(r, "sem"), ring_move_of(r, "latch")};
    assert_int_equal(hf_sem_new(r->client, "sem", &sem), HF_OK);
    assert_int_equal(hf_sem_new(r->rival, "sem", &for_sem.sem), HF_OK);
    assert_int_equal(hf_latch_new(r->client, "latch", &latch), HF_OK);
    assert_int_equal(hf_latch_new(r->rival, "latch", &for_latch.latch), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 0, 0, &set), HF_OK);
    assert_int_equal(hf_latch_try_set(latch, 1, &set), HF_OK);
    wait_in_thread(&for_sem);
    wait_in_thread(&for_latch);
    assert_true(ring_wait_listened(moves[0].from, "sem"));
    assert_true(ring_wait_listened(moves[1].from, "latch"));

    for (int i = 0; i < 2; i++) {
        ring_open_slot(&moves[i]);
        ring_close_slot(&moves[i]);
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
}

/* ---- Half way ---- */

/* One key is the whole lock: a client that arrives is sent after it. */
RING_CASE(one_key_is_used_wherever_it_is) {
    static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_NONREENTRANT, HF_PLAIN | HF_SPIN};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        own_text *name = text_of("open-%zu", i);
        struct ring_move move = ring_move_of(r, name);
        own_lock *lock = scene_lock(r->client, kinds[i], name);
        own_lock *rival = scene_lock(r->rival, kinds[i], name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        ring_open_slot(&move);
        assert_int_equal(hf_lock_extend(lock, 2 * LONG_MS), HF_OK); /* it has not moved yet */
        ring_move_key(&move, name);
        assert_int_equal(hf_lock_extend(lock, 3 * LONG_MS), HF_OK);
        assert_int_equal(hf_lock_try(rival), HF_EBUSY);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(hf_lock_try(rival),
                         HF_OK); /* a missing key is created at the new server */
        assert_int_equal(hf_lock_try(lock), HF_EBUSY);
        ring_close_slot(&move);
        assert_true(key_exists(move.to, name));
        assert_int_equal(hf_lock_release(rival), HF_OK);
        assert_int_equal(hf_lock_try(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_true(scene_stats(r->client).redirects > 0);
    assert_int_equal(scene_stats(r->client).losses, 0);
}

/* A slot that stays open for longer than a lease: holds with a single key are renewed at the new
 * server. */
CASE(holds_outlive_a_move_that_has_stopped) {
    static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_FENCED, HF_FAIR};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    struct ring r;
    struct ring_move moves[KINDS];
    hf_lock *locks[KINDS];
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    ring_begin(&r, &options);
    for (size_t i = 0; i < KINDS; i++) {
        own_text *name = text_of("stopped-%zu", i);
        moves[i] = ring_move_of(&r, name);
        locks[i] = scene_lock(r.client, kinds[i], name);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
        ring_open_slot(&moves[i]);
        ring_move_key(&moves[i], name);
    }
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(locks[0]) > 0, ENDURING_MS + ENDURING_MS / 9));
    for (size_t i = 0; i < KINDS; i++) {
        assert_true(hf_lock_remaining_ms(locks[i]) > 0);
        ring_close_slot(&moves[i]);
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(scene_stats(r.client).losses, 0);
    ring_end(&r);
}

static long long count_refused(struct server *server) {
    own_text *info = cmd_str(server, "INFO errorstats");
    const char *found = strstr(info, "errorstat_TRYAGAIN:count=");
    return found != NULL ? atoll(strchr(found, '=') + 1) : 0;
}

struct refusals {
    const struct ring_move *move;
    long long before;
};

static long long count_refusals(const struct ring_move *move) {
    return count_refused(move->from) + count_refused(move->to);
}

static bool is_refused(void *arg) {
    const struct refusals *refusals = arg;
    return count_refusals(refusals->move) > refusals->before;
}

/* A kind with several keys, some of them already moved, waits until all are in one place. */
static void waits_for_the_rest(struct ring *r, any_kind kind, const char *name) {
    struct scene_waiter waiter;
    struct ring_move move = ring_move_of(r, name);
    own_lock *lock = scene_lock(r->client, kind, name);
    own_lock *rival = scene_lock(r->rival, kind, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct refusals refusals = {&move, count_refusals(&move)};
    ring_open_slot(&move);
    ring_move_key(&move, name);
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(is_refused, &refusals, HANG_MS));
    ring_close_slot(&move);
    assert_true(ring_wait_listened(move.to, name));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

RING_CASE(several_keys_wait_until_all_have_moved) {
    waits_for_the_rest(r, HF_PLAIN | HF_FENCED, "rest-fenced");
    waits_for_the_rest(r, HF_FAIR, "rest-fair");
    assert_int_equal(scene_stats(r->client).losses, 0);
    assert_int_equal(scene_stats(r->rival).losses, 0);
}

/* The token is over there, the lock is not: nobody draws one twice, and all get larger. */
RING_CASE(side_keys_of_a_lock_move_first) {
    struct scene_waiter waiter;
    int64_t first, second;
    struct ring_move move = ring_move_of(r, "beside");
    own_lock *lock = scene_lock(r->client, HF_PLAIN | HF_FENCED, "beside");
    own_lock *rival = scene_lock(r->rival, HF_PLAIN | HF_FENCED, "beside");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_token(lock, &first), HF_OK);
    struct refusals refusals = {&move, count_refusals(&move)};
    ring_open_slot(&move);
    redisReply *keys = cmd(move.from, "CLUSTER GETKEYSINSLOT %u 100", move.slot);
    assert_true(keys->elements > 1);
    for (size_t i = 0; i < keys->elements; i++)
        if (strcmp(keys->element[i]->str, "beside") != 0)
            ring_move_key(&move, keys->element[i]->str);
    freeReplyObject(keys);
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(is_refused, &refusals, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK); /* this is one key */
    ring_close_slot(&move);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_token_as(rival, waiter.owner, &second), HF_OK);
    assert_true(second > first);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

/* ---- Notified of a release over there ---- */

struct redirected {
    hf_client *client;
    uint64_t before;
};

static bool is_redirected(void *arg) {
    const struct redirected *redirected = arg;
    return scene_stats(redirected->client).redirects > redirected->before;
}

#define NEXT_LOOK_MS 9000

/* A client that is sent after a lock that has moved learns of its release, though nobody over there has the slot
 * yet: sooner than by the next look of a waiter that listens, which is after ten seconds. */
RING_CASE(handed_over_while_the_slot_is_open) {
    struct scene_waiter waiter;
    struct ring_move move = ring_move_of(r, "handed");
    own_lock *lock = scene_lock(r->client, HF_PLAIN, "handed");
    own_lock *rival = scene_lock(r->rival, HF_PLAIN, "handed");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    ring_open_slot(&move);
    ring_move_key(&move, "handed");
    struct redirected redirected = {r->rival, scene_stats(r->rival).redirects};
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(is_redirected, &redirected, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    int64_t released_ms = now_ms();
    assert_int_equal(scene_join(&waiter), HF_OK);
    int64_t passed_ms = now_ms() - released_ms;
    print_message("handed over through ASK in %lld ms\n", (long long)passed_ms);
    assert_true(passed_ms < NEXT_LOOK_MS);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    ring_close_slot(&move);
}

/* A client that has listened since before hears nothing of a release over there, but the slot's end does not
 * escape it: the server itself takes the subscription away. */
RING_CASE(released_elsewhere_while_a_waiter_listens_here) {
    struct scene_waiter waiter;
    struct ring_move move = ring_move_of(r, "left");
    own_lock *lock = scene_lock(r->client, HF_PLAIN, "left");
    own_lock *rival = scene_lock(r->rival, HF_PLAIN, "left");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(ring_wait_listened(move.from, "left"));
    ring_open_slot(&move);
    ring_move_key(&move, "left");
    assert_int_equal(hf_lock_release(lock), HF_OK);
    ring_close_slot(&move); /* and all servers know it */
    int64_t closed_ms = now_ms();
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_true(now_ms() - closed_ms < NEXT_LOOK_MS);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

/* ---- Which messages ---- */

static void assert_channels(struct server *server, const char *question, bool any) {
    own_reply *reply = cmd(server, question);
    assert_int_equal(reply->elements > 0, any);
}

/* As the url says, whatever the servers could do; by default as the first of them answers. */
RING_CASE(the_url_chooses_the_messages) {
    static const struct {
        const char *option;
        bool sharded;
    } choices[] = {
        {"", true}, {"?pubsub=auto", true}, {"?pubsub=sharded", true}, {"?pubsub=classic", false}};
    redisReply *reply = cmd(shards_server(r->shards, 0), "PUBSUB SHARDCHANNELS");
    bool old = reply->type == REDIS_REPLY_ERROR; /* before 7.0 there is nothing to choose */
    freeReplyObject(reply);
    for (size_t i = 0; !old && i < sizeof choices / sizeof choices[0]; i++) {
        char url[512], name[32];
        hf_options options = scene_options();
        hf_client *clients[2];
        struct scene_waiter waiter;
        snprintf(url, sizeof url, "%s%s", shards_url(r->shards), choices[i].option);
        snprintf(name, sizeof name, "chosen-%zu", i);
        for (int k = 0; k < 2; k++)
            assert_int_equal(hf_open(url, &options, &clients[k]), HF_OK);
        hf_lock *lock = scene_lock(clients[0], HF_PLAIN, name);
        hf_lock *rival = scene_lock(clients[1], HF_PLAIN, name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        scene_wait_for(&waiter, rival);
        struct server *server = shards_owner_of(r->shards, name);
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
}

RUN_CASES(ring_start, ring_stop)
