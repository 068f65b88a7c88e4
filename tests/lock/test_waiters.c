/*
 * Asynchronous waiters, of whom there may be a hundred thousand: what each costs, and that nothing
 * is different for clients that are parked (their engine sleeps, so they have neither a call nor a hold).
 *
 * Bytes are counted by the client's allocator. A waiter for a name that another of the client waits
 * for, too, takes no more than 512, and one with a name of its own no more than 1024.
 */
#include "support/memory.h"
#include "support/world.h"

#define MANY 400
#define AT_ONCE 20 /* so that the buffers of connections stay small */

struct waiters {
    struct world w; /* the rival holds what they wait for */
    struct memory memory;
    hf_client *client;
    hf_lock *locks[MANY], *rivals[MANY];
    hf_op *ops[MANY];
    int names; /* how many locks there are */
    long before;
    long allowed; /* bytes for each */
};

static void begin_waiters(struct waiters *waiters, int names) {
    memset(waiters, 0, sizeof *waiters);
    world_begin(&waiters->w, NULL);
    hf_options options = world_options();
    options.allocator = memory_allocator(&waiters->memory);
    assert_int_equal(hf_open(server_url(waiters->w.server), &options, &waiters->client), HF_OK);
    waiters->names = names;
    for (int i = 0; i < names; i++) {
        own_text *name = text_of("waited-for-%07d", i);
        assert_int_equal(hf_lock_new(waiters->client, name, &waiters->locks[i]), HF_OK);
        assert_int_equal(hf_lock_new(waiters->w.rival, name, &waiters->rivals[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(waiters->rivals[i]), HF_OK);
    }
}

static void end_waiters(struct waiters *waiters) {
    for (int i = 0; i < waiters->names; i++) {
        hf_lock_free(waiters->locks[i]);
        hf_lock_free(waiters->rivals[i]);
    }
    assert_int_equal(hf_close(waiters->client), HF_OK);
    for (int i = 0; i < MANY; i++)
        hf_op_free(waiters->ops[i]);
    assert_int_equal(atomic_load(&waiters->memory.live), 0);
    world_end(&waiters->w);
}

static bool is_small(void *arg) {
    struct waiters *waiters = arg;
    return atomic_load(&waiters->memory.bytes) - waiters->before <= MANY * waiters->allowed;
}

static bool all_listen(void *arg) {
    const struct waiters *waiters = arg;
    return world_channels(waiters->w.server) == waiters->names;
}

struct listeners {
    struct server *server;
    int expected;
};

static bool so_many_listen(void *arg) {
    const struct listeners *listeners = arg;
    return world_channels(listeners->server) >= listeners->expected;
}

static void start_all(struct waiters *waiters) {
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hf_lock_acquire_start(waiters->locks[i % waiters->names], NULL, NULL, NULL,
                                               &waiters->ops[i]),
                         HF_OK);
        struct listeners listeners = {waiters->w.server,
                                      i + 1 < waiters->names ? i + 1 : waiters->names};
        if (i % AT_ONCE == AT_ONCE - 1)
            assert_true(wait_until(so_many_listen, &listeners, HANG_MS));
    }
    assert_true(wait_until(all_listen, waiters, HANG_MS));
}

/* Bytes do not grow with time: what was needed to begin is given back when nothing happens. */
static void assert_small(int names, long allowed) {
    OWN(end_waiters) struct waiters waiters;
    begin_waiters(&waiters, names);
    assert_int_equal(hf_ping(waiters.client), HF_OK);
    hf_op *ping; /* connections and their buffers are nobody's in particular */
    assert_int_equal(hf_ping_start(waiters.client, NULL, NULL, &ping), HF_OK);
    assert_int_equal(joined(ping, NULL), HF_OK);
    waiters.before = atomic_load(&waiters.memory.bytes);
    waiters.allowed = allowed;
    start_all(&waiters);
    if (!wait_until(is_small, &waiters, HANG_MS))
        fail_msg("%ld bytes for each",
                 (atomic_load(&waiters.memory.bytes) - waiters.before) / MANY);
    print_message("%ld bytes for each\n",
                  (atomic_load(&waiters.memory.bytes) - waiters.before) / MANY);
}

CASE(waiters_of_one_name_take_512_bytes) {
    assert_small(1, 512);
}

CASE(waiters_of_many_names_take_1024_bytes) {
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
    hf_result notified;
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct one *one = user;
    assert_ptr_equal(op, one->op);
    one->notified = *result;
    atomic_fetch_add(&one->calls, 1);
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

/* Or it has ended, as its time was over when the server made it wait. */
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

CASE(a_release_wakes_it) {
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
    assert_int_equal(one.notified.code, HF_OK);
    assert_int_equal(one.notified.owner, result.owner);
}

CASE(a_cancel_ends_it) {
    struct one one;
    begin_one(&one, NULL);
    hf_op_cancel(one.op);
    assert_int_equal(hf_op_wait(one.op, HANG_MS, NULL), HF_ECANCELED);
    assert_int_equal(world_stats(one.client).cancelled, 1);
    end_one(&one);
    assert_int_equal(one.notified.code, HF_ECANCELED);
    assert_int_equal(one.notified.error.code, HF_ECANCELED);
    assert_string_equal(one.notified.error.text, hf_strerror(HF_ECANCELED));
}

CASE(its_time_runs_out) {
    struct one one;
    hf_acquire_options options = world_wait_for(300, HF_WATCHDOG);
    int64_t start_ms = now_ms();
    begin_one(&one, &options);
    assert_int_equal(hf_op_wait(one.op, HANG_MS, NULL), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= 300);
    assert_int_equal(world_stats(one.client).timed_out, 1);
    end_one(&one);
    assert_string_equal(one.notified.error.text, "another owner held the lock for the whole wait");
    assert_true(one.notified.error.node[0] != '\0');
}

CASE(closing_ends_it) {
    struct one one;
    begin_one(&one, NULL);
    hf_lock_free(one.lock);
    one.lock = NULL;
    assert_int_equal(hf_close(one.client), HF_OK);
    one.client = NULL;
    end_one(&one);
    assert_int_equal(one.notified.code, HF_ECLOSED);
}

/* The lock's lease ends without a word: the waiter sleeps no longer than that. It is a stranger's:
 * a holder of ours would renew it when it begins to listen. */
CASE_IN(a_lease_that_ends_wakes_it, struct one, one, begin_one, end_one, NULL) {
    hf_result result = HF_RESULT_INIT;
    cmd_ok(one->w.server, "MULTI");
    cmd_ok(one->w.server, "DEL %s", WORLD_NAME);
    cmd_ok(one->w.server, "HSET %s stranger:1 1", WORLD_NAME);
    cmd_ok(one->w.server, "PEXPIRE %s 700", WORLD_NAME);
    cmd_ok(one->w.server, "EXEC");
    cmd_ok(one->w.server, "PUBLISH %s 0", WORLD_CHANNEL); /* it looks, and knows of the end then */
    assert_int_equal(hf_op_wait(one->op, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(one->lock, result.owner), HF_OK);
}

/* It listens on a connection that is lost, and then on another. */
CASE_IN(it_survives_its_connections, struct one, one, begin_one, end_one, NULL) {
    hf_result result = HF_RESULT_INIT;
    proxy_cut_all(one->w.proxy);
    assert_true(wait_until(somebody_listens, one->w.server, HANG_MS));
    assert_int_equal(hf_op_wait(one->op, 0, NULL), HF_EPENDING);
    assert_int_equal(hf_lock_release(one->w.rival_lock), HF_OK);
    assert_int_equal(hf_op_wait(one->op, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(one->lock, result.owner), HF_OK);
}

/* ---- Those behind it ---- */

/* What the one in front hears of the server is true of all; without memory for the words there are
 * those of the code. */
CASE(a_failure_is_shared) {
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

/* No memory to continue when the messages come: waiters without reserved memory end with that
 * error, and leave nothing behind. */
CASE_IN(without_memory_they_end, struct waiters, waiters, begin_waiters, end_waiters, MANY) {
    int starved = 0;
    start_all(waiters);
    atomic_store(&waiters->memory.fail_from, 1);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(hf_lock_release(waiters->rivals[i]), HF_OK);
    static hf_result results[MANY];
    for (int i = 0; i < MANY; i++) {
        results[i] = (hf_result)HF_RESULT_INIT;
        hf_op_wait(waiters->ops[i], HANG_MS, &results[i]);
    }
    atomic_store(&waiters->memory.fail_from, 0);
    for (int i = 0; i < MANY; i++) {
        if (results[i].code == HF_OK) {
            assert_int_equal(hf_lock_release_as(waiters->locks[i], results[i].owner), HF_OK);
            continue;
        }
        starved++;
        assert_int_equal(results[i].code, HF_ENOMEM);
        assert_int_equal(results[i].error.code, HF_ENOMEM);
        assert_string_equal(results[i].error.text, hf_strerror(HF_ENOMEM));
    }
    assert_true(starved > 0);
    for (int i = 0; i < MANY; i++) { /* nobody has it */
        assert_int_equal(hf_lock_acquire_for(waiters->rivals[i], HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(waiters->rivals[i]), HF_OK);
    }
}

/* Waiters take turns: everybody gets the lock, in the order in which they came. */
CASE_IN(all_get_it_in_turn, struct waiters, waiters, begin_waiters, end_waiters, 1) {
    start_all(waiters);
    assert_int_equal(hf_lock_release(waiters->rivals[0]), HF_OK);
    for (int i = 0; i < MANY; i++) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(waiters->ops[i], HANG_MS, &result), HF_OK);
        assert_int_equal(hf_lock_release_as(waiters->locks[0], result.owner), HF_OK);
    }
    assert_int_equal(world_stats(waiters->client).acquired, MANY);
}

RUN_CASES(world_start_server, world_stop_server)
