/*
 * hf_op_abandon() and hf_lock_forget(): what nobody can give back any more is given back, or ends with its lease.
 *
 * An operation is abandoned at every moment: while it waits, when its answer is on the way, when it is complete and its
 * callback is still to come. Its callback never runs then, its outputs may be freed, and nothing stays acquired.
 */
#include "support/memory.h"
#include "support/random.h"
#include "support/world.h"

static void count_calls(hf_op *op, const hf_result *result, void *user) {
    (void)op, (void)result;
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Whatever was posted to the client's thread before has been done. */
static void flush(hf_client *client) {
    own_op *op;
    assert_int_equal(hf_ping_start(client, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
}

/* ---- At each moment ---- */

WORLD_CASE(R14_abandoned_while_it_waits) {
    atomic_int calls = 0;
    hf_op *op;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, count_calls, &calls, &op), HF_OK);
    assert_true(hf_op_abandon(op));
    flush(w->client);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(world_stats(w->client).waits, 0);
    assert_int_equal(calls, 0);
}

WORLD_CASE(R14_abandoned_when_the_answer_is_on_its_way) {
    atomic_int calls = 0;
    hf_op *op;
    proxy_mute_replies_after(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, count_calls, &calls, &op), HF_OK);
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    assert_true(hf_op_abandon(op));
    proxy_heal(w->proxy);
    proxy_cut_all(w->proxy);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(calls, 0);
}

/* It was granted, and nobody has seen that. */
struct kind_row {
    const char *name;
    any_kind kind;
};
static const struct kind_row kinds[] = {
    {"plain", HF_PLAIN}, {"fair", HF_FAIR},   {"spin", HF_SPIN},     {"fenced", HF_FENCED},
    {"read", HF_READ},   {"write", HF_WRITE}, {"string", HF_STRING}, {"cohort", HF_COHORT},
};
ROW_CASES(R14_abandoned_when_it_is_granted, row, kinds) {
    OWN(world_end) struct world w;
    hf_op *op;
    world_begin(&w, NULL);
    own_lock *lock = made(new_lock, w.client, row->kind, "granted", 7);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL, &op), HF_OK);
    assert_true(WAIT_FOR(world_stats(w.client).holds == 1, HANG_MS));
    assert_true(hf_op_abandon(op));
    assert_true(WAIT_FOR(world_stats(w.client).holds == 0, HANG_MS));
    assert_true(WAIT_FOR(!server_has(w.server, "granted"), HANG_MS));
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Only what the operation has added. */
WORLD_CASE(R14_one_count_of_a_nested_hold_is_given_back) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.owner = hf_owner_new();
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &op), HF_OK);
    int64_t count = 0;
    assert_true(WAIT_FOR(
        hf_lock_hold_count_as(w->lock, options.owner, &count) == HF_OK && count == 2, HANG_MS));
    assert_true(hf_op_abandon(op));
    assert_true(WAIT_FOR(
        hf_lock_hold_count_as(w->lock, options.owner, &count) == HF_OK && count == 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w->lock, options.owner), HF_OK);
}

WORLD_CASE(R14_a_result_that_was_seen_is_the_callers) {
    hf_result result = HF_RESULT_INIT;
    hf_op *op;
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_false(hf_op_abandon(op));
    flush(w->client);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_true(hf_op_abandon(NULL));
}

struct seen {
    hf_lock *lock;
    hf_op *op;
    atomic_int calls;
    bool abandoned;
};

static void abandon_inside(hf_op *op, const hf_result *result, void *user) {
    struct seen *seen = user;
    assert_int_equal(result->code, HF_OK);
    seen->abandoned = hf_op_abandon(op);
    assert_int_equal(hf_lock_release_start(seen->lock, result->owner, NULL, NULL, NULL), HF_OK);
    atomic_fetch_add(&seen->calls, 1);
}

WORLD_CASE(R14_abandoned_in_its_callback_is_freed) {
    struct seen seen = {.lock = w->lock, .abandoned = true};
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, abandon_inside, &seen, &seen.op), HF_OK);
    assert_true(WAIT_FOR(atomic_load(&seen.calls) == 1, HANG_MS));
    assert_false(seen.abandoned);
    assert_true(world_wait_free(w, HANG_MS));
}

/* The callback is due in hf_dispatch(). */
CASE(R14_a_callback_that_is_due_does_not_run) {
    OWN(world_end) struct world w;
    atomic_int calls = 0;
    hf_options options = world_options();
    hf_op *op;
    world_begin(&w, &options);
    options.flags = HF_MANUAL_DISPATCH;
    own_client *client = made(hf_open, server_url(w.server), &options);
    own_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, count_calls, &calls, &op), HF_OK);
    assert_int_equal(hf_dispatch(client, HANG_MS), 1); /* the one it sees */
    assert_int_equal(calls, 1);
    assert_false(hf_op_abandon(op));
    assert_int_equal(hf_lock_break(w.rival_lock, NULL), HF_OK);

    hf_op *ops[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_ping_start(client, count_calls, &calls, &ops[i]), HF_OK);
    assert_true(hf_op_abandon(ops[0]));
    while (calls < 2)
        assert_true(hf_dispatch(client, HANG_MS) >= 0);
    assert_int_equal(calls, 2);
    hf_op_free(ops[1]);
}

/* ---- What is acquired otherwise ---- */

WORLD_CASE(R14_permits_and_a_semaphores_are_given_back) {
    hf_permits_options many = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id *ids = malloc(3 * sizeof *ids);
    hf_op *op;
    int64_t number;
    assert_int_equal(hf_sem_try_set(w->sem, 5, 0, NULL), HF_OK);
    assert_int_equal(hf_sem_acquire_start(w->sem, 3, NULL, NULL, NULL, &op), HF_OK);
    assert_true(WAIT_FOR(hf_sem_available(w->sem, &number) == HF_OK && number == 2, HANG_MS));
    assert_true(hf_op_abandon(op));
    assert_true(WAIT_FOR(hf_sem_available(w->sem, &number) == HF_OK && number == 5, HANG_MS));

    assert_int_equal(hf_permits_try_set(w->permits, 5, NULL), HF_OK);
    many.count = 3;
    assert_int_equal(hf_permits_acquire_start(w->permits, &many, ids, NULL, NULL, &op), HF_OK);
    assert_true(
        WAIT_FOR(hf_permits_available(w->permits, &number) == HF_OK && number == 2, HANG_MS));
    assert_true(hf_op_abandon(op));
    free(ids); /* it is not written any more */
    assert_true(
        WAIT_FOR(hf_permits_available(w->permits, &number) == HF_OK && number == 5, HANG_MS));
    assert_int_equal(world_stats(w->client).holds, 0);
}

/* Outputs are freed with the operation that nobody sees, whenever that is. */
CASE(R14_outputs_are_freed) {
    OWN(world_end) struct world w;
    struct memory memory;
    uint64_t seed = random_seed();
    memset(&memory, 0, sizeof memory);
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    for (int i = 0; i < 60; i++) {
        hf_lock_info **info = calloc(1, sizeof(hf_lock_info *));
        hf_server_info **facts = calloc(1, sizeof(hf_server_info *));
        hf_fleet **fleet = calloc(1, sizeof(hf_fleet *));
        hf_op *ops[3];
        assert_int_equal(hf_lock_inspect_start(w.lock, info, NULL, NULL, &ops[0]), HF_OK);
        assert_int_equal(hf_lock_server_info_start(w.lock, facts, NULL, NULL, &ops[1]), HF_OK);
        assert_int_equal(hf_survey_start(w.client, NULL, fleet, NULL, NULL, &ops[2]), HF_OK);
        usleep((useconds_t)(random_next(&seed) % 3000)); /* at any moment of theirs */
        for (int k = 0; k < 3; k++)
            assert_true(hf_op_abandon(ops[k]));
        free(info);
        free(facts);
        free(fleet);
    }
    flush(w.client);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
}

WORLD_CASE(R14_an_adopted_hold_is_forgotten) {
    hf_options options = world_options();
    char handle[HF_HANDLE_MAX];
    hf_op *op;
    options.watchdog_ms = 300;
    own_client *brief = made(hf_open, server_url(w->server), &options);
    own_lock *lock = made(hf_lock_new, brief, WORLD_NAME);
    hf_acquire_options fixed = world_wait_for(0, 1000);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &fixed, NULL), HF_OK);
    assert_int_equal(hf_lock_handle(w->rival_lock, 0, handle, sizeof handle), HF_OK);
    assert_int_equal(hf_lock_adopt_start(lock, handle, HF_WATCHDOG, NULL, NULL, &op), HF_OK);
    assert_true(WAIT_FOR(world_stats(brief).holds == 1, HANG_MS));
    assert_true(hf_op_abandon(op));
    assert_true(WAIT_FOR(world_stats(brief).holds == 0, HANG_MS));
    assert_true(world_wait_free(w, HANG_MS));
}

/* ---- Closing comes next ---- */

/* What was granted when it was abandoned is given back before the client is gone. */
CASE(R14_abandoned_before_a_close) {
    OWN(world_end) struct world w;
    int rounds = getenv("HF_SOAK") != NULL ? 2000 : 150;
    uint64_t seed = random_seed();
    world_begin(&w, NULL);
    for (int i = 0; i < rounds; i++) {
        hf_options options = world_options();
        own_lock *fair;
        hf_op *ops[3];
        hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
        acquire.owner = 7;
        if (i % 2 == 1)
            options.flags = HF_MANUAL_DISPATCH;
        hf_client *client = made(hf_open, server_url(w.server), &options);
        own_lock *lock = made(hf_lock_new, client, "left");
        assert_int_equal(new_lock(client, HF_FAIR, "left-fair", 9, &fair), HF_OK);
        assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL, &ops[0]), HF_OK);
        assert_int_equal(hf_lock_acquire_start(lock, &acquire, NULL, NULL, &ops[1]), HF_OK);
        assert_int_equal(hf_lock_acquire_start(fair, NULL, NULL, NULL, &ops[2]), HF_OK);
        if (i % 2 == 1)
            hf_dispatch(client, 0);
        usleep((useconds_t)(random_next(&seed) % 1500)); /* at any moment of theirs */
        for (int k = 0; k < 3; k++)
            assert_true(hf_op_abandon(ops[k]));
        assert_int_equal(hf_close(client), HF_OK);
        assert_false(server_has(w.server, "left"));
        assert_false(server_has(w.server, "left-fair"));
    }
}

/* ---- Many, at random ---- */

struct one {
    atomic_int calls, code;
    hf_owner owner;
};

static void note(hf_op *op, const hf_result *result, void *user) {
    struct one *one = user;
    (void)op;
    one->owner = result->owner;
    atomic_store(&one->code, result->code);
    atomic_fetch_add(&one->calls, 1);
}

CASE(R14_each_result_is_seen_or_undone) {
    OWN(world_end) struct world w;
    int rounds = getenv("HF_SOAK") != NULL ? 20000 : 1000, abandoned = 0;
    uint64_t seed = random_seed();
    hf_lock *locks[3];
    world_begin(&w, NULL);
    assert_int_equal(new_lock(w.client, HF_PLAIN, "any", 3, &locks[0]), HF_OK);
    assert_int_equal(new_lock(w.client, HF_FAIR, "any-fair", 8, &locks[1]), HF_OK);
    assert_int_equal(new_lock(w.client, HF_COHORT, "any-cohort", 10, &locks[2]), HF_OK);
    for (int i = 0; i < rounds; i++) {
        struct one one = {.code = 1};
        hf_lock *lock = locks[i % 3];
        hf_op *op;
        assert_int_equal(hf_lock_acquire_start(lock, NULL, note, &one, &op), HF_OK);
        if (random_next(&seed) % 4 != 0)
            usleep((useconds_t)(random_next(&seed) % 400)); /* at any moment of its */
        if (hf_op_abandon(op)) {
            abandoned++;
            assert_int_equal(atomic_load(&one.calls), 0);
            continue;
        }
        assert_true(WAIT_FOR(atomic_load(&one.calls) == 1, HANG_MS));
        assert_int_equal(atomic_load(&one.code), HF_OK);
        assert_int_equal(hf_lock_release_as(lock, one.owner), HF_OK);
    }
    assert_true(abandoned > 0);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(hf_lock_acquire_for(locks[k], HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(locks[k]), HF_OK);
        hf_lock_free(locks[k]);
    }
    assert_true(WAIT_FOR(world_keys(w.server) == 0, HANG_MS));
}

/* ---- Forgetting ---- */

/* Renewed until then, lost at its deadline. */
ROW_CASES(R15_a_forgotten_hold_ends_with_its_lease, row, kinds) {
    OWN(world_end) struct world w;
    struct world_events events;
    hf_options options = world_options();
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    options.watchdog_ms = 600;
    memset(&events, 0, sizeof events);
    world_begin(&w, &options);
    own_lock *lock = made(new_lock, w.client, row->kind, "forgotten", 9);
    acquire.owner = hf_owner_new();
    assert_int_equal(hf_lock_on_lost(lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire_with(lock, &acquire, NULL), HF_OK);
    assert_int_equal(hf_lock_forget_as(lock, acquire.owner), HF_OK);
    int64_t left_ms = hf_lock_remaining_ms_as(lock, acquire.owner);
    assert_true(left_ms > 0 && left_ms <= options.watchdog_ms);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(WAIT_FOR(!server_has(w.server, "forgotten"), HANG_MS));
    assert_int_equal(hf_lock_forget_as(lock, acquire.owner), HF_ELOST);
    assert_int_equal(hf_lock_forget_as(lock, acquire.owner), HF_ENOTOWNER);
}

WORLD_CASE_WITH(R15_a_forgotten_hold_can_be_released_or_taken_up_again, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    assert_int_equal(hf_lock_forget(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_forget(w->lock), HF_OK);
    assert_int_equal(hf_lock_forget(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_forget(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK); /* with the watchdog: it is renewed again */
    assert_true(server_wait_outlived(w->server, WORLD_NAME, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_forget(NULL), HF_EINVAL);
}

RUN_CASES(world_start_server, world_stop_server)
