/*
 * Asynchronous waiters, of whom there may be a hundred thousand: what each costs, and that nothing
 * is different for those who are parked (their engine sleeps, so they have neither a call nor a hold).
 *
 * Bytes are counted by the client's allocator. A waiter for a name that another of the client waits
 * for, too, takes no more than 512, and one with a name of its own no more than 1024.
 */
#include "lock/world.h"
#include "support/memory.h"

#include <stdio.h>
#include <string.h>

#define MANY 400
#define AT_ONCE 20 /* so that the buffers of connections stay small */

struct crowd {
    struct world w; /* the rival holds what the crowd waits for */
    struct memory memory;
    hf_client *client;
    hf_lock *locks[MANY], *rivals[MANY];
    hf_op *ops[MANY];
    int names; /* how many locks there are */
    long before;
    long allowed; /* bytes for each */
};

static void begin_crowd(struct crowd *crowd, int names) {
    memset(crowd, 0, sizeof *crowd);
    world_begin(&crowd->w, NULL);
    hf_options options = world_options();
    options.allocator = memory_allocator(&crowd->memory);
    assert_int_equal(hf_open(server_url(crowd->w.server), &options, &crowd->client), HF_OK);
    crowd->names = names;
    for (int i = 0; i < names; i++) {
        char name[32];
        snprintf(name, sizeof name, "waited-for-%07d", i);
        assert_int_equal(hf_lock_new(crowd->client, name, &crowd->locks[i]), HF_OK);
        assert_int_equal(hf_lock_new(crowd->w.rival, name, &crowd->rivals[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(crowd->rivals[i]), HF_OK);
    }
}

static void end_crowd(struct crowd *crowd) {
    for (int i = 0; i < crowd->names; i++) {
        hf_lock_free(crowd->locks[i]);
        hf_lock_free(crowd->rivals[i]);
    }
    assert_int_equal(hf_close(crowd->client), HF_OK);
    for (int i = 0; i < MANY; i++)
        hf_op_free(crowd->ops[i]);
    assert_int_equal(atomic_load(&crowd->memory.live), 0);
    world_end(&crowd->w);
}

static bool is_small(void *arg) {
    struct crowd *crowd = arg;
    return atomic_load(&crowd->memory.bytes) - crowd->before <= MANY * crowd->allowed;
}

static bool all_listen(void *arg) {
    const struct crowd *crowd = arg;
    return world_channels(crowd->w.server) == crowd->names;
}

struct listeners {
    struct server *server;
    int expected;
};

static bool so_many_listen(void *arg) {
    const struct listeners *listeners = arg;
    return world_channels(listeners->server) >= listeners->expected;
}

static void start_all(struct crowd *crowd) {
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(
            hf_lock_acquire_start(crowd->locks[i % crowd->names], NULL, NULL, NULL, &crowd->ops[i]),
            HF_OK);
        struct listeners listeners = {crowd->w.server, i + 1 < crowd->names ? i + 1 : crowd->names};
        if (i % AT_ONCE == AT_ONCE - 1)
            assert_true(wait_until(so_many_listen, &listeners, HANG_MS));
    }
    assert_true(wait_until(all_listen, crowd, HANG_MS));
}

/* Bytes do not grow with time: what was needed to begin is given back when nothing happens. */
static void assert_small(int names, long allowed) {
    struct crowd crowd;
    begin_crowd(&crowd, names);
    assert_int_equal(hf_ping(crowd.client), HF_OK);
    hf_op *ping; /* connections and their buffers are nobody's in particular */
    assert_int_equal(hf_ping_start(crowd.client, NULL, NULL, &ping), HF_OK);
    assert_int_equal(hf_op_wait(ping, HANG_MS, NULL), HF_OK);
    hf_op_free(ping);
    crowd.before = atomic_load(&crowd.memory.bytes);
    crowd.allowed = allowed;
    start_all(&crowd);
    if (!wait_until(is_small, &crowd, HANG_MS))
        fail_msg("%ld bytes for each", (atomic_load(&crowd.memory.bytes) - crowd.before) / MANY);
    print_message("%ld bytes for each\n", (atomic_load(&crowd.memory.bytes) - crowd.before) / MANY);
    end_crowd(&crowd);
}

static void waiters_of_one_name_take_512_bytes(void **state) {
    (void)state;
    assert_small(1, 512);
}

static void waiters_of_many_names_take_1024_bytes(void **state) {
    (void)state;
    assert_small(MANY, 1024);
}

/* ---- One that is parked ---- */

struct one {
    struct world w;
    struct memory memory;
    hf_client *client;
    hf_lock *lock;
    hf_op *op;
    atomic_int calls;
    hf_result told;
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct one *one = user;
    assert_ptr_equal(op, one->op);
    one->told = *result;
    atomic_fetch_add(&one->calls, 1);
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

/* Or it has ended, as its time was over when the server told it to wait. */
static bool listens_or_ended(void *arg) {
    struct one *one = arg;
    return somebody_listens(one->w.server) || atomic_load(&one->calls) > 0;
}

static void begin_one(struct one *one, const hf_acquire_options *options) {
    memset(one, 0, sizeof *one);
    world_begin(&one->w, NULL);
    assert_int_equal(hf_lock_acquire(one->w.rival_lock), HF_OK);
    hf_options client_options = world_options();
    client_options.allocator = memory_allocator(&one->memory);
    client_options.connect_timeout_ms = 2000;
    assert_int_equal(hf_open(proxy_url(one->w.proxy), &client_options, &one->client), HF_OK);
    assert_int_equal(hf_lock_new(one->client, WORLD_NAME, &one->lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(one->lock, options, on_done, one, &one->op), HF_OK);
    assert_true(wait_until(listens_or_ended, one, HANG_MS));
}

static void end_one(struct one *one) {
    assert_true(world_wait_atomic(&one->calls, 1, HANG_MS));
    assert_int_equal(atomic_load(&one->calls), 1);
    hf_op_free(one->op);
    hf_lock_free(one->lock);
    if (one->client != NULL)
        assert_int_equal(hf_close(one->client), HF_OK);
    assert_true(world_wait_no_channels(one->w.server, HANG_MS));
    world_end(&one->w);
}

static void a_release_wakes_it(void **state) {
    (void)state;
    struct one one;
    hf_result result = HF_RESULT_INIT;
    begin_one(&one, NULL);
    assert_int_equal(hf_lock_release(one.w.rival_lock), HF_OK);
    assert_int_equal(hf_op_wait(one.op, HANG_MS, &result), HF_OK);
    assert_int_equal(result.count, 1);
    assert_true(result.remaining_ms > 0 && result.owner != 0);
    assert_int_equal(world_stats(one.client).contended, 1);
    assert_int_equal(hf_lock_release_as(one.lock, result.owner), HF_OK);
    end_one(&one);
    assert_int_equal(one.told.code, HF_OK);
    assert_int_equal(one.told.owner, result.owner);
}

static void a_cancel_ends_it(void **state) {
    (void)state;
    struct one one;
    begin_one(&one, NULL);
    hf_op_cancel(one.op);
    assert_int_equal(hf_op_wait(one.op, HANG_MS, NULL), HF_ECANCELED);
    assert_int_equal(world_stats(one.client).cancelled, 1);
    end_one(&one);
    assert_int_equal(one.told.code, HF_ECANCELED);
    assert_int_equal(one.told.error.code, HF_ECANCELED);
    assert_string_equal(one.told.error.text, hf_strerror(HF_ECANCELED));
}

static void its_time_runs_out(void **state) {
    (void)state;
    struct one one;
    hf_acquire_options options = world_wait_for(300, HF_WATCHDOG);
    int64_t start_ms = now_ms();
    begin_one(&one, &options);
    assert_int_equal(hf_op_wait(one.op, HANG_MS, NULL), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= 300);
    assert_int_equal(world_stats(one.client).timed_out, 1);
    end_one(&one);
    assert_string_equal(one.told.error.text, "another owner held the lock all the time");
    assert_true(one.told.error.node[0] != '\0');
}

static void closing_ends_it(void **state) {
    (void)state;
    struct one one;
    begin_one(&one, NULL);
    hf_lock_free(one.lock);
    one.lock = NULL;
    assert_int_equal(hf_close(one.client), HF_OK);
    one.client = NULL;
    end_one(&one);
    assert_int_equal(one.told.code, HF_ECLOSED);
}

/* The lock's lease ends without a word: the waiter sleeps no longer than that. */
static void a_lease_that_ends_wakes_it(void **state) {
    (void)state;
    struct one one;
    hf_result result = HF_RESULT_INIT;
    begin_one(&one, NULL);
    cmd_ok(one.w.server, "PEXPIRE %s 700", WORLD_NAME);
    cmd_ok(one.w.server, "PUBLISH %s 0", WORLD_CHANNEL); /* it looks, and knows of the end then */
    assert_int_equal(hf_op_wait(one.op, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(one.lock, result.owner), HF_OK);
    end_one(&one);
}

/* It listens on a connection that is lost, and then on another. */
static void it_survives_its_connections(void **state) {
    (void)state;
    struct one one;
    hf_result result = HF_RESULT_INIT;
    begin_one(&one, NULL);
    proxy_cut_all(one.w.proxy);
    assert_true(wait_until(somebody_listens, one.w.server, HANG_MS));
    assert_int_equal(hf_op_wait(one.op, 0, NULL), HF_EPENDING);
    assert_int_equal(hf_lock_release(one.w.rival_lock), HF_OK);
    assert_int_equal(hf_op_wait(one.op, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(one.lock, result.owner), HF_OK);
    end_one(&one);
}

/* ---- Those behind it ---- */

/* What the one in front hears of the server is true of all; without memory for the words there are
 * those of the code. */
static void a_failure_is_shared(void **state) {
    (void)state;
    for (int starved = 0; starved < 2; starved++) {
        struct one one;
        hf_op *behind;
        hf_result result = HF_RESULT_INIT;
        begin_one(&one, NULL);
        assert_int_equal(hf_lock_acquire_start(one.lock, NULL, NULL, NULL, &behind), HF_OK);
        proxy_refuse(one.w.proxy, true);
        proxy_cut_all(one.w.proxy);
        atomic_store(&one.memory.fail_from, starved); /* from the first on, or never */
        int front = hf_op_wait(one.op, HANG_MS, NULL);
        int err = hf_op_wait(behind, HANG_MS, &result);
        atomic_store(&one.memory.fail_from, 0);
        assert_true(front == HF_EUNREACH || (starved == 1 && front == HF_ENOMEM));
        assert_true(err == HF_EUNREACH || (starved == 1 && err == HF_ENOMEM));
        assert_int_equal(result.code, err);
        assert_int_equal(result.error.code, err);
        assert_true(result.error.text[0] != '\0');
        hf_op_free(behind);
        proxy_refuse(one.w.proxy, false);
        end_one(&one);
    }
}

/* No memory to go on when the messages come: those for whom none was kept end with that, say so, and
 * leave nothing. */
static void without_memory_they_end(void **state) {
    (void)state;
    struct crowd crowd;
    int starved = 0;
    begin_crowd(&crowd, MANY);
    start_all(&crowd);
    atomic_store(&crowd.memory.fail_from, 1);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(hf_lock_release(crowd.rivals[i]), HF_OK);
    static hf_result results[MANY];
    for (int i = 0; i < MANY; i++) {
        results[i] = (hf_result)HF_RESULT_INIT;
        hf_op_wait(crowd.ops[i], HANG_MS, &results[i]);
    }
    atomic_store(&crowd.memory.fail_from, 0);
    for (int i = 0; i < MANY; i++) {
        if (results[i].code == HF_OK) {
            assert_int_equal(hf_lock_release_as(crowd.locks[i], results[i].owner), HF_OK);
            continue;
        }
        starved++;
        assert_int_equal(results[i].code, HF_ENOMEM);
        assert_int_equal(results[i].error.code, HF_ENOMEM);
        assert_string_equal(results[i].error.text, hf_strerror(HF_ENOMEM));
    }
    assert_true(starved > 0);
    for (int i = 0; i < MANY; i++) { /* nobody has it */
        assert_int_equal(hf_lock_acquire_for(crowd.rivals[i], HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(crowd.rivals[i]), HF_OK);
    }
    end_crowd(&crowd);
}

/* A crowd takes turns: everybody gets the lock, in the order in which they came. */
static void all_get_it_in_turn(void **state) {
    (void)state;
    struct crowd crowd;
    begin_crowd(&crowd, 1);
    start_all(&crowd);
    assert_int_equal(hf_lock_release(crowd.rivals[0]), HF_OK);
    for (int i = 0; i < MANY; i++) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(crowd.ops[i], HANG_MS, &result), HF_OK);
        assert_int_equal(hf_lock_release_as(crowd.locks[0], result.owner), HF_OK);
    }
    assert_int_equal(world_stats(crowd.client).acquired, MANY);
    end_crowd(&crowd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiters_of_one_name_take_512_bytes),
        cmocka_unit_test(waiters_of_many_names_take_1024_bytes),
        cmocka_unit_test(a_release_wakes_it),
        cmocka_unit_test(a_cancel_ends_it),
        cmocka_unit_test(its_time_runs_out),
        cmocka_unit_test(closing_ends_it),
        cmocka_unit_test(a_lease_that_ends_wakes_it),
        cmocka_unit_test(it_survives_its_connections),
        cmocka_unit_test(a_failure_is_shared),
        cmocka_unit_test(without_memory_they_end),
        cmocka_unit_test(all_get_it_in_turn),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
