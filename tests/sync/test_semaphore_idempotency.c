/*
 * An acquire of a semaphore that is given up, or whose answer is lost: by its idempotency key it is undone, or
 * sent again, and no permit is lost or made by that.
 *
 * What is looked at is the number on the server, after the client has settled what it had to; closing
 * it waits for that. Each test that gives up has its acquire run at the server first, and then loses
 * the answer together with the connection.
 */
#include "sync/objects.h"

#define TTL_MS 60000
#define ODD_NAME "a}b" /* its idempotency key would be in another slot, so it has none */

static void begin_with(struct world *w, int64_t permits) {
    objects_begin(w, NULL);
    assert_int_equal(hf_sem_try_set(w->rival_sem, permits, 0, NULL), HF_OK);
}
#define SEM_CASE(name, permits) CASE_IN(name, struct world, w, begin_with, world_end, permits)

/* Cancels an acquire of three permits of ten, or of one that there is, when it has reached the server
 * and its answer is held up; from now on nothing gets through. */
static void give_up(struct world *w, bool taken) {
    struct world_caller waiter;
    hf_cancel *cancel = NULL;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    proxy_blackhole(w->proxy, false, true);
    world_call_sem(&waiter, w->sem, 3, HF_FOREVER, cancel);
    if (taken)
        assert_true(object_wait_number(SEM_NAME, 7, HANG_MS));
    else
        assert_true(proxy_wait_seen(w->proxy, SEM_ACQUIRE, 1, HANG_MS));
    /* half a second after it was sent it would be undone, answered or not */
    proxy_blackhole(w->proxy, true, true);
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&waiter), HF_ECANCELED);
    hf_cancel_free(cancel);
    proxy_refuse(w->proxy, true);
    assert_true(proxy_cut_all(w->proxy) >= 1);
    proxy_blackhole(w->proxy, false, false);
}

/* Lets the client through again, and waits until it has settled what it had to. */
static void let_settle(struct world *w) {
    proxy_refuse(w->proxy, false);
    assert_true(proxy_wait_seen(w->proxy, SEM_UNDO, 1, HANG_MS));
    hf_sem_free(w->sem);
    assert_int_equal(hf_close(w->client), HF_OK);
    w->sem = NULL;
    w->client = NULL;
}

static void delete_idempotency_keys(struct world *w) {
    own_reply *keys = cmd(w->server, "KEYS " SEM_IDEMPOTENCY_KEYS "*");
    assert_int_equal(keys->elements, 1);
    for (size_t i = 0; i < keys->elements; i++)
        assert_int_equal(cmd_int(w->server, "DEL %s", keys->element[i]->str), 1);
}

/* ---- Given up ---- */

SEM_CASE(U22_cancelled_and_then_cut_is_given_back, 10) {
    give_up(w, true);
    assert_int_equal(object_number(SEM_NAME), 7);
    /* and the undoing, if it had been sent by then */
    assert_in_range(world_stats(w->client).in_doubt, 1, 2);
    let_settle(w);
    assert_int_equal(object_number(SEM_NAME), 10);
    assert_int_equal(cmd_int(w->server, "DBSIZE"), 1); /* with it the idempotency key has gone */
}

static bool somebody_listens(void *unused) {
    (void)unused;
    own_reply *reply = cmd(world_server(), "PUBSUB NUMSUB redisson_sc:{" SEM_NAME "}");
    return reply->elements == 2 && reply->element[1]->integer > 0;
}

/* Waiters for permits are notified of them. */
SEM_CASE(returned_permits_wake_others, 10) {
    struct world_caller waiter;
    give_up(w, true);
    world_call_sem(&waiter, w->rival_sem, 10, HF_FOREVER, NULL);
    assert_true(wait_until(somebody_listens, NULL, HANG_MS));
    int64_t start_ms = now_ms();
    let_settle(w);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms < 8000); /* it polls after ten seconds */
    assert_int_equal(object_number(SEM_NAME), 0);
}

SEM_CASE(untaken_permits_are_not_returned, 1) {
    give_up(w, false);
    let_settle(w);
    assert_int_equal(object_number(SEM_NAME), 1);
}

/* The answer to the undoing is lost as well: it is sent again, and finds nothing more to do. */
SEM_CASE(it_is_given_back_once, 10) {
    give_up(w, true);
    proxy_drop_replies_after(w->proxy, SEM_UNDO);
    proxy_refuse(w->proxy, false);
    assert_true(proxy_wait_seen(w->proxy, SEM_UNDO, 2, HANG_MS));
    let_settle(w);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(object_number(SEM_NAME), 10);
}

/* An idempotency key that has expired proves nothing any more. */
SEM_CASE(without_its_idempotency_key_nothing_is_given_back, 10) {
    give_up(w, true);
    delete_idempotency_keys(w);
    let_settle(w);
    assert_int_equal(object_number(SEM_NAME), 7);
}

SEM_CASE(a_deleted_semaphore_is_not_made_again, 10) {
    give_up(w, true);
    assert_int_equal(hf_sem_delete(w->rival_sem, NULL), HF_OK);
    let_settle(w);
    assert_int_equal(cmd_int(w->server, "DBSIZE"), 0);
}

/* With the semaphore its idempotency keys are gone. */
SEM_CASE(after_a_restart_nothing_is_given_back, 10) {
    give_up(w, true);
    server_restart(w->server);
    assert_int_equal(hf_sem_try_set(w->rival_sem, 10, 0, NULL), HF_OK);
    let_settle(w);
    assert_int_equal(object_number(SEM_NAME), 10);
}

OBJECTS_CASE(giving_back_keeps_the_ttl) {
    assert_int_equal(hf_sem_try_set(w->rival_sem, 10, TTL_MS, NULL), HF_OK);
    give_up(w, true);
    let_settle(w);
    assert_int_equal(object_number(SEM_NAME), 10);
    int64_t ttl_ms = cmd_int(w->server, "PTTL " SEM_NAME);
    assert_true(ttl_ms > 0 && ttl_ms <= TTL_MS);
}

/* ---- Sent again ---- */

/* In between somebody deleted the semaphore: it was taken before that. */
SEM_CASE(taken_permits_stay_taken_after_a_delete, 10) {
    struct world_caller waiter;
    proxy_blackhole(w->proxy, false, true);
    world_call_sem(&waiter, w->sem, 3, HF_FOREVER, NULL);
    assert_true(object_wait_number(SEM_NAME, 7, HANG_MS));
    assert_int_equal(hf_sem_delete(w->rival_sem, NULL), HF_OK);
    assert_true(proxy_cut_all(w->proxy) >= 1);
    proxy_heal(w->proxy);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(cmd_int(w->server, "EXISTS " SEM_NAME), 0);
}

/* More at a time than there are places for idempotency keys that are used again and again. */
CASE(many_at_once_take_once_each) {
    OWN(world_end) struct world w;
    enum { MANY = 100 };
    hf_op *ops[MANY];
    begin_with(&w, 3 * MANY);
    proxy_blackhole(w.proxy, false, true);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(hf_sem_acquire_start(w.sem, 2, NULL, NULL, NULL, &ops[i]), HF_OK);
    assert_true(object_wait_number(SEM_NAME, MANY, HANG_MS));
    assert_true(proxy_cut_all(w.proxy) >= 1);
    proxy_heal(w.proxy);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(world_wait_op(HF_OK, ops[i], NULL), HF_OK);
    assert_int_equal(object_number(SEM_NAME), MANY);
}

/* The keys do not get more with the number of acquires, and they expire. */
SEM_CASE(idempotency_keys_do_not_pile_up, 1000) {
    for (int i = 0; i < 200; i++)
        assert_int_equal(hf_sem_acquire(w->sem, 1), HF_OK);
    redisReply *keys = cmd(w->server, "KEYS " SEM_IDEMPOTENCY_KEYS "*");
    assert_int_equal(keys->elements, 1);
    assert_true(cmd_int(w->server, "PTTL %s", keys->element[0]->str) > 0);
    freeReplyObject(keys);
    assert_int_equal(cmd_int(w->server, "DBSIZE"), 2);
}

/* ---- Without an idempotency key ---- */

OBJECTS_CASE(without_a_place_it_is_unknown) {
    own_sem *odd = NULL;
    assert_int_equal(hf_sem_new_bytes(w->client, ODD_NAME, strlen(ODD_NAME), &odd), HF_OK);
    assert_int_equal(hf_sem_try_set(odd, 10, 0, NULL), HF_OK);
    assert_int_equal(hf_sem_acquire(odd, 1), HF_OK);
    proxy_drop_replies_after(w->proxy, SEM_ACQUIRE);
    assert_int_equal(hf_sem_acquire(odd, 3), HF_EINDOUBT);
    assert_int_equal(object_number(ODD_NAME), 6);
    assert_int_equal(cmd_int(w->server, "DBSIZE"), 1);
}

/* Cancelled while it is under way; the answer comes. */
CASE(without_a_place_the_answer_is_waited_for) {
    for (int deleted = 0; deleted <= 1; deleted++) {
        struct world w;
        hf_sem *odd = NULL;
        hf_op *op = NULL;
        objects_begin(&w, NULL);
        assert_int_equal(hf_sem_new_bytes(w.client, ODD_NAME, strlen(ODD_NAME), &odd), HF_OK);
        assert_int_equal(hf_sem_try_set(odd, 10, 0, NULL), HF_OK);
        proxy_blackhole(w.proxy, false, true);
        assert_int_equal(hf_sem_acquire_start(odd, 3, NULL, NULL, NULL, &op), HF_OK);
        assert_true(object_wait_number(ODD_NAME, 7, HANG_MS));
        hf_op_cancel(op);
        assert_int_equal(world_wait_op(HF_OK, op, NULL), HF_ECANCELED);
        if (deleted)
            assert_int_equal(cmd_int(w.server, "DEL " ODD_NAME), 1);
        proxy_heal(w.proxy);
        assert_true(proxy_wait_seen(w.proxy, SEM_CHANGE, 1, HANG_MS));
        hf_sem_free(odd);
        hf_sem_free(w.sem);
        assert_int_equal(hf_close(w.client), HF_OK); /* waits for the settlement */
        w.sem = NULL;
        w.client = NULL;
        if (deleted)
            assert_int_equal(cmd_int(w.server, "EXISTS " ODD_NAME), 0);
        else
            assert_int_equal(object_number(ODD_NAME), 10);
        world_end(&w);
    }
}

/* The access list that 0.1 printed, for this one name. */
CASE(rights_of_0_1_are_enough) {
    struct world w;
    hf_options options = world_options();
    cmd_ok(world_server(),
           "ACL SETUSER old on >secret resetchannels ~" SEM_NAME " ~{" SEM_NAME "* "
           "&redisson_sc:{" SEM_NAME "* +eval +evalsha +time +exists +hexists +hmget +hset +pttl "
           "+pexpire +del +publish +subscribe +unsubscribe +ping +hget +hgetall +type +select "
           "+client|setname +client|list +info +get +set +incrby +decrby");
    options.user = "old";
    options.password = "secret";
    objects_begin(&w, &options);
    assert_int_equal(hf_sem_try_set(w.rival_sem, 10, 0, NULL), HF_OK);
    proxy_drop_replies_after(w.proxy, SEM_ACQUIRE);
    assert_int_equal(hf_sem_acquire(w.sem, 2), HF_OK);
    assert_int_equal(hf_sem_release(w.rival_sem, 2), HF_OK);
    assert_true(proxy_seen(w.proxy, SEM_ACQUIRE) >= 2);
    give_up(&w, true);
    let_settle(&w);
    assert_int_equal(object_number(SEM_NAME), 10);
    world_end(&w);
    assert_int_equal(cmd_int(world_server(), "ACL DELUSER old"), 1);
}

struct warnings {
    atomic_int refused_keys;
};

static void count_warnings(hf_log_level level, const char *message, void *user) {
    struct warnings *warnings = user;
    if (level == HF_LOG_WARN && strstr(message, "holdfast_took") != NULL)
        atomic_fetch_add(&warnings->refused_keys, 1);
}

/* A list that names every key by itself: as before there were idempotency keys, and that is reported once. What
 * is refused for another reason says nothing about idempotency keys. */
SEM_CASE(without_the_right_it_works_as_without_idempotency_keys, 10) {
    struct warnings warnings = {0};
    hf_sem *theirs = NULL;
    hf_options options = world_options();
    cmd_ok(w->server, "ACL SETUSER narrow on >secret ~" SEM_NAME " ~{" SEM_NAME "}:timeout "
                      "resetchannels &redisson_sc:* +@all");
    options.user = "narrow";
    options.password = "secret";
    options.log = count_warnings;
    options.log_user = &warnings;
    hf_client *client = NULL;
    assert_int_equal(hf_open(proxy_url(w->proxy), &options, &client), HF_OK);
    assert_int_equal(hf_sem_new_bytes(client, "theirs", 6, &theirs), HF_OK);
    assert_int_equal(hf_sem_try(theirs, 1), HF_EPERM);
    assert_int_equal(atomic_load(&warnings.refused_keys), 0);
    hf_sem *sem = object_sem(client);
    assert_int_equal(hf_sem_try(sem, 1), HF_OK);
    assert_int_equal(hf_sem_acquire(sem, 2), HF_OK);
    assert_int_equal(object_number(SEM_NAME), 7);
    assert_int_equal(atomic_load(&warnings.refused_keys), 1);
    proxy_drop_replies_after(w->proxy, SEM_ACQUIRE);
    assert_int_equal(hf_sem_acquire(sem, 3), HF_EINDOUBT);
    assert_int_equal(object_number(SEM_NAME), 4);
    hf_sem_free(theirs);
    hf_sem_free(sem);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(w->server, "SET " SEM_NAME " 0");
    assert_int_equal(cmd_int(w->server, "ACL DELUSER narrow"), 1);
}

RUN_CASES(world_start_server, world_stop_server)
