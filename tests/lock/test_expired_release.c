/*
 * A hold that is given up without a release is ended at the server, too.
 *
 * In each test another client keeps raising the lease at the server, as a Java reader's watchdog
 * does for all readers. So the hold does not end there by itself while a test waits.
 */
#include "support/world.h"

#define LONG_MS 600000
#define READ_KEYS "{" WORLD_NAME "}:"

struct form {
    const char *name;
    any_kind kind;
};

static const struct form forms[] = {
    {"plain", HF_PLAIN}, {"nonreentrant", HF_NONREENTRANT},
    {"spin", HF_SPIN},   {"fenced", HF_FENCED},
    {"fair", HF_FAIR},   {"fair_nonreentrant", HF_FAIR | HF_NONREENTRANT},
    {"read", HF_READ},   {"write", HF_WRITE},
};

static hf_lock *handle(hf_client *client, any_kind kind) {
    return made(new_lock, client, kind, WORLD_NAME, strlen(WORLD_NAME));
}

/* Lengthens the lock, and the first level of a reader. */
static void lengthen(struct server *server, const char *owner) {
    cmd_ok(server, "PEXPIRE " WORLD_NAME " %d", LONG_MS);
    cmd_ok(server, "PEXPIRE " READ_KEYS "%s:rwlock_timeout:1 %d", owner, LONG_MS);
}

static bool has_lost(void *arg) {
    return world_stats(arg).losses > 0;
}

static bool is_empty(void *arg) {
    (void)arg;
    return world_keys(world_server()) == 0;
}

/* Nothing is left of the lock, whatever it is made of. (A fenced lock's counter stays.) */
static void wait_gone(struct world *w) {
    assert_true(world_wait_free(w, HANG_MS));
    cmd_ok(w->server, "DEL redisson_lock_token:{" WORLD_NAME "}");
    assert_true(wait_until(is_empty, NULL, HANG_MS));
}

static void let_run_out(struct world *w, hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(HF_FOREVER, lease_ms);
    world_acquire_brief(lock, &options);
    lengthen(w->server, w->owner);
    assert_true(wait_until(has_lost, w->client, HANG_MS));
}

/* ---- Every kind ---- */

ROW_CASES(a_hold_that_ran_out_is_ended, form, forms) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    world_begin(&w, NULL);
    own_lock *lock = handle(w.client, form->kind);
    own_lock *rival = handle(w.rival, form->kind == HF_READ ? HF_WRITE : form->kind);
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 700);
    world_acquire_brief(lock, &leased);
    lengthen(w.server, w.owner);
    world_call_acquire(&waiter, rival, world_wait_for(HANG_MS, HF_WATCHDOG));
    assert_int_equal(world_join(&waiter), HF_OK); /* it does not wait for the rest of that */
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    wait_gone(&w);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_int_equal(hf_lock_release(lock), HF_ENOTOWNER);
    assert_int_equal(world_stats(w.client).losses, 1);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* The verb that notices first sees to it: nobody tells it that the time is over. */
ROW_CASES(a_call_that_is_too_late_ends_it, form, forms) {
    static int (*const calls[])(hf_lock * lock) = {hf_lock_release, hf_lock_try};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct world w;
        world_begin(&w, NULL);
        hf_lock *lock = handle(w.client, form->kind);
        let_run_out(&w, lock, 500);
        assert_int_equal(calls[i](lock), HF_ELOST);
        wait_gone(&w);
        hf_lock_free(lock);
        world_end(&w);
    }
}

/* An owner that is a number, held by the asynchronous form. */
ROW_CASES(an_asynchronous_hold_is_ended, form, forms) {
    OWN(world_end) struct world w;
    char owner[64];
    world_begin(&w, NULL);
    own_lock *lock = handle(w.client, form->kind);
    hf_acquire_options options = world_wait_as(77, HF_FOREVER, 500);
    int err = HF_ETIMEDOUT;
    while (err == HF_ETIMEDOUT) { /* as world_acquire_brief() */
        hf_op *op;
        assert_int_equal(hf_lock_acquire_start(lock, &options, NULL, NULL, &op), HF_OK);
        err = joined(op, NULL);
    }
    assert_int_equal(err, HF_OK);
    world_owner_text(w.client, 77, owner);
    lengthen(w.server, owner);
    wait_gone(&w);
    assert_int_equal(world_release_async(lock, 77, NULL), HF_ELOST);
}

/* ---- Readers beside Java ---- */

/* What Redisson 3.50 and older did every third of its watchdog: all levels of all who read. */
static void renew_as_java(struct server *server, const char *ours) {
    cmd_ok(server, "PEXPIRE " WORLD_NAME " %d", 30000);
    cmd_ok(server, "PEXPIRE " READ_KEYS "java:1:rwlock_timeout:1 %d", 30000);
    cmd_ok(server, "PEXPIRE " READ_KEYS "%s:rwlock_timeout:1 %d", ours, 30000);
}

static void join_as_java(struct server *server) {
    cmd_ok(server, "HSET " WORLD_NAME " mode read java:1 1");
    cmd_ok(server, "SET " READ_KEYS "java:1:rwlock_timeout:1 1 PX 30000");
}

static bool only_java_reads(struct world *w) {
    return cmd_int(w->server, "HEXISTS " WORLD_NAME " %s", w->owner) == 0 &&
           cmd_int(w->server, "EXISTS " READ_KEYS "%s:rwlock_timeout:1", w->owner) == 0;
}

CASE(java_keeps_no_dead_level_of_ours_alive) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "one reader does not renew another there");
    world_begin(&w, NULL);
    own_lock *read = handle(w.client, HF_READ);
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 700);
    int64_t start_ms = now_ms();
    world_acquire_brief(read, &leased);
    join_as_java(w.server);
    while (!only_java_reads(&w) && now_ms() - start_ms < HANG_MS) {
        renew_as_java(w.server, w.owner);
        (void)wait_a_moment();
    }
    assert_true(only_java_reads(&w));
    assert_true(now_ms() - start_ms >= trusted_ms(700)); /* and no sooner */
    assert_int_equal(cmd_int(w.server, "HGET " WORLD_NAME " java:1"), 1);
    assert_int_equal(hf_lock_release(read), HF_ELOST);
}

/* A renewal finds it gone, since its key is; but its field would keep writers out. */
CASE(a_reader_that_is_gone_leaves_no_field) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "a reader is one node");
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    world_begin(&w, &options);
    own_lock *read = handle(w.client, HF_READ);
    assert_int_equal(hf_lock_acquire(read), HF_OK);
    join_as_java(w.server);
    cmd_ok(w.server, "DEL " READ_KEYS "%s:rwlock_timeout:1", w.owner);
    cmd_ok(w.server, "PEXPIRE " WORLD_NAME " %d", LONG_MS);
    assert_true(world_wait_count(&w, w.owner, 0, HANG_MS));
    assert_int_equal(cmd_int(w.server, "HGET " WORLD_NAME " java:1"), 1);
    assert_int_equal(hf_lock_release(read), HF_ELOST);
}

/* ---- Other ways to be given up ---- */

WORLD_CASE_WITH(a_hold_past_max_hold_ms_is_ended, world_options(), options.watchdog_ms = 2400,
                options.max_hold_ms = 100) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    lengthen(w->server, w->owner);
    wait_gone(w);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

static void *acquire_and_end(void *lock) {
    return hf_lock_acquire(lock) == HF_OK ? lock : NULL;
}

WORLD_CASE_WITH(the_hold_of_an_ended_thread_is_ended, world_options(), options.watchdog_ms = 2400) {
    void *held;
    pthread_t thread = started(acquire_and_end, w->lock);
    pthread_join(thread, &held);
    assert_non_null(held);
    lengthen(w->server, w->owner);
    wait_gone(w);
    assert_int_equal(world_stats(w->client).losses, 1);
}

/* The release of an inner level is still being settled when the time of the outer one is over. */
CASE(a_hold_that_expires_during_a_settlement_ends) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "an inner release asks nobody");
    hf_options options = world_options();
    options.watchdog_ms = 6000;
    options.cmd_timeout_ms = 1000;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    proxy_blackhole(w.proxy, true, true);
    /* A renewal is not answered: so the settlement may take longer than the hold. */
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0, 2500));
    assert_int_equal(hf_lock_release(w.lock), HF_EINDOUBT);
    lengthen(w.server, w.owner);
    assert_true(wait_until(has_lost, w.client, HANG_MS));
    proxy_heal(w.proxy);
    wait_gone(&w);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
}

/* Several hundred at once, more than are released at a time. */
WORLD_CASE(many_that_run_out_together_are_ended) {
    enum { MANY = 300 };
    for (int i = 0; i < MANY; i++) {
        char name[32];
        hf_acquire_options leased = world_wait_for(HF_FOREVER, 2500);
        snprintf(name, sizeof name, "many-%d", i);
        own_lock *lock = made(hf_lock_new, w->client, name);
        assert_int_equal(hf_lock_acquire_with(lock, &leased, NULL), HF_OK);
        cmd_ok(w->server, "PEXPIRE %s %d", name, LONG_MS);
    }
    assert_true(wait_until(is_empty, NULL, HANG_MS));
    assert_int_equal(world_stats(w->client).losses, MANY);
}

/* ---- What it must not do ---- */

/* The release is on its way to the server when the same owner acquires again. */
ROW_CASES(the_owner_that_acquires_again_keeps_its_hold, form, forms) {
    OWN(world_end) struct world w;
    world_begin(&w, NULL);
    own_lock *lock = handle(w.client, form->kind);
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 500);
    world_acquire_brief(lock, &leased);
    lengthen(w.server, w.owner);
    proxy_delay(w.proxy, "_channel", 300); /* a release names it, as an acquire does not */
    assert_true(wait_until(has_lost, w.client, HANG_MS));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_try(lock), HF_ELOST);
    leased.lease_ms = 60000;
    assert_int_equal(hf_lock_acquire_with(lock, &leased, NULL), HF_OK);
    proxy_heal(w.proxy);
    while (now_ms() - start_ms < 1500) { /* whatever was under way has arrived */
        bool mine = false;
        assert_int_equal(hf_lock_is_mine(lock, &mine), HF_OK);
        assert_true(mine);
        (void)wait_a_moment();
    }
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* A silent server does not change what is reported from memory, and is not waited for. */
WORLD_CASE_WITH(a_silent_server_delays_nobody, world_options(), options.cmd_timeout_ms = 25000) {
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 700);
    world_acquire_brief(w->lock, &leased);
    proxy_blackhole(w->proxy, true, true);
    assert_true(wait_until(has_lost, w->client, HANG_MS));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_extend(w->lock, 1000), HF_ENOTOWNER);
    hf_lock_free(w->lock);
    assert_int_equal(hf_close(w->client), HF_OK);
    assert_true(now_ms() - start_ms < 10000); /* less than an exchange may take */
    proxy_heal(w->proxy);
    assert_int_equal(hf_open(server_url(w->server), NULL, &w->client), HF_OK);
    assert_int_equal(hf_lock_new(w->client, WORLD_NAME, &w->lock), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
