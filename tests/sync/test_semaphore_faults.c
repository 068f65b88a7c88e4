/*
 * The semaphore when the network or the server fails.
 *
 * The server does not know who took what, so nothing that changes the number is ever done twice
 * (U19): what was not answered is reported as unknown, and the number on the server is exact either
 * way. Only an acquire can be sent again, or undone, by its idempotency key: test_semaphore_idempotency.c. What is
 * looked at is that number, and what the proxy has seen.
 *
 * The faults that a lock, a semaphore, permits and a latch share are in test_faults.c.
 */
#include "sync/objects.h"

static void begin_with(struct world *w, int64_t permits) {
    objects_begin(w, NULL);
    assert_int_equal(hf_sem_try_set(w->rival_sem, permits, 0, NULL), HF_OK);
}
#define SEM_CASE(name, permits) CASE_IN(name, struct world, w, begin_with, world_end, permits)

/* ---- Replies lost ---- */

SEM_CASE(U19_every_other_change_is_unknown_too, 10) {
    int64_t permits = -99;
    proxy_drop_replies_after(w->proxy, SEM_CHANGE);
    assert_int_equal(hf_sem_add(w->sem, 5), HF_EINDOUBT);
    assert_int_equal(object_number(SEM_NAME), 15);
    proxy_drop_replies_after(w->proxy, SEM_CHANGE);
    assert_int_equal(hf_sem_release_if_exists(w->sem, 5, NULL), HF_EINDOUBT);
    assert_int_equal(object_number(SEM_NAME), 20);
    proxy_drop_replies_after(w->proxy, hfi_script_semaphore_drain.sha1);
    assert_int_equal(hf_sem_drain(w->sem, &permits), HF_EINDOUBT);
    assert_int_equal(permits, -99);
    assert_int_equal(object_number(SEM_NAME), 0);
    proxy_drop_replies_after(w->proxy, hfi_script_counter_delete.sha1);
    assert_int_equal(hf_sem_delete(w->sem, NULL), HF_EINDOUBT);
    assert_false(key_exists(w->server, SEM_NAME));
    proxy_drop_replies_after(w->proxy, hfi_script_semaphore_set.sha1);
    assert_int_equal(hf_sem_try_set(w->sem, 4, 0, NULL), HF_EINDOUBT);
    assert_int_equal(object_number(SEM_NAME), 4);
    assert_int_equal(world_stats(w->client).in_doubt, 5);
}

/* Its first copy came too late and did nothing, so there was a second; that one is the last. */
ROW_CASES_IN(U19_reply_of_a_second_copy_lost, form, object_forms, struct world, w, begin_with,
             world_end, 10) {
    proxy_delay(w->proxy, SEM_CHANGE, 700);
    proxy_drop_replies_after(w->proxy, SEM_CHANGE);
    assert_int_equal(form->release(w, 2), HF_EINDOUBT);
    assert_true(proxy_seen(w->proxy, SEM_CHANGE) >= 2);
    assert_int_equal(proxy_seen_in_time(w->proxy, SEM_CHANGE), 1);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(object_number(SEM_NAME), 12);
    assert_int_equal(world_stats(w->client).in_doubt, 1);
}

/* A question may be asked twice, and is. */
SEM_CASE(a_question_is_asked_again, 10) {
    int64_t permits = 0;
    proxy_drop_replies_after(w->proxy, OBJECT_GET);
    assert_int_equal(hf_sem_available(w->sem, &permits), HF_OK);
    assert_int_equal(permits, 10);
    assert_int_equal(proxy_seen(w->proxy, OBJECT_GET), 2);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* ---- Cancelled ---- */

/* Cancels an acquire of three permits when it has reached the server, and its answer is held up.
 * From then on nothing gets through: half a second after it was sent, what makes up for it is sent
 * without the answer. */
static void cancel_unanswered(struct world *w, hf_cancel *cancel, bool taken) {
    struct world_caller waiter;
    proxy_blackhole(w->proxy, false, true);
    world_call_sem(&waiter, w->sem, 3, HF_FOREVER, cancel);
    if (taken)
        assert_true(object_wait_number(SEM_NAME, 7, HANG_MS));
    else
        assert_true(proxy_wait_seen(w->proxy, SEM_ACQUIRE, 1, HANG_MS));
    proxy_blackhole(w->proxy, true, true);
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&waiter), HF_ECANCELED);
}

/* The acquire has run and its answer is on the way: what it took comes back. */
SEM_CASE(U22_cancelled_but_taken_is_given_back, 10) {
    own_cancel *cancel = NULL;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    cancel_unanswered(w, cancel, true);
    assert_int_equal(object_number(SEM_NAME), 7);
    proxy_heal(w->proxy);
    assert_true(object_wait_number(SEM_NAME, 10, HANG_MS));
    assert_int_equal(proxy_seen_in_time(w->proxy, SEM_UNDO), 1);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.cancelled, 1);
    assert_int_equal(stats.acquired, 0);
}

/* Nobody dispatches any more: close itself reads the answer, and gives back what was taken. */
CASE(U22_cancelled_and_closed_with_manual_dispatch) {
    OWN(world_end) struct world w;
    hf_client *client = NULL;
    hf_op *op = NULL;
    hf_options options = world_options();
    options.flags = HF_MANUAL_DISPATCH;
    begin_with(&w, 10);
    assert_int_equal(hf_open(proxy_url(w.proxy), &options, &client), HF_OK);
    own_sem *sem = object_sem(client);
    assert_int_equal(hf_ping_start(client, NULL, NULL, &op), HF_OK);
    while (hf_op_wait(op, 0, NULL) == HF_EPENDING)
        assert_true(hf_dispatch(client, 10) >= 0); /* now there is a connection */
    hf_op_free(op);
    proxy_blackhole(w.proxy, false, true);
    assert_int_equal(hf_sem_acquire_start(sem, 3, NULL, NULL, NULL, &op), HF_OK);
    while (object_number(SEM_NAME) == 10)
        assert_true(hf_dispatch(client, 0) >= 0);
    hf_op_cancel(op);
    hf_op_free(op);
    proxy_heal(w.proxy); /* only now the answer comes */
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(object_number(SEM_NAME), 10);
}

/* The answer says that there were too few: nothing is given back, and if it came in time nothing is asked for. */
SEM_CASE(U22_cancelled_and_not_taken_gives_nothing_back, 1) {
    own_cancel *cancel = NULL;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    int64_t start_ms = now_ms();
    cancel_unanswered(w, cancel, false);
    proxy_heal(w->proxy);
    hf_sem_free(w->sem);
    assert_int_equal(hf_close(w->client), HF_OK); /* waits for the settlement */
    if (now_ms() - start_ms < 500)
        assert_int_equal(proxy_seen(w->proxy, SEM_UNDO), 0);
    assert_int_equal(object_number(SEM_NAME), 1);
    w->sem = NULL;
    w->client = NULL;
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
        (void)wait_a_moment();
}

static bool is_busy(void *arg) {
    return atomic_load(&((struct busy_keeper *)arg)->busy);
}

static void *try_seven(void *arg) {
    struct world *w = arg;
    return (void *)(intptr_t)hf_sem_try(w->sem, 7);
}

/* The connection has ended, and nobody has noticed, since all who waited for its answers have gone:
 * what must not be sent twice is not lost in it. */
CASE(not_sent_into_a_connection_that_has_ended) {
    OWN(world_end) struct world w;
    struct busy_keeper keeper = {false};
    own_cancel *cancel = NULL;
    void *result = NULL;
    hf_options options = world_options();
    options.log = keep_the_keeper;
    options.log_user = &keeper;
    objects_begin(&w, &options);
    assert_int_equal(hf_sem_try_set(w.rival_sem, 10, 0, NULL), HF_OK);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    cancel_unanswered(&w, cancel, true);
    atomic_store(&keeper.wanted, true);
    assert_true(proxy_cut_all(w.proxy) >= 1);
    proxy_heal(w.proxy);
    assert_true(wait_until(is_busy, &keeper, HANG_MS));
    size_t sent = proxy_seen(w.proxy, SEM_ACQUIRE);
    pthread_t thread = started(try_seven, &w);
    assert_true(HOLDS_FOR(proxy_seen(w.proxy, SEM_ACQUIRE) == sent, 100));
    atomic_store(&keeper.go_on, true);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, HF_OK);
    assert_int_equal(world_stats(w.client).in_doubt, 1);   /* the one that was cancelled */
    assert_true(object_wait_number(SEM_NAME, 3, HANG_MS)); /* and is undone */
}

/* ---- Closed ---- */

static void *close_client(void *arg) {
    struct world *w = arg;
    return (void *)(intptr_t)hf_close(w->client);
}

/* A wait ends, and what it may just have taken comes back before close returns. */
SEM_CASE(closed_while_it_waits, 10) {
    struct world_caller asleep, taking;
    void *closed = NULL;
    world_call_sem(&asleep, w->sem, 20, HF_FOREVER, NULL);
    assert_true(object_wait_asleep(w, SEM_ACQUIRE, 2, HANG_MS));
    proxy_blackhole(w->proxy, false, true);
    world_call_sem(&taking, w->sem, 3, HF_FOREVER, NULL);
    assert_true(object_wait_number(SEM_NAME, 7, HANG_MS));
    pthread_t closer = started(close_client, w);
    assert_int_equal(world_join(&asleep), HF_ECLOSED);
    assert_int_equal(world_join(&taking), HF_ECLOSED);
    proxy_heal(w->proxy);
    assert_int_equal(pthread_join(closer, &closed), 0);
    assert_int_equal((intptr_t)closed, HF_OK);
    assert_int_equal(object_number(SEM_NAME), 10);
    hf_sem_free(w->sem);
    w->sem = NULL;
    w->client = NULL;
}

static void *release_three(void *arg) {
    struct world *w = arg;
    return (void *)(intptr_t)hf_sem_release(w->sem, 3);
}

/* A release that is on its way when the client is closed may or may not have been done, and says
 * so. */
SEM_CASE(closed_while_it_gives_back_is_unknown, 10) {
    void *released = NULL;
    proxy_blackhole(w->proxy, false, true);
    pthread_t releaser = started(release_three, w);
    assert_true(object_wait_number(SEM_NAME, 13, HANG_MS));
    assert_int_equal(hf_close(w->client), HF_OK);
    assert_int_equal(pthread_join(releaser, &released), 0);
    assert_int_equal((intptr_t)released, HF_EINDOUBT);
    hf_sem_free(w->sem);
    w->sem = NULL;
    w->client = NULL;
}

/* ---- The connection, the server ---- */

/* The connection that tells of releases is lost and made again while the application is busy
 * elsewhere: all of that is news at once when it dispatches, and what was released between is not
 * waited for. */
CASE(a_reconnect_between_two_dispatches) {
    OWN(world_end) struct world w;
    own_client *client = NULL;
    hf_op *op = NULL;
    hf_options options = world_options();
    options.flags = HF_MANUAL_DISPATCH;
    begin_with(&w, 0);
    assert_int_equal(hf_open(proxy_url(w.proxy), &options, &client), HF_OK);
    own_sem *sem = object_sem(client);
    assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, NULL, NULL, &op), HF_OK);
    while (proxy_seen(w.proxy, SEM_ACQUIRE) < 2) /* the second comes when it is heard */
        assert_true(hf_dispatch(client, 10) >= 0);
    for (int i = 0; i < 10; i++) /* and its answer */
        assert_true(hf_dispatch(client, 10) >= 0);
    proxy_refuse(w.proxy, true);
    assert_int_equal(proxy_cut_connections(w.proxy, WORLD_SUBSCRIBE), 1);
    assert_int_equal(hf_sem_release(w.rival_sem, 1), HF_OK);
    proxy_refuse(w.proxy, false);
    assert_true(proxy_wait_seen(w.proxy, WORLD_SUBSCRIBE, 2, HANG_MS));
    sleep_ms(100); /* for the answer to a subscription, of which the proxy knows nothing */
    int64_t start_ms = now_ms();
    while (hf_op_wait(op, 0, NULL) == HF_EPENDING && now_ms() - start_ms < HANG_MS)
        assert_true(hf_dispatch(client, 10) >= 0);
    assert_int_equal(world_wait_op(HF_OK, op, NULL), HF_OK);
    assert_true(now_ms() - start_ms <
                5000); /* it did not have to wait for the next poll, in 10 s */
    assert_int_equal(object_number(SEM_NAME), 0);
}

/* A server that refuses has done nothing: what it refuses for a while is tried again, the rest is
 * reported. */
SEM_CASE(refusals_are_definite, 3) {
    static const char loading[] = "-LOADING Redis is loading the dataset in memory\r\n";
    proxy_answer_instead(w->proxy, SEM_ACQUIRE, loading, sizeof loading - 1);
    assert_int_equal(hf_sem_try(w->sem, 1), HF_OK);
    assert_int_equal(object_number(SEM_NAME), 2);
    cmd_ok(w->server, "CONFIG SET maxmemory 1");
    assert_int_equal(hf_sem_try(w->sem, 1), HF_EOOM);
    assert_int_equal(hf_sem_release(w->sem, 1), HF_EOOM);
    cmd_ok(w->server, "CONFIG SET maxmemory 0");
    assert_int_equal(object_number(SEM_NAME), 2);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* The user may neither listen nor publish: waiting polls, and giving back counts what it could not
 * tell. */
SEM_CASE(U46_without_the_right_to_channels, 0) {
    struct world_caller waiter;
    hf_client *mute = object_open_mute();
    hf_sem *sem = object_sem(mute);
    long long attempts = server_calls(world_server(), "evalsha");
    world_call_sem(&waiter, sem, 1, HF_FOREVER, NULL);
    assert_true(WAIT_FOR(server_calls(world_server(), "evalsha") > attempts, HANG_MS));
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(world_stats(mute).notify_failures >= 1);
    assert_int_equal(object_number(SEM_NAME), 0);
    hf_sem_free(sem);
    object_close_mute(mute);
}

static int take_and_wait(void *arg) {
    (void)arg;
    hf_client *client;
    hf_sem *sem;
    if (hf_open(server_url(world_server()), NULL, &client) != HF_OK ||
        hf_sem_new_bytes(client, SEM_NAME, strlen(SEM_NAME), &sem) != HF_OK ||
        hf_sem_acquire(sem, 3) != HF_OK)
        return 1;
    return child_waits_for_ever(NULL);
}

/* Nobody's in particular: what a dead process took stays taken. Permits with leases are for
 * that. */
CASE(permits_of_a_dead_process_stay_taken) {
    OWN(world_end) struct world w;
    pid_t child = run_child(take_and_wait, NULL); /* before there are threads */
    begin_with(&w, 10);
    assert_true(object_wait_number(SEM_NAME, 7, HANG_MS));
    kill_child(child);
    assert_int_equal(hf_sem_try(w.sem, 8), HF_EBUSY);
    assert_int_equal(hf_sem_try(w.sem, 7), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
