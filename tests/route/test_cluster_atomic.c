/*
 * Slots that a server moves in one step (Valkey 9: CLUSTER MIGRATESLOTS, Redis 8.4: CLUSTER
 * MIGRATION) while something in them is held, renewed, waited for and contended: all of it works
 * on, no hold is lost, and nobody has a lock twice. A move may also stay open, or be cancelled.
 * With real slots, of three primaries without replicas.
 *
 * On a server that moves slots key by key only, each case is skipped; those moves are in test_cluster_moves.c.
 */
#include "route/ring.h"

struct move {
    struct ring *ring;
    unsigned slot;
    struct server *from, *to;
};

static struct move move_of(struct ring *ring, const char *name) {
    struct move move = {.ring = ring, .slot = shards_slot(ring->shards, name)};
    move.from = shards_owner(ring->shards, move.slot);
    move.to = shards_other(ring->shards, move.from);
    return move;
}

static bool move_at_once(const struct move *move) {
    return shards_move_slot_at_once(move->ring->shards, move->slot, move->from, move->to);
}

/* An empty slot tells, too. */
static bool can_move_at_once(struct ring *r) {
    struct move move = move_of(r, "nothing");
    return move_at_once(&move);
}

/* The case begins if the server can; else it is skipped by its name. */
#define ATOMIC_CASE(name)                                                                          \
    static void name##_if_able(struct ring *r);                                                    \
    RING_CASE(name) {                                                                              \
        if (!can_move_at_once(r)) {                                                                \
            ring_end(r);                                                                           \
            skip();                                                                                \
        }                                                                                          \
        name##_if_able(r);                                                                         \
    }                                                                                              \
    static void name##_if_able(struct ring *r)

static void assert_no_losses(struct ring *r) {
    assert_int_equal(scene_stats(r->client).losses, 0);
    assert_int_equal(scene_stats(r->rival).losses, 0);
}

/* ---- Every kind ---- */

static const any_kind kinds[] = {HF_PLAIN,
                                 HF_PLAIN | HF_NONREENTRANT,
                                 HF_PLAIN | HF_SPIN,
                                 HF_PLAIN | HF_FENCED,
                                 HF_PLAIN | HF_COHORT,
                                 HF_FAIR,
                                 HF_READ,
                                 HF_WRITE,
                                 HF_STRING,
                                 HF_STRING | HF_SPIN,
                                 HF_STRING | HF_COHORT};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void moves_while_waited_for(struct ring *r, any_kind kind, const char *name) {
    struct scene_waiter waiter;
    own_lock *lock = scene_lock(r->client, kind, name);
    own_lock *rival = scene_lock(r->rival, kind == HF_READ ? HF_WRITE : kind, name);
    bool listens = (kind & HF_SPIN) == 0;
    struct move move = move_of(r, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(!listens || ring_wait_listened(move.from, name));
    assert_true(move_at_once(&move));
    assert_true(!listens || ring_wait_listened(move.to, name));
    assert_int_equal(hf_lock_extend(lock, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_true(key_exists(move.to, name));
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

ATOMIC_CASE(every_kind_of_lock_while_held_and_waited_for) {
    for (size_t i = 0; i < KINDS; i++) {
        own_text *name = text_of("at-once-%zu", i);
        moves_while_waited_for(r, kinds[i], name);
    }
    assert_no_losses(r);
}

ATOMIC_CASE(a_group_while_held) {
    static const hf_bytes values[] = {{"a", 1}, {"b", 1}}, other[] = {{"b", 1}};
    hf_lock *group, *rival;
    struct move move = move_of(r, "group");
    assert_int_equal(hf_lock_new_group(r->client, "group", 5, values, 2, &group), HF_OK);
    assert_int_equal(hf_lock_new_group(r->rival, "group", 5, other, 1, &rival), HF_OK);
    assert_int_equal(hf_lock_acquire(group), HF_OK);
    assert_true(move_at_once(&move));
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_extend(group, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(group), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    hf_lock_free(group);
    hf_lock_free(rival);
    assert_no_losses(r);
}

/* ---- What is no lock ---- */

struct call {
    pthread_t thread;
    hf_sem *sem;
    hf_permits *permits;
    hf_latch *latch;
    hf_permit_id id;
    int result;
};

static void *wait_for_object(void *arg) {
    struct call *call = arg;
    call->result = call->sem != NULL       ? hf_sem_acquire(call->sem, 1)
                   : call->permits != NULL ? hf_permits_acquire(call->permits, &call->id)
                                           : hf_latch_await(call->latch);
    return NULL;
}

/* Returns when it is subscribed. */
static void begin_call(struct call *call, const struct move *move, const char *name) {
    assert_int_equal(pthread_create(&call->thread, NULL, wait_for_object, call), 0);
    assert_true(ring_wait_listened(move->from, name));
}

static void end_call(struct call *call) {
    assert_int_equal(pthread_join(call->thread, NULL), 0);
    assert_int_equal(call->result, HF_OK);
}

ATOMIC_CASE(a_semaphore_while_waited_for) {
    struct call call = {.sem = NULL};
    struct move move = move_of(r, "sem");
    hf_sem *sem;
    bool set;
    assert_int_equal(hf_sem_new(r->client, "sem", &sem), HF_OK);
    assert_int_equal(hf_sem_new(r->rival, "sem", &call.sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 1, 0, &set), HF_OK);
    assert_int_equal(hf_sem_try(sem, 1), HF_OK);
    begin_call(&call, &move, "sem");
    assert_true(move_at_once(&move));
    assert_true(ring_wait_listened(move.to, "sem"));
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
    end_call(&call);
    assert_int_equal(hf_sem_try(sem, 1), HF_EBUSY);
    hf_sem_free(sem);
    hf_sem_free(call.sem);
}

ATOMIC_CASE(a_permit_while_held_and_waited_for) {
    struct call call = {.sem = NULL};
    struct move move = move_of(r, "permits");
    hf_permits *permits;
    hf_permit_id id;
    bool set;
    assert_int_equal(hf_permits_new(r->client, "permits", &permits), HF_OK);
    assert_int_equal(hf_permits_new(r->rival, "permits", &call.permits), HF_OK);
    assert_int_equal(hf_permits_try_set(permits, 1, &set), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    begin_call(&call, &move, "permits");
    assert_true(move_at_once(&move));
    assert_true(ring_wait_listened(move.to, "permits"));
    assert_int_equal(hf_permits_extend(permits, &id, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    end_call(&call);
    assert_int_equal(hf_permits_try(permits, &id), HF_EBUSY);
    assert_int_equal(hf_permits_release(call.permits, &call.id), HF_OK);
    hf_permits_free(permits);
    hf_permits_free(call.permits);
    assert_no_losses(r);
}

ATOMIC_CASE(a_latch_while_waited_for) {
    struct call call = {.sem = NULL};
    struct move move = move_of(r, "latch");
    hf_latch *latch;
    bool set;
    assert_int_equal(hf_latch_new(r->client, "latch", &latch), HF_OK);
    assert_int_equal(hf_latch_new(r->rival, "latch", &call.latch), HF_OK);
    assert_int_equal(hf_latch_try_set(latch, 1, &set), HF_OK);
    begin_call(&call, &move, "latch");
    assert_true(move_at_once(&move));
    assert_true(ring_wait_listened(move.to, "latch"));
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    end_call(&call);
    hf_latch_free(latch);
    hf_latch_free(call.latch);
}

/* ---- Half way ---- */

/* While the move is open, the old server has the lock, and serves it as ever. */
static void hands_over_inside_a_move(struct ring *r, const struct move *move, any_kind kind,
                                     const char *name) {
    struct scene_waiter waiter;
    own_lock *lock = scene_lock(r->client, kind, name);
    own_lock *rival = scene_lock(r->rival, kind == HF_READ ? HF_WRITE : kind, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    scene_wait_for(&waiter, rival);
    if ((kind & HF_SPIN) == 0)
        assert_true(ring_wait_listened(move->from, name));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

/* Longer than a lease. Unlike a move key by key, this also leaves read holds alone. */
CASE(holds_outlive_a_move_that_stays_open_and_is_cancelled) {
    struct ring r;
    hf_lock *locks[KINDS];
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    ring_begin(&r, &options);
    struct move move = move_of(&r, "{open}");
    for (size_t i = 0; i < KINDS; i++) {
        own_text *name = text_of("{open}-%zu", i);
        locks[i] = scene_lock(r.client, kinds[i], name);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    bool able = shards_hold_move_at_once(r.shards, "{open}", move.from, move.to);
    for (size_t i = 0; able && i < KINDS; i++) {
        own_text *name = text_of("{open}-inside-%zu", i);
        hands_over_inside_a_move(&r, &move, kinds[i], name);
    }
    assert_true(!able ||
                HOLDS_FOR(hf_lock_remaining_ms(locks[0]) > 0, ENDURING_MS + ENDURING_MS / 9));
    if (able)
        shards_cancel_move_at_once(r.shards, move.from, move.to);
    for (size_t i = 0; i < KINDS; i++)
        assert_true(hf_lock_remaining_ms(locks[i]) > 0);
    assert_true(!able || shards_owner(r.shards, move.slot) == move.from);
    assert_true(!able || move_at_once(&move)); /* and then it moves after all */
    for (size_t i = 0; i < KINDS; i++) {
        assert_int_equal(hf_lock_extend(locks[i], 2 * ENDURING_MS), HF_OK);
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
    assert_no_losses(&r);
    ring_end(&r);
    if (!able)
        skip();
}

/* ---- Under load ---- */

#define CONTENDERS 4
#define MOVES 6

struct field {
    any_kind kind;
    atomic_int inside, rounds;
    atomic_int faults; /* an error, a lock that two have, a token that is no larger */
    atomic_bool over;
    int64_t last_token; /* guarded by the lock itself */
};

static bool is_newer_token(struct field *field, hf_lock *lock) {
    int64_t token = 0;
    bool newer = hf_lock_token(lock, &token) == HF_OK && token > field->last_token;
    field->last_token = token;
    return newer;
}

static bool enter(struct field *field, hf_lock *lock) {
    if (hf_lock_acquire(lock) != HF_OK)
        return false;
    bool alone = atomic_fetch_add(&field->inside, 1) == 0;
    bool newer = (field->kind & HF_FENCED) == 0 || is_newer_token(field, lock);
    atomic_fetch_add(&field->rounds, 1);
    atomic_fetch_sub(&field->inside, 1);
    return hf_lock_release(lock) == HF_OK && alone && newer;
}

struct contender {
    pthread_t thread;
    struct field *field;
    hf_lock *lock;
};

static void *contend(void *arg) {
    struct contender *contender = arg;
    while (!atomic_load(&contender->field->over))
        if (!enter(contender->field, contender->lock))
            atomic_fetch_add(&contender->field->faults, 1);
    return NULL;
}

static bool has_gone_on(struct field *field) {
    int before = atomic_load(&field->rounds);
    return WAIT_FOR(atomic_load(&field->rounds) > before + CONTENDERS, HANG_MS);
}

static void moves_back_and_forth(struct ring *r, any_kind kind, const char *name) {
    struct field field = {.kind = kind};
    struct contender contenders[CONTENDERS];
    for (int i = 0; i < CONTENDERS; i++) {
        contenders[i].field = &field;
        contenders[i].lock = scene_lock(i % 2 == 0 ? r->client : r->rival, kind, name);
        assert_int_equal(pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]), 0);
    }
    for (int i = 0; i < MOVES; i++) {
        struct move move = move_of(r, name);
        assert_true(has_gone_on(&field));
        assert_true(move_at_once(&move));
    }
    assert_true(has_gone_on(&field));
    atomic_store(&field.over, true);
    for (int i = 0; i < CONTENDERS; i++) {
        assert_int_equal(pthread_join(contenders[i].thread, NULL), 0);
        hf_lock_free(contenders[i].lock);
    }
    assert_int_equal(field.faults, 0);
}

ATOMIC_CASE(nobody_has_it_twice_while_it_moves) {
    static const any_kind contended[] = {HF_PLAIN, HF_PLAIN | HF_FENCED, HF_FAIR, HF_WRITE};
    for (size_t i = 0; i < sizeof contended / sizeof contended[0]; i++) {
        own_text *name = text_of("contended-%zu", i);
        moves_back_and_forth(r, contended[i], name);
    }
    assert_no_losses(r);
}

RUN_CASES(ring_start, ring_stop)
