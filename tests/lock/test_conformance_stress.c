/*
 * Everything at once, for the thread sanitizer: threads that lock, try, wait, cancel, nest, break
 * and start asynchronous operations on a few names, with a number guarded by each lock.
 *
 * The numbers are ordinary integers: two owners inside at a time lose an increment, and a sanitizer
 * sees the race. Choices come from a seed, which is printed; HF_SEED repeats one. The answers that an
 * owner got are compared with the server: a hold that was lost is not there.
 */
#include "support/crowd.h"
#include "support/random.h"
#include "support/world.h"

enum { THREADS = 16, NAMES = 5 };

/* One place for each code, from 0 for success. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a part of a sum */
#define COUNT_CODE(name, number, text) +1
enum { CODES = 1 HF_ERRORS(COUNT_CODE) };

struct arena {
    struct world w;
    hf_lock *locks[NAMES];
    int64_t guarded[NAMES]; /* each by its lock */
    _Atomic int64_t entered[NAMES];
    int64_t end_ms;
    atomic_int pending; /* asynchronous chains under way */
    atomic_int errors[CODES];
};

struct fighter {
    struct arena *arena;
    unsigned seed;
};

static void note(struct arena *arena, int err) {
    atomic_fetch_add(&arena->errors[-err], 1);
}

/* Inside: what the lock guards. */
static void touch(struct arena *arena, int name) {
    int64_t seen = arena->guarded[name];
    if (seen % 8 == 0)
        sched_yield();
    arena->guarded[name] = seen + 1;
    atomic_fetch_add(&arena->entered[name], 1);
}

static void leave(struct arena *arena, hf_lock *lock, hf_owner owner) {
    int err = hf_lock_release_as(lock, owner);
    if (err != HF_OK)
        note(arena, err);
}

/* ---- Asynchronous chains ---- */

struct attempt {
    struct arena *arena;
    int name;
};

static void attempt_released(hf_op *op, const hf_result *result, void *user) {
    struct attempt *attempt = user;
    (void)op;
    note(attempt->arena, result->code);
    atomic_fetch_sub(&attempt->arena->pending, 1);
    free(attempt);
}

static void attempt_acquired(hf_op *op, const hf_result *result, void *user) {
    struct attempt *attempt = user;
    struct arena *arena = attempt->arena;
    if (op != NULL)
        hf_op_free(op);
    note(arena, result->code);
    if (result->code == HF_OK) {
        touch(arena, attempt->name);
        int err = hf_lock_release_start(arena->locks[attempt->name], result->owner,
                                        attempt_released, attempt, NULL);
        if (err == HF_OK)
            return;
        note(arena, err);
    }
    atomic_fetch_sub(&arena->pending, 1);
    free(attempt);
}

static void fight_async(struct arena *arena, int name, int64_t wait_ms, bool cancel) {
    struct attempt *attempt = malloc(sizeof *attempt);
    hf_acquire_options options = world_wait_for(wait_ms, HF_WATCHDOG);
    hf_op *op = NULL;
    if (attempt == NULL)
        abort();
    *attempt = (struct attempt){arena, name};
    atomic_fetch_add(&arena->pending, 1);
    if (!cancel) {
        if (hf_lock_acquire_start(arena->locks[name], &options, attempt_acquired, attempt, NULL) !=
            HF_OK)
            abort();
        return;
    }
    /* The callback may run before this returns, and frees the op: so wait for one of our own. */
    if (hf_lock_acquire_start(arena->locks[name], &options, NULL, NULL, &op) != HF_OK)
        abort();
    hf_result result = HF_RESULT_INIT;
    if (hf_op_wait(op, wait_ms / 2, &result) == HF_EPENDING && result.code == HF_OK)
        hf_op_cancel(op);
    int err = hf_op_wait(op, HF_FOREVER, &result);
    note(arena, err);
    if (err == HF_OK) {
        touch(arena, name);
        leave(arena, arena->locks[name], result.owner);
    }
    hf_op_free(op);
    free(attempt);
    atomic_fetch_sub(&arena->pending, 1);
}

/* ---- Threads ---- */

static void fight_nested(struct arena *arena, int name) {
    hf_lock *lock = arena->locks[name];
    int err = hf_lock_acquire_for(lock, 50);
    note(arena, err);
    if (err != HF_OK)
        return;
    err = hf_lock_try(lock);
    if (err == HF_OK) {
        touch(arena, name);
        leave(arena, lock, 0);
    } else {
        note(arena, err);
    }
    touch(arena, name);
    leave(arena, lock, 0);
}

static void *fire_soon(void *arg) {
    sched_yield();
    hf_cancel_fire(arg);
    return NULL;
}

static void fight_with_a_switch(struct arena *arena, int name) {
    own_cancel *cancel;
    pthread_t thread;
    hf_acquire_options options = world_wait_for(200, HF_WATCHDOG);
    if (hf_cancel_new(&cancel) != HF_OK || pthread_create(&thread, NULL, fire_soon, cancel) != 0)
        abort();
    options.cancel = cancel;
    int err = hf_lock_acquire_with(arena->locks[name], &options, NULL);
    note(arena, err);
    if (err == HF_OK) {
        touch(arena, name);
        leave(arena, arena->locks[name], 0);
    }
    pthread_join(thread, NULL);
}

static void fight_once(struct fighter *me) {
    struct arena *arena = me->arena;
    int name = rand_r(&me->seed) % NAMES;
    int64_t wait_ms = rand_r(&me->seed) % 20;
    int err;
    switch (rand_r(&me->seed) % 6) {
    case 0:
        err = hf_lock_acquire_for(arena->locks[name], wait_ms);
        note(arena, err);
        if (err == HF_OK) {
            touch(arena, name);
            leave(arena, arena->locks[name], 0);
        }
        break;
    case 1:
        err = hf_lock_acquire(arena->locks[name]);
        note(arena, err);
        if (err == HF_OK) {
            touch(arena, name);
            leave(arena, arena->locks[name], 0);
        }
        break;
    case 2:
        fight_nested(arena, name);
        break;
    case 3:
        fight_with_a_switch(arena, name);
        break;
    default:
        if (atomic_load(&arena->pending) < 64)
            fight_async(arena, name, wait_ms, rand_r(&me->seed) % 2 == 0);
    }
}

static void *fight(void *arg) {
    struct fighter *me = arg;
    while (now_ms() < me->arena->end_ms)
        fight_once(me);
    return NULL;
}

static bool nothing_pending(void *arena) {
    return atomic_load(&((struct arena *)arena)->pending) == 0;
}

static bool nothing_left(void *server) {
    return world_keys(server) == 0;
}

CASE(sixteen_threads_on_five_names) {
    static struct arena arena;
    struct fighter fighters[THREADS];
    struct crowd crowd = {0};
    unsigned seed = (unsigned)random_seed();
    memset(&arena, 0, sizeof arena);
    hf_options options = world_options();
    options.cmd_timeout_ms = 10000; /* the machine may be slow; nothing here is about that */
    options.watchdog_ms = 20000;
    world_begin(&arena.w, &options);
    for (int i = 0; i < NAMES; i++) {
        own_text *name = text_of("arena-%d", i);
        assert_int_equal(hf_lock_new(arena.w.client, name, &arena.locks[i]), HF_OK);
    }
    arena.end_ms = now_ms() + (getenv("HF_SOAK") != NULL ? 60000 : 3000);
    for (int i = 0; i < THREADS; i++) {
        fighters[i] = (struct fighter){.arena = &arena, .seed = seed + (unsigned)i};
        crowd_add(&crowd, fight, &fighters[i]);
    }
    crowd_join(&crowd);
    assert_true(wait_until(nothing_pending, &arena, HANG_MS));
    assert_true(wait_until(nothing_left, arena.w.server, HANG_MS));

    int64_t total = 0;
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(hf_lock_acquire(arena.locks[i]), HF_OK); /* to look inside */
        assert_int_equal(arena.guarded[i], atomic_load(&arena.entered[i]));
        assert_int_equal(hf_lock_release(arena.locks[i]), HF_OK);
        total += arena.guarded[i];
        hf_lock_free(arena.locks[i]);
    }
    assert_true(total > 0);
    for (int i = 1; i < CODES; i++)
        if (atomic_load(&arena.errors[i]) > 0)
            print_message("%s: %d\n", hf_error_name(-i), atomic_load(&arena.errors[i]));
    for (int i = 1; i < CODES; i++)
        if (-i != HF_EBUSY && -i != HF_ETIMEDOUT && -i != HF_ECANCELED)
            assert_int_equal(atomic_load(&arena.errors[i]), 0);
    hf_stats stats = world_stats(arena.w.client);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(stats.losses, 0);
    assert_int_equal(stats.acquired, stats.released);
    assert_true(world_wait_no_channels(arena.w.server, HANG_MS));
    world_end(&arena.w);
}

/* ---- Broken under their hands ---- */

struct victim {
    struct world *w;
    int64_t end_ms;
    int held, lost, wrong;
    char wrong_text[160];
};

static void *be_broken(void *arg) {
    struct victim *me = arg;
    char owner[64];
    world_owner_text(me->w->client, hf_owner_self(), owner);
    while (now_ms() < me->end_ms) {
        int err = hf_lock_try(me->w->lock);
        if (err == HF_EBUSY)
            continue;
        me->held += err == HF_OK;
        if (err == HF_OK)
            err = hf_lock_release(me->w->lock);
        if (err == HF_OK)
            continue;
        me->lost += err == HF_ELOST;
        long long count = world_count(me->w, owner);
        if (err != HF_ELOST || count != 0) {
            me->wrong++;
            snprintf(me->wrong_text, sizeof me->wrong_text, "%s, and the server has %lld",
                     hf_error_name(err), count);
        }
    }
    return NULL;
}

/* A client that is notified of a loss has lost: a break must not be blamed on a hold that came
 * after it. On ZooKeeper an attempt that is in vain leaves a node for a moment, and a break may
 * find that one: nobody has lost then. */
WORLD_CASE(a_break_ends_only_the_hold_it_broke) {
    struct victim victims[4];
    struct crowd crowd = {0};
    bool broken;
    int breaks = 0;
    int64_t end_ms = now_ms() + (getenv("HF_SOAK") != NULL ? 30000 : 2000);
    for (int i = 0; i < 4; i++) {
        victims[i] = (struct victim){.w = w, .end_ms = end_ms};
        crowd_add(&crowd, be_broken, &victims[i]);
    }
    while (now_ms() < end_ms) {
        int err = hf_lock_break(w->lock, &broken);
        assert_true(err == HF_OK || err == HF_EBUSY);
        breaks += err == HF_OK && broken;
    }
    int held = 0, lost = 0;
    crowd_join(&crowd);
    for (int i = 0; i < 4; i++) {
        if (victims[i].wrong > 0)
            print_message("%s\n", victims[i].wrong_text);
        assert_int_equal(victims[i].wrong, 0);
        held += victims[i].held;
        lost += victims[i].lost;
    }
    print_message("%d holds, %d breaks, %d losses\n", held, breaks, lost);
    assert_true(breaks > 0);
    /* What was answered on a connection that was lost, nobody has counted. */
    if (world_stats(w->client).reconnects == 0)
        assert_true(lost == breaks || (lost < breaks && server_is_other(w->server)));
    assert_int_equal(world_stats(w->client).holds, 0);
}

RUN_CASES(world_start_server, world_stop_server)
