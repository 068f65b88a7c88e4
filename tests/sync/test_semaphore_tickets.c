/*
 * An acquire of a semaphore that is given up, or whose answer is lost: by its ticket it is undone, or
 * sent again, and no permit is lost or made by that.
 *
 * What is looked at is the number on the server, after the client has settled what it had to; closing
 * it waits for that. Each test that gives up has its acquire run at the server first, and then loses
 * the answer together with the connection.
 */
#include "sync/scene.h"

#define TTL_MS 60000
#define ODD_NAME "a}b" /* its ticket would be in another slot, so it has none */

static void begin_with(struct scene *s, int64_t permits) {
    scene_begin(s, NULL);
    assert_int_equal(hf_sem_try_set(s->rival_sem, permits, 0, NULL), HF_OK);
}

/* Cancels an acquire of three permits of ten, or of one that there is, when it has reached the server
 * and its answer is held up; from now on nothing gets through. */
static void give_up(struct scene *s, bool taken) {
    struct waiter waiter;
    hf_cancel *cancel = NULL;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    proxy_blackhole(s->proxy, false, true);
    waiter_acquire(&waiter, s->sem, 3, HF_FOREVER, cancel);
    if (taken)
        assert_true(scene_wait_number(SEM_NAME, 7, HANG_MS));
    else
        assert_true(proxy_wait_seen(s->proxy, SCENE_ACQUIRE, 1, HANG_MS));
    /* half a second after it was sent it would be undone, answered or not */
    proxy_blackhole(s->proxy, true, true);
    hf_cancel_fire(cancel);
    assert_int_equal(waiter_join(&waiter), HF_ECANCELED);
    hf_cancel_free(cancel);
    proxy_refuse(s->proxy, true);
    assert_true(proxy_cut_all(s->proxy) >= 1);
    proxy_blackhole(s->proxy, false, false);
}

/* Lets the client through again, and waits until it has settled what it had to. */
static void let_settle(struct scene *s) {
    proxy_refuse(s->proxy, false);
    assert_true(proxy_wait_seen(s->proxy, SCENE_UNDO, 1, HANG_MS));
    hf_sem_free(s->sem);
    assert_int_equal(hf_close(s->client), HF_OK);
    s->sem = NULL;
    s->client = NULL;
}

static void delete_tickets(struct scene *s) {
    redisReply *keys = cmd(s->server, "KEYS " SEM_TICKETS "*");
    assert_int_equal(keys->elements, 1);
    for (size_t i = 0; i < keys->elements; i++)
        assert_int_equal(cmd_int(s->server, "DEL %s", keys->element[i]->str), 1);
    freeReplyObject(keys);
}

/* ---- Given up ---- */

static void U22_cancelled_and_then_cut_is_given_back(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 10);
    give_up(&s, true);
    assert_int_equal(scene_number(SEM_NAME), 7);
    /* and the undoing, if it had been sent by then */
    assert_in_range(scene_stats(s.client).unknowns, 1, 2);
    let_settle(&s);
    assert_int_equal(scene_number(SEM_NAME), 10);
    assert_int_equal(cmd_int(s.server, "DBSIZE"), 1); /* with it the ticket has gone */
    scene_end(&s);
}

static bool somebody_listens(void *unused) {
    (void)unused;
    redisReply *reply = cmd(scene_server(), "PUBSUB NUMSUB redisson_sc:{" SEM_NAME "}");
    bool listens = reply->elements == 2 && reply->element[1]->integer > 0;
    freeReplyObject(reply);
    return listens;
}

/* Those who wait for permits are told of them. */
static void what_is_given_back_wakes_others(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_with(&s, 10);
    give_up(&s, true);
    waiter_acquire(&waiter, s.rival_sem, 10, HF_FOREVER, NULL);
    assert_true(wait_until(somebody_listens, NULL, HANG_MS));
    int64_t start_ms = now_ms();
    let_settle(&s);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms < 8000); /* it polls after ten seconds */
    assert_int_equal(scene_number(SEM_NAME), 0);
    scene_end(&s);
}

static void what_was_not_taken_is_not_given_back(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 1);
    give_up(&s, false);
    let_settle(&s);
    assert_int_equal(scene_number(SEM_NAME), 1);
    scene_end(&s);
}

/* The answer to the undoing is lost as well: it is sent again, and finds nothing more to do. */
static void it_is_given_back_once(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 10);
    give_up(&s, true);
    proxy_drop_replies_after(s.proxy, SCENE_UNDO);
    proxy_refuse(s.proxy, false);
    assert_true(proxy_wait_seen(s.proxy, SCENE_UNDO, 2, HANG_MS));
    let_settle(&s);
    assert_int_equal(proxy_fired(s.proxy), 1);
    assert_int_equal(scene_number(SEM_NAME), 10);
    scene_end(&s);
}

/* A ticket that has expired proves nothing any more. */
static void without_its_ticket_nothing_is_given_back(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 10);
    give_up(&s, true);
    delete_tickets(&s);
    let_settle(&s);
    assert_int_equal(scene_number(SEM_NAME), 7);
    scene_end(&s);
}

static void a_deleted_semaphore_is_not_made_again(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 10);
    give_up(&s, true);
    assert_int_equal(hf_sem_delete(s.rival_sem, NULL), HF_OK);
    let_settle(&s);
    assert_int_equal(cmd_int(s.server, "DBSIZE"), 0);
    scene_end(&s);
}

/* With the semaphore its tickets are gone. */
static void after_a_restart_nothing_is_given_back(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 10);
    give_up(&s, true);
    server_restart(s.server);
    assert_int_equal(hf_sem_try_set(s.rival_sem, 10, 0, NULL), HF_OK);
    let_settle(&s);
    assert_int_equal(scene_number(SEM_NAME), 10);
    scene_end(&s);
}

static void giving_back_keeps_the_ttl(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_try_set(s.rival_sem, 10, TTL_MS, NULL), HF_OK);
    give_up(&s, true);
    let_settle(&s);
    assert_int_equal(scene_number(SEM_NAME), 10);
    int64_t ttl_ms = cmd_int(s.server, "PTTL " SEM_NAME);
    assert_true(ttl_ms > 0 && ttl_ms <= TTL_MS);
    scene_end(&s);
}

/* ---- Sent again ---- */

/* In between somebody deleted the semaphore: it was taken before that. */
static void what_was_taken_stays_taken_after_a_delete(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_with(&s, 10);
    proxy_blackhole(s.proxy, false, true);
    waiter_acquire(&waiter, s.sem, 3, HF_FOREVER, NULL);
    assert_true(scene_wait_number(SEM_NAME, 7, HANG_MS));
    assert_int_equal(hf_sem_delete(s.rival_sem, NULL), HF_OK);
    assert_true(proxy_cut_all(s.proxy) >= 1);
    proxy_heal(s.proxy);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_int_equal(cmd_int(s.server, "EXISTS " SEM_NAME), 0);
    scene_end(&s);
}

/* More at a time than there are places for tickets that are used again and again. */
static void many_at_once_take_once_each(void **state) {
    (void)state;
    enum { MANY = 100 };
    hf_op *ops[MANY];
    struct scene s;
    begin_with(&s, 3 * MANY);
    proxy_blackhole(s.proxy, false, true);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(hf_sem_acquire_start(s.sem, 2, NULL, NULL, NULL, &ops[i]), HF_OK);
    assert_true(scene_wait_number(SEM_NAME, MANY, HANG_MS));
    assert_true(proxy_cut_all(s.proxy) >= 1);
    proxy_heal(s.proxy);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(scene_wait_op(HF_OK, ops[i], NULL), HF_OK);
    assert_int_equal(scene_number(SEM_NAME), MANY);
    scene_end(&s);
}

/* The keys do not get more with the number of acquires, and they expire. */
static void tickets_do_not_pile_up(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 1000);
    for (int i = 0; i < 200; i++)
        assert_int_equal(hf_sem_acquire(s.sem, 1), HF_OK);
    redisReply *keys = cmd(s.server, "KEYS " SEM_TICKETS "*");
    assert_int_equal(keys->elements, 1);
    assert_true(cmd_int(s.server, "PTTL %s", keys->element[0]->str) > 0);
    freeReplyObject(keys);
    assert_int_equal(cmd_int(s.server, "DBSIZE"), 2);
    scene_end(&s);
}

/* ---- Without a ticket ---- */

static void without_a_place_it_is_unknown(void **state) {
    (void)state;
    struct scene s;
    hf_sem *odd = NULL;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_new_bytes(s.client, ODD_NAME, strlen(ODD_NAME), &odd), HF_OK);
    assert_int_equal(hf_sem_try_set(odd, 10, 0, NULL), HF_OK);
    assert_int_equal(hf_sem_acquire(odd, 1), HF_OK);
    proxy_drop_replies_after(s.proxy, SCENE_ACQUIRE);
    assert_int_equal(hf_sem_acquire(odd, 3), HF_EUNKNOWN);
    assert_int_equal(scene_number(ODD_NAME), 6);
    assert_int_equal(cmd_int(s.server, "DBSIZE"), 1);
    hf_sem_free(odd);
    scene_end(&s);
}

/* Cancelled while it is under way; the answer comes. */
static void without_a_place_the_answer_is_waited_for(void **state) {
    (void)state;
    for (int deleted = 0; deleted <= 1; deleted++) {
        struct scene s;
        hf_sem *odd = NULL;
        hf_op *op = NULL;
        scene_begin(&s, NULL);
        assert_int_equal(hf_sem_new_bytes(s.client, ODD_NAME, strlen(ODD_NAME), &odd), HF_OK);
        assert_int_equal(hf_sem_try_set(odd, 10, 0, NULL), HF_OK);
        proxy_blackhole(s.proxy, false, true);
        assert_int_equal(hf_sem_acquire_start(odd, 3, NULL, NULL, NULL, &op), HF_OK);
        assert_true(scene_wait_number(ODD_NAME, 7, HANG_MS));
        hf_op_cancel(op);
        assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_ECANCELED);
        if (deleted)
            assert_int_equal(cmd_int(s.server, "DEL " ODD_NAME), 1);
        proxy_heal(s.proxy);
        assert_true(proxy_wait_seen(s.proxy, SCENE_CHANGE, 1, HANG_MS));
        hf_sem_free(odd);
        hf_sem_free(s.sem);
        assert_int_equal(hf_close(s.client), HF_OK); /* waits for the settlement */
        s.sem = NULL;
        s.client = NULL;
        if (deleted)
            assert_int_equal(cmd_int(s.server, "EXISTS " ODD_NAME), 0);
        else
            assert_int_equal(scene_number(ODD_NAME), 10);
        scene_end(&s);
    }
}

/* The access list that 0.1 printed, for this one name. */
static void what_0_1_was_allowed_is_enough(void **state) {
    (void)state;
    struct scene s;
    hf_options options = scene_options();
    cmd_ok(scene_server(),
           "ACL SETUSER old on >secret resetchannels ~" SEM_NAME " ~{" SEM_NAME "* "
           "&redisson_sc:{" SEM_NAME "* +eval +evalsha +time +exists +hexists +hmget +hset +pttl "
           "+pexpire +del +publish +subscribe +unsubscribe +ping +hget +hgetall +type +select "
           "+client|setname +client|list +info +get +set +incrby +decrby");
    options.user = "old";
    options.password = "secret";
    scene_begin(&s, &options);
    assert_int_equal(hf_sem_try_set(s.rival_sem, 10, 0, NULL), HF_OK);
    proxy_drop_replies_after(s.proxy, SCENE_ACQUIRE);
    assert_int_equal(hf_sem_acquire(s.sem, 2), HF_OK);
    assert_int_equal(hf_sem_release(s.rival_sem, 2), HF_OK);
    assert_true(proxy_seen(s.proxy, SCENE_ACQUIRE) >= 2);
    give_up(&s, true);
    let_settle(&s);
    assert_int_equal(scene_number(SEM_NAME), 10);
    scene_end(&s);
    assert_int_equal(cmd_int(scene_server(), "ACL DELUSER old"), 1);
}

struct warnings {
    atomic_int tickets;
};

static void count_warnings(hf_log_level level, const char *message, void *user) {
    struct warnings *warnings = user;
    if (level == HF_LOG_WARN && strstr(message, "holdfast_took") != NULL)
        atomic_fetch_add(&warnings->tickets, 1);
}

/* A list that names every key by itself: as before there were tickets, and that is told once. What
 * is refused for another reason says nothing about tickets. */
static void without_the_right_it_works_as_without_tickets(void **state) {
    (void)state;
    struct scene s;
    struct warnings warnings = {0};
    hf_sem *theirs = NULL;
    hf_options options = scene_options();
    begin_with(&s, 10);
    cmd_ok(s.server, "ACL SETUSER narrow on >secret ~" SEM_NAME " ~{" SEM_NAME "}:timeout "
                     "resetchannels &redisson_sc:* +@all");
    options.user = "narrow";
    options.password = "secret";
    options.log = count_warnings;
    options.log_user = &warnings;
    hf_client *client = NULL;
    assert_int_equal(hf_open(proxy_url(s.proxy), &options, &client), HF_OK);
    assert_int_equal(hf_sem_new_bytes(client, "theirs", 6, &theirs), HF_OK);
    assert_int_equal(hf_sem_try(theirs, 1), HF_EPERM);
    assert_int_equal(atomic_load(&warnings.tickets), 0);
    hf_sem *sem = scene_sem(client);
    assert_int_equal(hf_sem_try(sem, 1), HF_OK);
    assert_int_equal(hf_sem_acquire(sem, 2), HF_OK);
    assert_int_equal(scene_number(SEM_NAME), 7);
    assert_int_equal(atomic_load(&warnings.tickets), 1);
    proxy_drop_replies_after(s.proxy, SCENE_ACQUIRE);
    assert_int_equal(hf_sem_acquire(sem, 3), HF_EUNKNOWN);
    assert_int_equal(scene_number(SEM_NAME), 4);
    hf_sem_free(theirs);
    hf_sem_free(sem);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(s.server, "SET " SEM_NAME " 0");
    assert_int_equal(cmd_int(s.server, "ACL DELUSER narrow"), 1);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U22_cancelled_and_then_cut_is_given_back),
        cmocka_unit_test(what_is_given_back_wakes_others),
        cmocka_unit_test(what_was_not_taken_is_not_given_back),
        cmocka_unit_test(it_is_given_back_once),
        cmocka_unit_test(without_its_ticket_nothing_is_given_back),
        cmocka_unit_test(a_deleted_semaphore_is_not_made_again),
        cmocka_unit_test(after_a_restart_nothing_is_given_back),
        cmocka_unit_test(giving_back_keeps_the_ttl),
        cmocka_unit_test(what_was_taken_stays_taken_after_a_delete),
        cmocka_unit_test(many_at_once_take_once_each),
        cmocka_unit_test(tickets_do_not_pile_up),
        cmocka_unit_test(without_a_place_it_is_unknown),
        cmocka_unit_test(without_a_place_the_answer_is_waited_for),
        cmocka_unit_test(what_0_1_was_allowed_is_enough),
        cmocka_unit_test(without_the_right_it_works_as_without_tickets),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
