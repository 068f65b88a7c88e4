/*
 * Every kind in a cluster of one server (see cluster.h for what that can show): acquire, renew,
 * wait, hand over, release, ask and break, with plain names and with a prefix. Rows C011, C017,
 * C034, C086 and C158.
 *
 * One thread, but for the waiters; one server for all.
 */
#include "lock/cluster.h"

/* Without this the rest would show nothing. */
CASE(the_server_refuses_keys_of_two_slots) {
    redisReply *reply = cmd(cluster_server(), "DEL a b");
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_memory_equal(reply->str, "CROSSSLOT", 9);
    freeReplyObject(reply);
    assert_int_equal(cluster_refusals(), 1);
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Waiters do so under a number of their own: a thread that has ended would not be renewed.
 */
enum { ONE = 1, TWO = 2 };

static hf_lock *lock_of(hf_client *client, any_kind kind) {
    return made(new_lock, client, kind, WORLD_NAME, strlen(WORLD_NAME));
}

static int acquire_as(hf_lock *lock, hf_owner owner, int64_t wait_ms) {
    hf_acquire_options options = world_wait_as(owner, wait_ms, HF_WATCHDOG);
    return hf_lock_acquire_with(lock, &options, NULL);
}

/* Starts a wait and returns when an attempt is at the server, and somebody listens if the kind
 * does. */
static void wait_as(struct pair *pair, hf_client *client, hf_lock *lock, hf_owner owner,
                    bool listens, struct world_caller *caller) {
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    char text[64];
    options.owner = owner;
    world_owner_text(client, owner, text);
    size_t seen = monitor_count(pair->monitor, text);
    world_call_acquire(caller, lock, options);
    assert_true(monitor_wait(pair->monitor, text, seen + 1, HANG_MS));
    if (listens)
        cluster_wait_listeners();
}

static void assert_locked(hf_lock *lock, bool expected) {
    bool locked;
    assert_int_equal(hf_lock_is_locked(lock, &locked), HF_OK);
    assert_int_equal(locked, expected);
}

static void assert_held_by(hf_lock *lock, hf_owner owner, bool expected) {
    bool held;
    assert_int_equal(hf_lock_is_mine_as(lock, owner, &held), HF_OK);
    assert_int_equal(held, expected);
}

static void ask_everything(hf_lock *mine, hf_lock *others) {
    int64_t number;
    own_info *info;
    assert_locked(mine, true);
    assert_locked(others, true);
    assert_held_by(mine, ONE, true);
    assert_held_by(others, ONE, false);
    assert_int_equal(hf_lock_hold_count_as(mine, ONE, &number), HF_OK);
    assert_int_equal(number, 1);
    assert_int_equal(hf_lock_ttl_ms(others, &number), HF_OK);
    assert_true(number > 0);
    assert_int_equal(hf_lock_inspect(others, &info), HF_OK);
    assert_int_equal(info->holders_len, 1);
}

static void break_it(struct pair *pair, hf_lock *mine, hf_lock *others) {
    bool broken;
    assert_int_equal(acquire_as(mine, ONE, 0), HF_OK);
    assert_int_equal(hf_lock_break(others, &broken), HF_OK);
    assert_true(broken);
    assert_locked(mine, false);
    assert_int_equal(hf_lock_release_as(mine, ONE), HF_ELOST);
    pair->losses++;
}

struct lock_case {
    any_kind kind;
    bool listens;
    bool confirms;  /* who is handed it has to say that it is there */
    long long kept; /* keys that stay when it is free */
};

/* One holds it and is renewed, the other gives up once, then waits and is handed it. */
static void hold_and_hand_over(struct pair *pair, void *arg) {
    const struct lock_case *lock = arg;
    struct world_caller waiter;
    hf_lock *mine = lock_of(pair->one, lock->kind), *others = lock_of(pair->two, lock->kind);
    assert_int_equal(acquire_as(mine, ONE, HF_FOREVER), HF_OK);
    ask_everything(mine, others);
    pair_assert_one_slot(pair, 0);
    assert_int_equal(acquire_as(others, TWO, 0), HF_EBUSY);
    assert_int_equal(acquire_as(others, TWO, 20), HF_ETIMEDOUT);
    wait_as(pair, pair->two, others, TWO, lock->listens, &waiter);
    cluster_wait_renewed(pair->one, 1);
    pair_assert_one_slot(pair, lock->listens ? 1 : 0);
    assert_int_equal(hf_lock_extend_as(mine, ONE, 10000), HF_OK);
    assert_int_equal(hf_lock_release_as(mine, ONE), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    if (lock->confirms)
        cluster_wait_renewed(pair->two, 1);
    pair_assert_one_slot(pair, 0);
    assert_int_equal(hf_lock_release_as(others, TWO), HF_OK);
    assert_locked(mine, false);
    assert_locked(others, false);
    break_it(pair, mine, others);
    assert_int_equal(world_keys(cluster_server()), lock->kept);
    hf_lock_free(mine);
    hf_lock_free(others);
}

CASE(C011_plain) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_PLAIN, true, false, 0});
}

CASE(nonreentrant) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_NONREENTRANT, true, false, 0});
}

CASE(C034_spin) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_SPIN, false, false, 0});
}

CASE(fenced) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_FENCED, true, false, 1});
}

CASE(fair) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_FAIR, true, true, 0});
}

CASE(fair_nonreentrant) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_FAIR | HF_NONREENTRANT, true, true, 0});
}

CASE(S32_string) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_STRING, true, false, 0});
    cluster_play(hold_and_hand_over,
                 &(struct lock_case){HF_STRING | HF_NONREENTRANT, true, false, 0});
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_STRING | HF_SPIN, false, false, 0});
}

CASE(write_side) {
    cluster_play(hold_and_hand_over, &(struct lock_case){HF_WRITE, true, false, 0});
}

static void try_and_release(struct pair *pair, void *arg) {
    (void)arg;
    own_lock *lock = lock_of(pair->one, HF_PLAIN);
    for (int round = 0; round < 30; round++) {
        assert_int_equal(hf_lock_try(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_int_equal(world_keys(cluster_server()), 0);
}

CASE(C017_thirty_rounds) {
    cluster_play(try_and_release, NULL);
}

/* ---- Read/write ------------------------------------------------------------------------------ */

static void write_then_read(struct pair *pair, void *arg) {
    (void)arg;
    hf_lock *read = lock_of(pair->one, HF_READ), *write = lock_of(pair->one, HF_WRITE);
    assert_int_equal(acquire_as(write, ONE, HF_FOREVER), HF_OK);
    assert_int_equal(acquire_as(read, ONE, HF_FOREVER), HF_OK);
    pair_assert_one_slot(pair, 0);
    cluster_wait_renewed(pair->one, 2); /* both sides */
    assert_int_equal(hf_lock_release_as(read, ONE), HF_OK);
    pair_assert_one_slot(pair, 0);
    assert_int_equal(hf_lock_release_as(write, ONE), HF_OK);
    assert_int_equal(world_keys(cluster_server()), 0);

    assert_int_equal(acquire_as(write, ONE, HF_FOREVER), HF_OK);
    assert_int_equal(acquire_as(read, ONE, HF_FOREVER), HF_OK);
    assert_int_equal(hf_lock_release_as(write, ONE), HF_OK);
    pair_assert_one_slot(pair, 0);
    assert_int_equal(hf_lock_release_as(read, ONE), HF_OK);
    assert_int_equal(world_keys(cluster_server()), 0);
    hf_lock_free(read);
    hf_lock_free(write);
}

CASE(C086_write_then_read) {
    cluster_play(write_then_read, NULL);
}

/* Two readers, a writer behind them, and a reader behind that. */
static void readers_and_a_writer(struct pair *pair, void *arg) {
    (void)arg;
    struct world_caller writer, reader;
    hf_lock *read = lock_of(pair->one, HF_READ), *write = lock_of(pair->one, HF_WRITE);
    own_lock *others = lock_of(pair->two, HF_READ);
    assert_int_equal(acquire_as(read, ONE, HF_FOREVER), HF_OK);
    ask_everything(read, others);
    assert_int_equal(acquire_as(read, ONE, HF_FOREVER), HF_OK);
    assert_int_equal(acquire_as(others, TWO, HF_FOREVER), HF_OK);
    pair_assert_one_slot(pair, 0);
    wait_as(pair, pair->one, write, TWO, true, &writer);
    cluster_wait_renewed(pair->one, 1);
    cluster_wait_renewed(pair->two, 1);
    pair_assert_one_slot(pair, 1);
    assert_int_equal(hf_lock_release_as(others, TWO), HF_OK);
    assert_int_equal(hf_lock_release_as(read, ONE), HF_OK);
    assert_int_equal(hf_lock_release_as(read, ONE), HF_OK);
    assert_int_equal(world_join(&writer), HF_OK);
    wait_as(pair, pair->two, others, TWO, true, &reader);
    pair_assert_one_slot(pair, 1);
    assert_int_equal(hf_lock_release_as(write, TWO), HF_OK);
    assert_int_equal(world_join(&reader), HF_OK);
    assert_int_equal(hf_lock_release_as(others, TWO), HF_OK);
    break_it(pair, read, others);
    assert_int_equal(world_keys(cluster_server()), 0);
    hf_lock_free(read);
    hf_lock_free(write);
}

CASE(read_side) {
    cluster_play(readers_and_a_writer, NULL);
}

/* ---- What nobody holds ----------------------------------------------------------------------- */

static void wait_op(hf_op *op) {
    assert_int_equal(joined(op, NULL), HF_OK);
}

static void use_semaphore(struct pair *pair, void *arg) {
    (void)arg;
    hf_op *op;
    bool yes;
    int64_t number;
    own_sem *mine = made(hf_sem_new_bytes, pair->one, WORLD_NAME, strlen(WORLD_NAME));
    own_sem *others = made(hf_sem_new_bytes, pair->two, WORLD_NAME, strlen(WORLD_NAME));
    assert_int_equal(hf_sem_try_set(mine, 2, 0, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_sem_acquire(mine, 2), HF_OK);
    assert_int_equal(hf_sem_try(others, 1), HF_EBUSY);
    assert_int_equal(hf_sem_acquire_start(others, 1, NULL, NULL, NULL, &op), HF_OK);
    cluster_wait_listeners();
    pair_assert_one_slot(pair, 1);
    assert_int_equal(hf_sem_release(mine, 2), HF_OK);
    wait_op(op);
    assert_int_equal(hf_sem_release_if_exists(others, 1, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_sem_add(mine, 1), HF_OK);
    assert_int_equal(hf_sem_available(others, &number), HF_OK);
    assert_int_equal(number, 3);
    assert_int_equal(hf_sem_drain(mine, &number), HF_OK);
    assert_int_equal(number, 3);
    assert_int_equal(hf_sem_delete(mine, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(world_keys(cluster_server()),
                     2); /* the idempotency keys of the two stay for a while */
    pair_assert_one_slot(pair, 0);
    cmd_ok(cluster_server(), "FLUSHALL");
}

CASE(semaphore) {
    cluster_play(use_semaphore, NULL);
}

/* Whatever the braces, no second slot is asked for. */
static void use_odd_names(struct pair *pair, void *arg) {
    static const char *const names[] = {"a}b", "a{}b", "a{b", "a}b{c}d"};
    (void)arg;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool yes;
        own_sem *sem = made(hf_sem_new_bytes, pair->one, names[i], strlen(names[i]));
        assert_int_equal(hf_sem_try_set(sem, 1, 0, &yes), HF_OK);
        assert_true(yes);
        assert_int_equal(hf_sem_try(sem, 1), HF_OK);
        assert_int_equal(hf_sem_release(sem, 1), HF_OK);
        assert_int_equal(hf_sem_delete(sem, &yes), HF_OK);
        assert_true(yes);
    }
}

CASE(semaphores_of_odd_names) {
    cluster_play(use_odd_names, NULL);
}

static void ask_permits(hf_permits *permits, const hf_permit_id *id) {
    int64_t number;
    assert_int_equal(hf_permits_total(permits, &number), HF_OK);
    assert_int_equal(number, 1);
    assert_int_equal(hf_permits_available(permits, &number), HF_OK);
    assert_int_equal(number, 0);
    assert_int_equal(hf_permits_taken(permits, &number), HF_OK);
    assert_int_equal(number, 1);
    assert_int_equal(hf_permits_ttl_ms(permits, id, &number), HF_OK);
    assert_true(number > 0);
}

static void use_permits(struct pair *pair, void *arg) {
    (void)arg;
    hf_permits_options watched = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id id, other_id;
    hf_op *op;
    bool yes;
    watched.lease_ms = HF_WATCHDOG;
    own_permits *mine = made(hf_permits_new_bytes, pair->one, WORLD_NAME, strlen(WORLD_NAME));
    own_permits *others = made(hf_permits_new_bytes, pair->two, WORLD_NAME, strlen(WORLD_NAME));
    assert_int_equal(hf_permits_try_set(mine, 1, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_permits_acquire_with(mine, &watched, &id), HF_OK);
    ask_permits(others, &id);
    assert_int_equal(hf_permits_try(others, &other_id), HF_EBUSY);
    assert_int_equal(hf_permits_acquire_start(others, &watched, &other_id, NULL, NULL, &op), HF_OK);
    cluster_wait_listeners();
    cluster_wait_renewed(pair->one, 1);
    pair_assert_one_slot(pair, 1);
    assert_int_equal(hf_permits_extend(mine, &id, 10000), HF_OK);
    assert_int_equal(hf_permits_release(mine, &id), HF_OK);
    wait_op(op);
    assert_int_equal(hf_permits_release_many(others, &other_id, 1), HF_OK);
    assert_int_equal(hf_permits_add(mine, 2), HF_OK);
    assert_int_equal(hf_permits_set(mine, 5), HF_OK);
    assert_int_equal(hf_permits_expire(mine, 60000, &yes), HF_OK);
    assert_true(yes);
    pair_assert_one_slot(pair, 0);
    assert_int_equal(hf_permits_delete(mine, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(world_keys(cluster_server()), 0);
}

CASE(C158_permits) {
    cluster_play(use_permits, NULL);
}

static void use_latch(struct pair *pair, void *arg) {
    (void)arg;
    hf_op *op;
    bool yes;
    int64_t number;
    own_latch *mine = made(hf_latch_new_bytes, pair->one, WORLD_NAME, strlen(WORLD_NAME));
    own_latch *others = made(hf_latch_new_bytes, pair->two, WORLD_NAME, strlen(WORLD_NAME));
    assert_int_equal(hf_latch_try_set(mine, 2, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_latch_await_start(others, NULL, NULL, NULL, &op), HF_OK);
    cluster_wait_listeners();
    pair_assert_one_slot(pair, 1);
    assert_int_equal(hf_latch_count_down(mine), HF_OK);
    assert_int_equal(hf_latch_count(others, &number), HF_OK);
    assert_int_equal(number, 1);
    assert_int_equal(hf_latch_count_down(mine), HF_OK);
    wait_op(op);
    assert_int_equal(hf_latch_try_set(mine, 1, &yes), HF_OK);
    assert_int_equal(hf_latch_delete(others, &yes), HF_OK);
    assert_true(yes);
    cmd_ok(cluster_server(), "DEL {%s}:holdfast_latch", pair->full_name); /* stays for a while */
    assert_int_equal(world_keys(cluster_server()), 0);
}

CASE(latch) {
    cluster_play(use_latch, NULL);
}

/* ---- Many names of one client ---------------------------------------------------------------- */

enum { NAMES = 5, HOLDS = 4 * NAMES };

struct many {
    hf_lock *plain[NAMES], *read[NAMES], *write[NAMES];
    hf_permits *permits[NAMES];
    hf_permit_id ids[NAMES];
};

static hf_lock *named_lock(hf_client *client, any_kind kind, const char *what, int i) {
    own_text *name = text_of("%s%d", what, i);
    hf_lock *lock = made(new_lock, client, kind, name, strlen(name));
    assert_int_equal(acquire_as(lock, ONE, HF_FOREVER), HF_OK);
    return lock;
}

static void take_names(hf_client *client, struct many *many) {
    hf_permits_options watched = HF_PERMITS_OPTIONS_INIT;
    watched.lease_ms = HF_WATCHDOG;
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        bool set;
        many->plain[i] = named_lock(client, HF_PLAIN, "plain", i);
        many->write[i] = named_lock(client, HF_WRITE, "both", i);
        many->read[i] = named_lock(client, HF_READ, "both", i);
        snprintf(name, sizeof name, "permits%d", i);
        assert_int_equal(hf_permits_new_bytes(client, name, strlen(name), &many->permits[i]),
                         HF_OK);
        assert_int_equal(hf_permits_try_set(many->permits[i], 1, &set), HF_OK);
        assert_int_equal(hf_permits_acquire_with(many->permits[i], &watched, &many->ids[i]), HF_OK);
    }
}

static void give_names_back(struct many *many) {
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(hf_lock_release_as(many->plain[i], ONE), HF_OK);
        assert_int_equal(hf_lock_release_as(many->read[i], ONE), HF_OK);
        assert_int_equal(hf_lock_release_as(many->write[i], ONE), HF_OK);
        assert_int_equal(hf_permits_release(many->permits[i], &many->ids[i]), HF_OK);
        hf_lock_free(many->plain[i]);
        hf_lock_free(many->read[i]);
        hf_lock_free(many->write[i]);
        hf_permits_free(many->permits[i]);
    }
}

/* Elsewhere they are renewed together. Here that is refused when it is tried first; then each name
 * is renewed on its own, and nothing is ever lost. */
CASE_IN(many_names_are_renewed, struct pair, pair, pair_begin, pair_close, NULL) {
    struct many many;
    take_names(pair->one, &many);
    cluster_wait_renewed(pair->one, HOLDS);
    long long refused = cluster_refusals();
    assert_true(refused > 0);
    cluster_wait_renewed(pair->one, 2 * HOLDS); /* three times in all: longer than a lease */
    assert_int_equal(cluster_refusals(), refused);
    give_names_back(&many);
    hf_stats stats = world_stats(pair->one);
    assert_int_equal(stats.losses, 0);
    assert_int_equal(stats.renew_failures, 0);
}

RUN_CASES(cluster_start, cluster_stop)
