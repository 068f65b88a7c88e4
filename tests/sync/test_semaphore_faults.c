/*
 * The semaphore when the network or the server fails.
 *
 * The server does not know who took what, so nothing that changes the number is ever done twice
 * (U19): what was not answered is reported as unknown, and the number on the server is exact either
 * way. Only an acquire can be sent again, or undone, by its ticket: test_semaphore_tickets.c. What is
 * looked at is that number, and what the proxy has seen.
 */
#include "sync/scene.h"

#define BRIEF_MS PASSING_MS /* an exchange, where one is to run out */

static void begin_with(struct scene *s, int64_t permits) {
    scene_begin(s, NULL);
    assert_int_equal(hf_sem_try_set(s->rival_sem, permits, 0, NULL), HF_OK);
}

static void begin_briefly(struct scene *s, int64_t permits) {
    hf_options options = scene_options();
    options.cmd_timeout_ms = BRIEF_MS;
    scene_begin(s, &options);
    assert_int_equal(hf_sem_try_set(s->rival_sem, permits, 0, NULL), HF_OK);
}

/* ---- Replies lost ---- */

static void U19_acquire_reply_lost_takes_once(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        for (int waits = 0; waits <= 1; waits++) {
            struct scene s;
            begin_with(&s, 10);
            proxy_drop_replies_after(s.proxy, SCENE_ACQUIRE);
            assert_int_equal(form->acquire(&s, 3, waits ? HF_FOREVER : 0), HF_OK);
            assert_int_equal(proxy_fired(s.proxy), 1);
            assert_true(proxy_seen_in_time(s.proxy, SCENE_ACQUIRE) >= 2);
            assert_int_equal(scene_number(SEM_NAME), 7);
            assert_int_equal(scene_stats(s.client).unknowns, 1);
            assert_int_equal(scene_stats(s.client).acquired, 1);
            /* It goes on as if nothing had been. */
            assert_int_equal(form->acquire(&s, 7, 0), HF_OK);
            scene_end(&s);
        }
    }
}

static void U19_release_reply_lost(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 10);
        proxy_drop_replies_after(s.proxy, SCENE_CHANGE);
        assert_int_equal(form->release(&s, 2), HF_EUNKNOWN);
        assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_CHANGE), 1);
        assert_int_equal(scene_number(SEM_NAME), 12);
        assert_int_equal(scene_stats(s.client).unknowns, 1);
        assert_int_equal(scene_stats(s.client).released, 0);
        scene_end(&s);
    }
}

static void U19_every_other_change_is_unknown_too(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = -99;
    begin_with(&s, 10);
    proxy_drop_replies_after(s.proxy, SCENE_CHANGE);
    assert_int_equal(hf_sem_add(s.sem, 5), HF_EUNKNOWN);
    assert_int_equal(scene_number(SEM_NAME), 15);
    proxy_drop_replies_after(s.proxy, SCENE_CHANGE);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 5, NULL), HF_EUNKNOWN);
    assert_int_equal(scene_number(SEM_NAME), 20);
    proxy_drop_replies_after(s.proxy, hfi_script_semaphore_drain.sha1);
    assert_int_equal(hf_sem_drain(s.sem, &permits), HF_EUNKNOWN);
    assert_int_equal(permits, -99);
    assert_int_equal(scene_number(SEM_NAME), 0);
    proxy_drop_replies_after(s.proxy, hfi_script_counter_delete.sha1);
    assert_int_equal(hf_sem_delete(s.sem, NULL), HF_EUNKNOWN);
    assert_false(key_exists(s.server, SEM_NAME));
    proxy_drop_replies_after(s.proxy, hfi_script_semaphore_set.sha1);
    assert_int_equal(hf_sem_try_set(s.sem, 4, 0, NULL), HF_EUNKNOWN);
    assert_int_equal(scene_number(SEM_NAME), 4);
    assert_int_equal(scene_stats(s.client).unknowns, 5);
    scene_end(&s);
}

/* Its first copy came too late and did nothing, so there was a second; that one is the last. */
static void U19_reply_of_a_second_copy_lost(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 10);
        proxy_delay(s.proxy, SCENE_CHANGE, 700);
        proxy_drop_replies_after(s.proxy, SCENE_CHANGE);
        assert_int_equal(form->release(&s, 2), HF_EUNKNOWN);
        assert_true(proxy_seen(s.proxy, SCENE_CHANGE) >= 2);
        assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_CHANGE), 1);
        assert_int_equal(proxy_fired(s.proxy), 1);
        assert_int_equal(scene_number(SEM_NAME), 12);
        assert_int_equal(scene_stats(s.client).unknowns, 1);
        scene_end(&s);
    }
}

/* A question may be asked twice, and is. */
static void a_question_is_asked_again(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = 0;
    begin_with(&s, 10);
    proxy_drop_replies_after(s.proxy, SCENE_GET);
    assert_int_equal(hf_sem_available(s.sem, &permits), HF_OK);
    assert_int_equal(permits, 10);
    assert_int_equal(proxy_seen(s.proxy, SCENE_GET), 2);
    assert_int_equal(scene_stats(s.client).unknowns, 0);
    scene_end(&s);
}

/* The connection stays, and nothing comes. */
static void U19_never_answered(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_briefly(&s, 10);
        proxy_mute_replies_after(s.proxy, SCENE_ACQUIRE);
        int64_t start_ms = now_ms();
        assert_int_equal(form->acquire(&s, 3, 0), HF_EUNREACH);
        assert_true(now_ms() - start_ms >= BRIEF_MS);
        assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_ACQUIRE), 1);
        assert_true(scene_wait_number(SEM_NAME, 10, HANG_MS)); /* it comes back */
        proxy_mute_replies_after(s.proxy, SCENE_CHANGE);
        assert_int_equal(form->release(&s, 1), HF_EUNKNOWN);
        assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_CHANGE), 1);
        assert_int_equal(scene_number(SEM_NAME), 11);
        scene_end(&s);
    }
}

/* ---- Late copies ---- */

/* What was sent again, or the caller was told is unknown, does not happen any more once its time is
 * over. */
static void a_late_copy_does_nothing(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 10);
        proxy_hold_request(s.proxy, SCENE_ACQUIRE);
        assert_int_equal(form->acquire(&s, 3, 0), HF_OK);
        proxy_hold_request(s.proxy, SCENE_CHANGE);
        assert_int_equal(form->release(&s, 1), HF_EUNKNOWN);
        assert_int_equal(proxy_held(s.proxy), 2);
        sleep_ms(600); /* a copy may act for half a second */
        assert_true(proxy_release_held(s.proxy) >= 2);
        assert_int_equal(scene_number(SEM_NAME), 7);
        scene_end(&s);
    }
}

/* A copy that the server says came too late did nothing, and is sent again with more time. */
static void what_came_too_late_is_sent_again(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 10);
        proxy_delay(s.proxy, SCENE_ACQUIRE, 700);
        assert_int_equal(form->acquire(&s, 3, 0), HF_OK);
        assert_true(proxy_seen(s.proxy, SCENE_ACQUIRE) >= 2);
        assert_int_equal(scene_number(SEM_NAME), 7);
        proxy_delay(s.proxy, SCENE_CHANGE, 700);
        assert_int_equal(form->release(&s, 3), HF_OK);
        assert_true(proxy_seen(s.proxy, SCENE_CHANGE) >= 2);
        assert_int_equal(scene_number(SEM_NAME), 10);
        assert_int_equal(scene_stats(s.client).unknowns, 0);
        scene_end(&s);
    }
}

/* ---- Cancelled ---- */

/* Cancels an acquire of three permits when it has reached the server, and its answer is held up. From then on nothing gets
 * through: half a second after it was sent, what makes up for it is sent without the answer. */
static void cancel_unanswered(struct scene *s, hf_cancel *cancel, bool taken) {
    struct waiter waiter;
    proxy_blackhole(s->proxy, false, true);
    waiter_acquire(&waiter, s->sem, 3, HF_FOREVER, cancel);
    if (taken)
        assert_true(scene_wait_number(SEM_NAME, 7, HANG_MS));
    else
        assert_true(proxy_wait_seen(s->proxy, SCENE_ACQUIRE, 1, HANG_MS));
    proxy_blackhole(s->proxy, true, true);
    hf_cancel_fire(cancel);
    assert_int_equal(waiter_join(&waiter), HF_ECANCELED);
}

/* The acquire has run and its answer is on the way: what it took comes back. */
static void U22_cancelled_but_taken_is_given_back(void **state) {
    (void)state;
    struct scene s;
    hf_cancel *cancel = NULL;
    begin_with(&s, 10);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    cancel_unanswered(&s, cancel, true);
    assert_int_equal(scene_number(SEM_NAME), 7);
    proxy_heal(s.proxy);
    assert_true(scene_wait_number(SEM_NAME, 10, HANG_MS));
    assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_UNDO), 1);
    hf_stats stats = scene_stats(s.client);
    assert_int_equal(stats.cancelled, 1);
    assert_int_equal(stats.acquired, 0);
    hf_cancel_free(cancel);
    scene_end(&s);
}

static void U22_cancelled_operation_but_taken_is_given_back(void **state) {
    (void)state;
    struct scene s;
    hf_op *op = NULL;
    begin_with(&s, 10);
    proxy_blackhole(s.proxy, false, true);
    assert_int_equal(hf_sem_acquire_start(s.sem, 3, NULL, NULL, NULL, &op), HF_OK);
    assert_true(scene_wait_number(SEM_NAME, 7, HANG_MS));
    hf_op_cancel(op);
    assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_ECANCELED);
    proxy_heal(s.proxy);
    assert_true(scene_wait_number(SEM_NAME, 10, HANG_MS));
    scene_end(&s);
}

/* Nobody dispatches any more: close itself reads the answer, and gives back what was taken. */
static void U22_cancelled_and_closed_with_manual_dispatch(void **state) {
    (void)state;
    struct scene s;
    hf_client *client = NULL;
    hf_op *op = NULL;
    hf_options options = scene_options();
    options.flags = HF_MANUAL_DISPATCH;
    begin_with(&s, 10);
    assert_int_equal(hf_open(proxy_url(s.proxy), &options, &client), HF_OK);
    hf_sem *sem = scene_sem(client);
    assert_int_equal(hf_ping_start(client, NULL, NULL, &op), HF_OK);
    while (hf_op_wait(op, 0, NULL) == HF_EPENDING)
        assert_true(hf_dispatch(client, 10) >= 0); /* now there is a connection */
    hf_op_free(op);
    proxy_blackhole(s.proxy, false, true);
    assert_int_equal(hf_sem_acquire_start(sem, 3, NULL, NULL, NULL, &op), HF_OK);
    while (scene_number(SEM_NAME) == 10)
        assert_true(hf_dispatch(client, 0) >= 0);
    hf_op_cancel(op);
    hf_op_free(op);
    proxy_heal(s.proxy); /* only now the answer comes */
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(scene_number(SEM_NAME), 10);
    hf_sem_free(sem);
    scene_end(&s);
}

/* The answer says that there were too few: nothing is given back, and if it came in time nothing is asked for. */
static void U22_cancelled_and_not_taken_gives_nothing_back(void **state) {
    (void)state;
    struct scene s;
    hf_cancel *cancel = NULL;
    begin_with(&s, 1);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    int64_t start_ms = now_ms();
    cancel_unanswered(&s, cancel, false);
    proxy_heal(s.proxy);
    hf_sem_free(s.sem);
    assert_int_equal(hf_close(s.client), HF_OK); /* waits for the settlement */
    if (now_ms() - start_ms < 500)
        assert_int_equal(proxy_seen(s.proxy, SCENE_UNDO), 0);
    assert_int_equal(scene_number(SEM_NAME), 1);
    s.sem = NULL;
    s.client = NULL;
    hf_cancel_free(cancel);
    scene_end(&s);
}

struct busy_keeper {
    atomic_bool wanted, busy, go_on;
};

/* The keeper logs the loss of a connection before it sees to it. */
static void keep_the_keeper(hf_log_level level, const char *message, void *user) {
    struct busy_keeper *keeper = user;
    (void)level;
    (void)message;
    if (!atomic_exchange(&keeper->wanted, false))
        return;
    atomic_store(&keeper->busy, true);
    while (!atomic_load(&keeper->go_on))
        sleep_ms(1);
}

static bool is_busy(void *arg) {
    return atomic_load(&((struct busy_keeper *)arg)->busy);
}

static void *try_seven(void *arg) {
    struct scene *s = arg;
    return (void *)(intptr_t)hf_sem_try(s->sem, 7);
}

/* The connection has ended, and nobody has noticed, since all who waited for its answers have gone: what must not be sent twice
 * is not lost in it. */
static void not_sent_into_a_connection_that_has_ended(void **state) {
    (void)state;
    struct scene s;
    struct busy_keeper keeper = {false};
    hf_cancel *cancel = NULL;
    pthread_t thread;
    void *result = NULL;
    hf_options options = scene_options();
    options.log = keep_the_keeper;
    options.log_user = &keeper;
    scene_begin(&s, &options);
    assert_int_equal(hf_sem_try_set(s.rival_sem, 10, 0, NULL), HF_OK);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    cancel_unanswered(&s, cancel, true);
    atomic_store(&keeper.wanted, true);
    assert_true(proxy_cut_all(s.proxy) >= 1);
    proxy_heal(s.proxy);
    assert_true(wait_until(is_busy, &keeper, HANG_MS));
    assert_int_equal(pthread_create(&thread, NULL, try_seven, &s), 0);
    sleep_ms(100); /* for a command to be sent that should not be */
    atomic_store(&keeper.go_on, true);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, HF_OK);
    assert_int_equal(scene_stats(s.client).unknowns, 1);  /* the one that was cancelled */
    assert_true(scene_wait_number(SEM_NAME, 3, HANG_MS)); /* and is undone */
    hf_cancel_free(cancel);
    scene_end(&s);
}

static void cancelled_while_it_waits_leaves_nothing(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    hf_cancel *cancel = NULL;
    begin_with(&s, 1);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    waiter_acquire(&waiter, s.sem, 2, HF_FOREVER, cancel);
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 2, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(waiter_join(&waiter), HF_ECANCELED);
    assert_int_equal(scene_number(SEM_NAME), 1);
    assert_true(scene_wait_no_channels(HANG_MS));
    /* Fired, it stays fired. */
    hf_wait_options options = HF_WAIT_INIT;
    options.cancel = cancel;
    assert_int_equal(hf_sem_acquire_with(s.sem, 1, &options), HF_ECANCELED);
    assert_int_equal(scene_number(SEM_NAME), 1);
    assert_int_equal(scene_stats(s.client).cancelled, 2);
    hf_cancel_free(cancel);
    scene_end(&s);
}

/* ---- Closed ---- */

static void *close_client(void *arg) {
    struct scene *s = arg;
    return (void *)(intptr_t)hf_close(s->client);
}

/* A wait ends, and what it may just have taken comes back before close returns. */
static void closed_while_it_waits(void **state) {
    (void)state;
    struct scene s;
    struct waiter asleep, taking;
    pthread_t closer;
    void *closed = NULL;
    begin_with(&s, 10);
    waiter_acquire(&asleep, s.sem, 20, HF_FOREVER, NULL);
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 2, HANG_MS));
    proxy_blackhole(s.proxy, false, true);
    waiter_acquire(&taking, s.sem, 3, HF_FOREVER, NULL);
    assert_true(scene_wait_number(SEM_NAME, 7, HANG_MS));
    assert_int_equal(pthread_create(&closer, NULL, close_client, &s), 0);
    assert_int_equal(waiter_join(&asleep), HF_ECLOSED);
    assert_int_equal(waiter_join(&taking), HF_ECLOSED);
    proxy_heal(s.proxy);
    assert_int_equal(pthread_join(closer, &closed), 0);
    assert_int_equal((intptr_t)closed, HF_OK);
    assert_int_equal(scene_number(SEM_NAME), 10);
    hf_sem_free(s.sem);
    s.sem = NULL;
    s.client = NULL;
    scene_end(&s);
}

static void *release_three(void *arg) {
    struct scene *s = arg;
    return (void *)(intptr_t)hf_sem_release(s->sem, 3);
}

/* A release that is on its way when the client is closed may or may not have been done, and says
 * so. */
static void closed_while_it_gives_back_is_unknown(void **state) {
    (void)state;
    struct scene s;
    pthread_t releaser;
    void *released = NULL;
    begin_with(&s, 10);
    proxy_blackhole(s.proxy, false, true);
    assert_int_equal(pthread_create(&releaser, NULL, release_three, &s), 0);
    assert_true(scene_wait_number(SEM_NAME, 13, HANG_MS));
    assert_int_equal(hf_close(s.client), HF_OK);
    assert_int_equal(pthread_join(releaser, &released), 0);
    assert_int_equal((intptr_t)released, HF_EUNKNOWN);
    hf_sem_free(s.sem);
    s.sem = NULL;
    s.client = NULL;
    scene_end(&s);
}

/* ---- The connection, the server ---- */

/* A wait for two permits that is asleep: its second attempt was answered before the ping, on the
 * same connection. */
static hf_op *start_waiting(struct scene *s) {
    hf_op *op = NULL, *ping = NULL;
    assert_int_equal(hf_sem_acquire_start(s->sem, 2, NULL, NULL, NULL, &op), HF_OK);
    assert_true(proxy_wait_seen(s->proxy, SCENE_ACQUIRE, 2, HANG_MS));
    int err = hf_ping_start(s->client, NULL, NULL, &ping);
    assert_int_equal(scene_wait_op(err, ping, NULL), HF_OK);
    return op;
}

static void waits_survive_lost_connections(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 1);
    hf_op *op = start_waiting(&s);
    int64_t start_ms = now_ms();
    assert_true(proxy_cut_all(s.proxy) >= 2);
    /* It looks when it is heard again, so a release that was told to nobody is not missed. */
    assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
    assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_OK);
    assert_true(now_ms() - start_ms < 10000);
    assert_int_equal(scene_number(SEM_NAME), 0);
    scene_end(&s);
}

static void waits_survive_a_restart_of_the_server(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 1);
    hf_op *op = start_waiting(&s);
    server_restart(s.server); /* it forgets everything, scripts included */
    assert_int_equal(hf_sem_try_set(s.rival_sem, 2, 0, NULL), HF_OK);
    assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_OK);
    assert_int_equal(scene_number(SEM_NAME), 0);
    scene_end(&s);
}

static void no_server_at_all(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_briefly(&s, 1);
        proxy_refuse(s.proxy, true);
        proxy_cut_all(s.proxy);
        int64_t permits;
        assert_int_equal(form->acquire(&s, 1, 0), HF_EUNREACH);
        assert_int_equal(form->release(&s, 1), HF_EUNREACH);
        assert_int_equal(hf_sem_available(s.sem, &permits), HF_EUNREACH);
        assert_int_equal(scene_number(SEM_NAME), 1);
        assert_int_equal(scene_stats(s.client).unknowns, 0);
        scene_end(&s);
    }
}

/* The connection that tells of releases is lost and made again while the application is busy
 * elsewhere: all of that is news at once when it dispatches, and what was released between is not
 * waited for. */
static void a_reconnect_between_two_dispatches(void **state) {
    (void)state;
    struct scene s;
    hf_client *client = NULL;
    hf_op *op = NULL;
    hf_options options = scene_options();
    options.flags = HF_MANUAL_DISPATCH;
    begin_with(&s, 0);
    assert_int_equal(hf_open(proxy_url(s.proxy), &options, &client), HF_OK);
    hf_sem *sem = scene_sem(client);
    assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, NULL, NULL, &op), HF_OK);
    while (proxy_seen(s.proxy, SCENE_ACQUIRE) < 2) /* the second comes when it is heard */
        assert_true(hf_dispatch(client, 10) >= 0);
    for (int i = 0; i < 10; i++) /* and its answer */
        assert_true(hf_dispatch(client, 10) >= 0);
    proxy_refuse(s.proxy, true);
    assert_int_equal(proxy_cut_connections(s.proxy, SCENE_SUBSCRIBE), 1);
    assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
    proxy_refuse(s.proxy, false);
    assert_true(proxy_wait_seen(s.proxy, SCENE_SUBSCRIBE, 2, HANG_MS));
    sleep_ms(100); /* for its answer, which is no event of ours to wait for */
    int64_t start_ms = now_ms();
    while (hf_op_wait(op, 0, NULL) == HF_EPENDING && now_ms() - start_ms < HANG_MS)
        assert_true(hf_dispatch(client, 10) >= 0);
    assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_OK);
    assert_true(now_ms() - start_ms <
                5000); /* it did not have to wait for the next poll, in 10 s */
    assert_int_equal(scene_number(SEM_NAME), 0);
    hf_sem_free(sem);
    assert_int_equal(hf_close(client), HF_OK);
    scene_end(&s);
}

/* A server that refuses has done nothing: what it refuses for a while is tried again, the rest is
 * told. */
static void refusals_are_definite(void **state) {
    (void)state;
    static const char loading[] = "-LOADING Redis is loading the dataset in memory\r\n";
    struct scene s;
    begin_with(&s, 3);
    proxy_answer_instead(s.proxy, SCENE_ACQUIRE, loading, sizeof loading - 1);
    assert_int_equal(hf_sem_try(s.sem, 1), HF_OK);
    assert_int_equal(scene_number(SEM_NAME), 2);
    cmd_ok(s.server, "CONFIG SET maxmemory 1");
    assert_int_equal(hf_sem_try(s.sem, 1), HF_EOOM);
    assert_int_equal(hf_sem_release(s.sem, 1), HF_EOOM);
    cmd_ok(s.server, "CONFIG SET maxmemory 0");
    assert_int_equal(scene_number(SEM_NAME), 2);
    assert_int_equal(scene_stats(s.client).unknowns, 0);
    scene_end(&s);
}

/* The user may neither listen nor publish: waiting polls, and giving back counts what it could not
 * tell. */
static void U46_without_the_right_to_channels(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_with(&s, 0);
    hf_client *mute = scene_open_mute();
    hf_sem *sem = scene_sem(mute);
    waiter_acquire(&waiter, sem, 1, HF_FOREVER, NULL);
    sleep_ms(100); /* whether it waits yet makes no difference */
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(scene_stats(mute).notify_failures >= 1);
    assert_int_equal(scene_number(SEM_NAME), 0);
    hf_sem_free(sem);
    scene_close_mute(mute);
    scene_end(&s);
}

static int take_and_wait(void *arg) {
    (void)arg;
    hf_client *client;
    hf_sem *sem;
    if (hf_open(server_url(scene_server()), NULL, &client) != HF_OK ||
        hf_sem_new_bytes(client, SEM_NAME, strlen(SEM_NAME), &sem) != HF_OK ||
        hf_sem_acquire(sem, 3) != HF_OK)
        return 1;
    for (;;)
        sleep_ms(1000);
}

/* Nobody's in particular: what a dead process took stays taken. Permits with leases are for
 * that. */
static void what_a_dead_process_took_stays_taken(void **state) {
    (void)state;
    struct scene s;
    pid_t child = run_child(take_and_wait, NULL); /* before there are threads */
    begin_with(&s, 10);
    assert_true(scene_wait_number(SEM_NAME, 7, HANG_MS));
    kill_child(child);
    assert_int_equal(hf_sem_try(s.sem, 8), HF_EBUSY);
    assert_int_equal(hf_sem_try(s.sem, 7), HF_OK);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U19_acquire_reply_lost_takes_once),
        cmocka_unit_test(U19_release_reply_lost),
        cmocka_unit_test(U19_every_other_change_is_unknown_too),
        cmocka_unit_test(U19_reply_of_a_second_copy_lost),
        cmocka_unit_test(a_question_is_asked_again),
        cmocka_unit_test(U19_never_answered),
        cmocka_unit_test(a_late_copy_does_nothing),
        cmocka_unit_test(what_came_too_late_is_sent_again),
        cmocka_unit_test(U22_cancelled_but_taken_is_given_back),
        cmocka_unit_test(U22_cancelled_operation_but_taken_is_given_back),
        cmocka_unit_test(U22_cancelled_and_closed_with_manual_dispatch),
        cmocka_unit_test(U22_cancelled_and_not_taken_gives_nothing_back),
        cmocka_unit_test(not_sent_into_a_connection_that_has_ended),
        cmocka_unit_test(cancelled_while_it_waits_leaves_nothing),
        cmocka_unit_test(closed_while_it_waits),
        cmocka_unit_test(closed_while_it_gives_back_is_unknown),
        cmocka_unit_test(waits_survive_lost_connections),
        cmocka_unit_test(waits_survive_a_restart_of_the_server),
        cmocka_unit_test(no_server_at_all),
        cmocka_unit_test(a_reconnect_between_two_dispatches),
        cmocka_unit_test(refusals_are_definite),
        cmocka_unit_test(U46_without_the_right_to_channels),
        cmocka_unit_test(what_a_dead_process_took_stays_taken),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
