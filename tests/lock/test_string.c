/*
 * The string lock, in the library: what it shares with the plain one, its tokens, lost replies and
 * late copies. Rows are played for each of its forms. The commands themselves are in
 * tests/scripts/test_string_scripts.c.
 */
#include "support/world.h"

#define ACQUIRE "\r\nNX\r\n" /* as the proxy sees it */
#define RENEW hfi_script_string_renew.sha1
#define CHANNEL "holdfast_string:{" WORLD_NAME "}"

struct form {
    const char *name;
    any_kind kind;
    bool reentrant, listens;
};

static const struct form forms[] = {
    {"plain", HF_STRING, true, true},
    {"nonreentrant", HF_STRING | HF_NONREENTRANT, false, true},
    {"spin", HF_STRING | HF_SPIN, true, false},
};

static hf_lock *string_lock(hf_client *client, any_kind kind) {
    return made(new_lock, client, kind, WORLD_NAME, strlen(WORLD_NAME));
}

static void string_begin_on(struct world *w, struct server *server, any_kind kind,
                            const hf_options *options) {
    world_begin_on(w, server, options);
    hf_lock_free(w->lock);
    hf_lock_free(w->rival_lock);
    w->lock = string_lock(w->client, kind);
    w->rival_lock = string_lock(w->rival, kind);
    world_warm_up(w->lock);
    server_empty(server);
}

static void string_begin(struct world *w, any_kind kind, const hf_options *options) {
    string_begin_on(w, world_server(), kind, options);
}
#define STRING_CASE(name) CASE_IN(name, struct world, w, string_begin, world_end, HF_STRING, NULL)

static hf_options impatient(void) {
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.connect_timeout_ms = 5000;
    return options;
}

static bool has_command(struct server *server, const char *name) {
    own_reply *reply = cmd(server, "COMMAND INFO %s", name);
    bool has = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
               reply->element[0]->type == REDIS_REPLY_ARRAY && reply->element[0]->elements > 0;
    return has;
}

/* The release as the proxy sees it: a command where the server has one. */
static const char *release_by(struct world *w) {
    return has_command(w->server, "DELIFEQ") ? "\r\nDELIFEQ\r\n"
           : has_command(w->server, "DELEX") ? "\r\nDELEX\r\n"
                                             : hfi_script_string_release.sha1;
}

/* The value at the server; "" for none. */
static const char *value(struct world *w) {
    static char text[128];
    own_reply *reply = cmd(w->server, "GET " WORLD_NAME);
    snprintf(text, sizeof text, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
    return text;
}

static int64_t ask_count(hf_lock *lock) {
    int64_t count = -1;
    assert_int_equal(hf_lock_hold_count(lock, &count), HF_OK);
    return count;
}

/* ---- Holding ---- */

ROW_CASES(S01_held_counted_released, form, forms) {
    OWN(world_end) struct world w;
    string_begin(&w, form->kind, NULL);
    bool locked = true, mine = true;
    const int64_t deepest = form->reentrant ? 3 : 1;
    for (int64_t held = 1; held <= deepest; held++) {
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(ask_count(w.lock), held);
    }
    if (!form->reentrant)
        assert_int_equal(hf_lock_try(w.lock), HF_EDEADLK);
    assert_int_equal(ask_count(w.rival_lock), 0);
    assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_is_mine(w.rival_lock, &mine), HF_OK);
    assert_false(mine);
    assert_int_equal(hf_lock_is_locked(w.rival_lock, &locked), HF_OK);
    assert_true(locked);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_ENOTOWNER);
    for (int64_t held = deepest; held > 0; held--) {
        assert_int_equal(ask_count(w.lock), held);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
    }
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_true(world_free(&w));
    assert_int_equal(world_keys(w.server), 0);
}

/* The owner and 16 digits, never the same twice; by it the hold can be adopted. */
STRING_CASE(S02_a_token_for_each_hold) {
    char first[HF_HANDLE_MAX], second[HF_HANDLE_MAX], owner[64];
    world_owner_text(w->client, hf_owner_self(), owner);
    assert_int_equal(hf_lock_handle(w->lock, 0, first, sizeof first), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_handle(w->lock, 0, first, sizeof first), HF_OK);
    assert_string_equal(first, value(w));
    assert_memory_equal(first, owner, strlen(owner));
    assert_int_equal(strlen(first), strlen(owner) + 17);
    assert_int_equal(hf_lock_extend(w->lock, 90000), HF_OK);
    assert_in_range(pttl(w->server, WORLD_NAME), 60001, 90000);
    assert_int_equal(hf_lock_extend(w->lock, 1000), HF_OK); /* never shorter */
    assert_in_range(pttl(w->server, WORLD_NAME), 60001, 90000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_handle(w->lock, 0, second, sizeof second), HF_OK);
    assert_string_not_equal(first, second);
    assert_int_equal(hf_lock_handle(w->lock, 0, second, 10), HF_EINVAL);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

STRING_CASE(S03_a_token_of_the_callers_choice) {
    hf_acquire_options options = world_wait_for(0, 30000);
    char handle[HF_HANDLE_MAX];
    options.string_token = "web-7";
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_string_equal(value(w), "web-7");
    assert_int_equal(hf_lock_handle(w->lock, 0, handle, sizeof handle), HF_OK);
    assert_string_equal(handle, "web-7");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(ask_count(w->lock), 2);
    assert_int_equal(hf_lock_extend(w->lock, 40000), HF_OK);
    assert_in_range(pttl(w->server, WORLD_NAME), 30001, 60000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
    options.string_token = "";
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_EINVAL);
    own_lock *plain = made(new_lock, w->client, HF_PLAIN, "p", 1);
    options.string_token = "x";
    assert_int_equal(hf_lock_acquire_with(plain, &options, NULL), HF_EINVAL);
}

/* What another library left: seen, adopted, freed; or broken. */
STRING_CASE(S04_a_foreign_token) {
    hf_lock_info *info;
    hf_result result = HF_RESULT_INIT;
    bool broken = false;
    cmd_ok(w->server, "SET " WORLD_NAME " 5f3a PX 30000");
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_STRING);
    assert_int_equal(info->holders_len, 1);
    assert_string_equal(info->holders[0]->owner, "5f3a");
    assert_in_range(info->ttl_ms, 1, 30000);
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_adopt(w->lock, "other", 30000, NULL), HF_ENOTOWNER);
    assert_int_equal(hf_lock_adopt(w->lock, "5f3a", 40000, &result), HF_OK);
    assert_in_range(pttl(w->server, WORLD_NAME), 30001, 40000);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_true(world_free(w));
    cmd_ok(w->server, "SET " WORLD_NAME " 5f3a");
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_false(broken);
}

STRING_CASE(S05_our_token_by_another_client) {
    char handle[HF_HANDLE_MAX];
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_handle(w->lock, 0, handle, sizeof handle), HF_OK);
    assert_int_equal(hf_lock_adopt(w->lock, handle, 90000, NULL), HF_OK); /* its own: longer */
    assert_int_equal(ask_count(w->lock), 1);
    assert_int_equal(hf_lock_adopt(w->rival_lock, handle, HF_WATCHDOG, &result), HF_OK);
    assert_string_equal(handle, value(w));
    assert_int_equal(hf_lock_release_as(w->rival_lock, result.owner), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_adopt(w->lock, handle, 90000, NULL), HF_ENOTOWNER);
}

ROW_CASES(S06_break_wakes_waiters_and_tells_the_holder, form, forms) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    bool broken = false;
    string_begin(&w, form->kind, NULL);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w.proxy, ACQUIRE, 2, HANG_MS));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_break(w.rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms < 9000);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
}

/* ---- Waiting ---- */

ROW_CASES(S07_waits_by_who_holds_it, form, forms) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    string_begin(&w, form->kind, NULL);
    for (int foreign = 0; foreign < 2; foreign++) {
        if (foreign)
            cmd_ok(w.server, "SET " WORLD_NAME " 5f3a PX 60000");
        else
            assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
        size_t seen = proxy_seen(w.proxy, ACQUIRE);
        world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_true(proxy_wait_seen(w.proxy, ACQUIRE, seen + 2, HANG_MS));
        int64_t start_ms = now_ms();
        if (foreign)
            cmd_ok(w.server, "DEL " WORLD_NAME);
        else
            assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_true(now_ms() - start_ms < 9000);
        assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
    }
}

ROW_CASES(S08_waiter_enters_when_the_lease_ends, form, forms) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    string_begin(&w, form->kind, NULL);
    hf_acquire_options brief = world_wait_for(0, 400);
    int64_t start_ms = now_ms();
    world_acquire_brief(w.lock, &brief);
    world_call_acquire(&waiter, w.rival_lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms >= 400);
    assert_true(now_ms() - start_ms < 9000); /* by the lease: the next poll would be after 10 s */
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w.rival_lock, waiter.owner), HF_OK);
}

ROW_CASES(S09_cancelled_wait_leaves_nothing, form, forms) {
    OWN(world_end) struct world w;
    own_cancel *cancel;
    struct world_caller waiter;
    string_begin(&w, form->kind, NULL);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    size_t seen = proxy_seen(w.proxy, ACQUIRE);
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = cancel;
    world_call_acquire(&waiter, w.lock, options);
    assert_true(proxy_wait_seen(w.proxy, ACQUIRE, seen + 2, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&waiter), HF_ECANCELED);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_true(world_free(&w));
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* ---- Time and loss ---- */

static bool renewed_four_times(void *client) {
    return world_stats(client).renewals >= 4;
}

ROW_CASES(S10_watchdog_and_a_closed_client, form, forms) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    string_begin(&w, form->kind, &options);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_true(wait_until(renewed_four_times, w.client, HANG_MS));
    assert_true(now_ms() - start_ms >= ENDURING_MS);
    assert_int_equal(ask_count(w.lock), 1);
    assert_int_equal(hf_close(w.client), HF_OK);
    assert_true(world_wait_free(&w, HANG_MS));
    w.client = NULL;
}

static const char *const ends[] = {"DEL " WORLD_NAME, "SET " WORLD_NAME " other",
                                   "HSET " WORLD_NAME " f 1"};

/* Deleted, overwritten, or something else: reported by the next renewal, once. */
STRING_CASE(S11_loss_is_reported) {
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct world_events events = {0};
        struct world other;
        hf_options options = world_options();
        options.watchdog_ms = ENDURING_MS;
        string_begin(&other, HF_STRING, &options);
        assert_int_equal(hf_lock_on_lost(other.lock, world_on_event, &events), HF_OK);
        assert_int_equal(hf_lock_acquire(other.lock), HF_OK);
        cmd_ok(w->server, "DEL " WORLD_NAME);
        if (i > 0)
            cmd_ok(w->server, ends[i]);
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_int_equal(hf_lock_release(other.lock), HF_ELOST);
        assert_int_equal(hf_lock_release(other.lock), HF_ENOTOWNER);
        cmd_ok(w->server, "DEL " WORLD_NAME);
        world_end(&other);
    }
}

/* What the calls themselves find. */
STRING_CASE(S12_gone_when_used) {
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        for (int verb = 0; verb < 4; verb++) {
            assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
            if (verb == 3)
                assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
            cmd_ok(w->server, "DEL " WORLD_NAME);
            if (i > 0)
                cmd_ok(w->server, ends[i]);
            int err = verb == 0   ? hf_lock_release(w->lock)
                      : verb == 1 ? hf_lock_extend(w->lock, 90000)
                      : verb == 2 ? hf_lock_try(w->lock)
                                  : hf_lock_release(w->lock);
            assert_int_equal(err, HF_ELOST);
            assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
            if (i == 1)
                assert_string_equal(value(w), "other");
            cmd_ok(w->server, "DEL " WORLD_NAME);
        }
    }
}

STRING_CASE(S13_another_type_is_there) {
    bool broken;
    cmd_ok(w->server, "HSET " WORLD_NAME " f 1");
    assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_acquire_for(w->lock, 1000), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_EWRONGTYPE);
    cmd_ok(w->server, "DEL " WORLD_NAME);
    own_lock *plain = made(new_lock, w->rival, HF_PLAIN, WORLD_NAME, strlen(WORLD_NAME));
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(plain), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

STRING_CASE(S14_refused_combinations) {
    hf_lock *lock;
    assert_int_equal(new_lock(w->client, HF_STRING | HF_FENCED, "f", 1, &lock), HF_ENOTSUP);
}

/* Together with other locks, all or none. */
STRING_CASE(S15_one_of_several) {
    hf_lock *members[2];
    own_lock *other = made(new_lock, w->client, HF_STRING, "second", 6);
    members[0] = w->lock;
    members[1] = other;
    own_lock *all = made(hf_lock_new_multi, members, 2);
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    assert_int_equal(world_keys(w->server), 2);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(all), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(all), HF_EBUSY);
    assert_int_equal(world_keys(w->server), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    cmd_ok(w->server, "DEL second");
    assert_int_equal(hf_lock_release(all), HF_ELOST);
    assert_true(world_wait_free(w, HANG_MS));
}

struct cohort_thread {
    pthread_t thread;
    hf_lock *lock;
    int64_t *counter; /* nothing but the lock guards it */
    int err;
};

static void *count_up(void *arg) {
    struct cohort_thread *t = arg;
    for (int i = 0; i < 20 && t->err == HF_OK; i++) {
        t->err = hf_lock_acquire(t->lock);
        if (t->err != HF_OK)
            break;
        int64_t seen = __atomic_load_n(t->counter, __ATOMIC_RELAXED);
        __atomic_store_n(t->counter, seen + 1, __ATOMIC_RELAXED);
        t->err = hf_lock_release(t->lock);
    }
    return NULL;
}

/* Threads pass it on, and clients exclude each other: as a cohort, and each for itself. */
STRING_CASE(S16_threads_and_clients) {
    enum { THREADS = 8 };
    static const any_kind kinds[] = {HF_STRING, HF_STRING | HF_COHORT};
    for (size_t k = 0; k < 2; k++) {
        int64_t counter = 0;
        struct cohort_thread threads[THREADS];
        hf_lock *locks[] = {string_lock(w->client, kinds[k]), string_lock(w->rival, kinds[k])};
        for (int i = 0; i < THREADS; i++) {
            threads[i] = (struct cohort_thread){.lock = locks[i % 2], .counter = &counter};
            assert_int_equal(pthread_create(&threads[i].thread, NULL, count_up, &threads[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
            assert_int_equal(threads[i].err, HF_OK);
        }
        assert_int_equal(counter, THREADS * 20);
        assert_true(world_wait_free(w, HANG_MS));
        hf_lock_free(locks[0]);
        hf_lock_free(locks[1]);
    }
}

/* Started operations: a fresh owner each, and what it was given releases it. */
STRING_CASE(S17_started_operations) {
    own_op *first, *second;
    hf_result result = HF_RESULT_INIT, next = HF_RESULT_INIT;
    hf_acquire_options options = world_wait_for(HANG_MS, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &first), HF_OK);
    assert_int_equal(hf_op_wait(first, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &second), HF_OK);
    assert_int_equal(hf_op_wait(second, 300, NULL), HF_EPENDING);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_int_equal(hf_op_wait(second, HANG_MS, &next), HF_OK);
    assert_true(next.owner != result.owner);
    assert_int_equal(hf_lock_release_as(w->lock, next.owner), HF_OK);
    assert_true(world_free(w));
}

/* ---- Lost replies, late copies ---- */

ROW_CASES(S20_replies_lost, form, forms) {
    OWN(world_end) struct world w;
    string_begin(&w, form->kind, NULL);
    for (int round = 0; round < 3; round++) {
        proxy_drop_replies_after(w.proxy, ACQUIRE);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(ask_count(w.lock), 1);
        proxy_drop_replies_after(w.proxy, release_by(&w));
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        assert_true(world_free(&w));
    }
    assert_int_equal(proxy_fired(w.proxy), 6);
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
}

ROW_CASES(S21_acquire_never_answered_is_undone, form, forms) {
    OWN(world_end) struct world w;
    hf_options options = impatient();
    string_begin(&w, form->kind, &options);
    proxy_mute_replies_after(w.proxy, ACQUIRE);
    assert_int_equal(hf_lock_try(w.lock), HF_EUNREACH);
    assert_int_equal(proxy_fired(w.proxy), 1); /* so it had run */
    assert_true(world_wait_free(&w, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* A resend ends when the first copy would have, and is trusted no longer. */
CASE(S22_the_lease_counts_from_the_first_copy) {
    OWN(world_end) struct world w;
    hf_options brief = impatient();
    hf_acquire_options options = world_wait_for(HANG_MS, 20000);
    hf_result result = HF_RESULT_INIT;
    string_begin(&w, HF_STRING, &brief);
    proxy_mute_replies_after(w.proxy, ACQUIRE);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(w.lock, &options, &result), HF_OK);
    int64_t took_ms = now_ms() - start_ms;
    assert_int_equal(proxy_fired(w.proxy), 1);
    assert_true(took_ms >= WORLD_BRIEF_MS);
    assert_true(result.remaining_ms <= 20000 - took_ms + 1);
    assert_true(pttl(w.server, WORLD_NAME) >=
                result.remaining_ms - (now_ms() - start_ms - took_ms));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* Whether this user may end connections; else the lease of a late copy has to end. */
struct right {
    const char *name;
    bool kills;
};

static const struct right rights[] = {{"may_kill", true}, {"may_not_kill", false}};

#define KILL "\r\nKILL\r\n"

static void set_right(struct server *server, const struct right *right) {
    cmd_ok(server, right->kills ? "ACL SETUSER default +@all"
                                : "ACL SETUSER default -client +client|setname +client|info "
                                  "+client|id +client|tracking +client|caching +client|list");
}

static void string_end_with_all_rights(struct world *w) {
    set_right(w->server, &rights[0]);
    world_end(w);
}

/* What is held back comes to nothing, or arrives. */
static void release_held(struct world *w, const struct right *right) {
    int delivered = proxy_release_held(w->proxy);
    if (right->kills)
        assert_true(delivered <= 0);
    else
        assert_true(delivered > 0);
}

/* Past half the lease the first token is given up, and another drawn. */
ROW_CASES(S31_past_half_the_lease_a_new_token, right, rights) {
    OWN(string_end_with_all_rights) struct world w;
    hf_options brief = impatient();
    hf_acquire_options options = world_wait_for(HANG_MS, 3000);
    char handle[HF_HANDLE_MAX];
    string_begin(&w, HF_STRING, &brief);
    set_right(w.server, right);
    size_t releases = proxy_seen(w.proxy, release_by(&w));
    proxy_hold_request(w.proxy, ACQUIRE);
    proxy_refuse(w.proxy, true);
    struct world_caller waiter;
    world_call_acquire(&waiter, w.lock, options);
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    sleep_ms(1600); /* more than half of the lease, which passes by time alone */
    proxy_refuse(w.proxy, false);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_handle(w.lock, waiter.owner, handle, sizeof handle), HF_OK);
    assert_string_equal(handle, value(&w));
    assert_true(hf_lock_remaining_ms_as(w.lock, waiter.owner) > 1500);
    assert_true(proxy_wait_seen(w.proxy, release_by(&w), releases + 1, HANG_MS)); /* behind it */
    assert_true(proxy_seen(w.proxy, KILL) >= 1); /* a busy machine may lose another copy */
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
    release_held(&w, right);
    assert_true(world_wait_free(&w, HANG_MS));
}

/* ---- An owner's own tokens ---- */

#define BEFORE_ITS_RELEASE_MS 300 /* so long a token that was given up is still there */

/* The first copy had taken it, and its reply was lost until half the lease had passed. */
STRING_CASE(S108_a_try_is_not_refused_by_its_own_first_copy) {
    struct world_caller caller;
    proxy_mute_replies_after(w->proxy, ACQUIRE);
    proxy_delay(w->proxy, KILL, BEFORE_ITS_RELEASE_MS);
    world_call_acquire(&caller, w->lock, world_wait_for(0, 2400));
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    sleep_ms(1300); /* more than half of the lease, which passes by time alone */
    proxy_cut_all(w->proxy);
    assert_int_equal(world_join(&caller), HF_OK);
    proxy_delay(w->proxy, "", 0);
    assert_int_equal(hf_lock_release_as(w->lock, caller.owner), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* Its command is under way to the server, with an answer that comes later. */
static void start_and_cancel(struct world *w, hf_owner owner) {
    hf_acquire_options options = world_wait_as(owner, HANG_MS, HF_WATCHDOG);
    own_op *op;
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &op), HF_OK);
    /* The reply is delayed, so nothing shows that the command was sent. */
    sleep_ms(BEFORE_ITS_RELEASE_MS / 10);
    hf_op_cancel(op);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_ECANCELED);
}

/* The release of the second token waits for the answer to that of the first. */
STRING_CASE(S108_a_try_is_not_refused_by_cancelled_acquires) {
    hf_owner owner = hf_owner_new();
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(world_acquire_async(w->lock, owner, HANG_MS, &result), HF_OK);
    assert_int_equal(world_release_async(w->lock, owner, &result), HF_OK);
    proxy_delay(w->proxy, ACQUIRE, BEFORE_ITS_RELEASE_MS);
    start_and_cancel(w, owner);
    start_and_cancel(w, owner);
    assert_int_equal(world_acquire_async(w->lock, owner, 0, &result), HF_OK);
    proxy_delay(w->proxy, "", 0);
    assert_int_equal(hf_lock_release_as(w->lock, owner), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* A copy that was stuck on a dead connection acts after the release: it takes the lock for nobody,
 * and is deleted when it could not come any more, even if a renewal that was stuck as well has made
 * it last. If the server has ended that connection in front of the resend, the copy does not act. */
ROW_CASES(S23_a_late_copy_is_deleted, right, rights) {
    OWN(string_end_with_all_rights) struct world w;
    hf_acquire_options options = world_wait_for(0, 2000);
    char handle[HF_HANDLE_MAX];
    string_begin(&w, HF_STRING, NULL);
    set_right(w.server, right);
    proxy_hold_request(w.proxy, ACQUIRE);
    assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_handle(w.lock, 0, handle, sizeof handle), HF_OK);
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
    release_held(&w, right);
    assert_string_equal(value(&w), right->kills ? "" : handle);
    if (!right->kills) {
        cmd_ok(w.server, "PEXPIRE " WORLD_NAME " 60000");
        assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
    }
    assert_true(world_wait_free(&w, HANG_MS));
}

/* The owner itself need not wait for that. */
CASE(S108_a_try_is_not_refused_by_a_late_copy) {
    OWN(string_end_with_all_rights) struct world w;
    hf_acquire_options options = world_wait_for(0, 60000);
    char handle[HF_HANDLE_MAX];
    string_begin(&w, HF_STRING, NULL);
    set_right(w.server, &rights[1]);
    proxy_hold_request(w.proxy, ACQUIRE);
    assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_handle(w.lock, 0, handle, sizeof handle), HF_OK);
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    release_held(&w, &rights[1]);
    assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_try(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
    cmd_ok(w.server, "SET " WORLD_NAME " %s PX 60000", handle); /* as another late copy would */
    assert_int_equal(hf_lock_try(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
}

/* The same for an acquire that found the lock taken. */
ROW_CASES(S27_a_late_copy_of_a_failed_acquire_is_deleted, right, rights) {
    OWN(string_end_with_all_rights) struct world w;
    hf_acquire_options options = world_wait_for(0, 2000);
    string_begin(&w, HF_STRING, NULL);
    set_right(w.server, right);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    proxy_hold_request(w.proxy, ACQUIRE);
    assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_EBUSY);
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    release_held(&w, right);
    assert_true(world_free(&w) == right->kills);
    if (!right->kills)
        cmd_ok(w.server, "PEXPIRE " WORLD_NAME " 60000");
    assert_true(world_wait_free(&w, HANG_MS));
}

/* In the soak ten times: without the right each copy acts behind the release, and the server is
 * asked only once. */
ROW_CASES(S36_dead_connections_are_ended, right, rights) {
    OWN(string_end_with_all_rights) struct world w;
    hf_acquire_options options = world_wait_for(0, 60000);
    int acted = 0, rounds = getenv("HF_SOAK") != NULL ? 10 : 3;
    string_begin(&w, HF_STRING, NULL);
    set_right(w.server, right);
    for (int round = 0; round < rounds; round++) {
        proxy_hold_request(w.proxy, ACQUIRE);
        assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_OK);
        assert_true(proxy_wait_held(w.proxy, HANG_MS));
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        release_held(&w, right);
        acted += !world_free(&w);
        cmd_ok(w.server, "DEL " WORLD_NAME);
    }
    assert_int_equal(acted, right->kills ? 0 : rounds);
    size_t kills = proxy_seen(w.proxy, KILL);
    assert_true(right->kills ? kills >= (size_t)rounds : kills == 1);
    /* a restarted server begins its ids anew: an id alone could be another client's */
    assert_int_equal(proxy_seen(w.proxy, "\r\nADDR\r\n"), kills);
}

/* The script behind acks, on its connection. */
STRING_CASE(S36_dead_connections_of_acked_acquires_are_ended) {
    hf_acquire_options options = world_wait_for(0, 60000);
    options.acks = HF_ACKS_REPORT;
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    proxy_hold_request(w->proxy, hfi_script_string_acquire.sha1);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_true(proxy_seen(w->proxy, KILL) >= 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    release_held(w, &rights[0]);
    assert_true(world_free(w));
}

/* The bytes of an attempt lie in the socket of a stopped server when its caller gives up. The server
 * ends that connection, and the token is released behind that: nothing is left, and nothing comes
 * later. Over TCP, whose addresses tell clients apart. */
CASE(S33_an_attempt_at_a_stopped_server_leaves_nothing) {
    own_server *server = server_start(&(struct server_options){.tcp = true});
    hf_options options = impatient();
    hf_acquire_options lease = world_wait_for(0, 60000);
    own_proxy *proxy = proxy_start_tcp(server_port(server), PROXY_RESP);
    own_client *client = made(hf_open, proxy_tcp_url(proxy), &options);
    own_lock *lock = string_lock(client, HF_STRING);
    world_warm_up(lock);
    server_freeze(server);
    assert_int_equal(hf_lock_acquire_with(lock, &lease, NULL), HF_EUNREACH);
    server_unfreeze(server);
    assert_true(proxy_wait_seen(proxy, KILL, 1, HANG_MS));
    assert_true(WAIT_FOR(!key_exists(server, WORLD_NAME), HANG_MS));
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(HOLDS_FOR(!key_exists(server, WORLD_NAME), 300));
}

/* Another process may have given the same id to a stranger, and clients of a Unix socket have one
 * address: a connection that a restarted server does not know is not ended. */
STRING_CASE(S34_no_connection_of_a_restarted_server_is_ended) {
    hf_acquire_options options = world_wait_for(HANG_MS, 60000);
    struct world_caller waiter;
    proxy_hold_request(w->proxy, ACQUIRE);
    proxy_refuse(w->proxy, true);
    world_call_acquire(&waiter, w->lock, options);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    server_restart(w->server);
    proxy_refuse(w->proxy, false);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(proxy_seen(w->proxy, KILL), 0);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
}

/* The end of the lease by the server's clock, in ms since 1970. */
static int64_t ends_at(struct server *server) {
    return cmd_int(server, "PEXPIRETIME " WORLD_NAME);
}

/* All copies of an acquire name one end: the copy that runs may be any of them. */
CASE(S35_all_copies_end_at_one_time) {
    struct world w;
    hf_options brief = impatient();
    struct world_caller waiter;
    char end[32];
    string_begin(&w, HF_STRING, &brief);
    if (!has_command(w.server, "PEXPIRETIME")) {
        world_end(&w);
        skip();
    }
    proxy_hold_request(w.proxy, ACQUIRE);
    proxy_refuse(w.proxy, true);
    world_call_acquire(&waiter, w.lock, world_wait_for(HANG_MS, 600000));
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    sleep_ms(20); /* the next copy is written at another time: by the clock alone */
    proxy_refuse(w.proxy, false);
    assert_int_equal(world_join(&waiter), HF_OK);
    snprintf(end, sizeof end, "\r\n%lld\r\n", (long long)ends_at(w.server));
    assert_int_equal(proxy_seen(w.proxy, end), 2);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
    world_end(&w);
}

/* A release that was stuck finds its token gone, and leaves the next hold alone; so does a
 * renewal. */
STRING_CASE(S28_late_releases_and_renewals_do_nothing) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_hold_request(w->proxy, release_by(w));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_int_equal(ask_count(w->lock), 1);
    proxy_hold_request(w->proxy, RENEW);
    assert_int_equal(hf_lock_extend(w->lock, 80000), HF_OK);
    assert_int_equal(hf_lock_extend(w->lock, 600000), HF_OK);
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_in_range(pttl(w->server, WORLD_NAME), 500000, 600000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Without a lost copy there is nothing to come back for. */
STRING_CASE(S24_no_release_without_a_lost_copy) {
    hf_acquire_options options = world_wait_for(0, 300);
    size_t seen = proxy_seen(w->proxy, release_by(w));
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(HOLDS_FOR(proxy_seen(w->proxy, release_by(w)) == seen + 1, 600));
}

/* A hold that ran out here is released, in case the server still has it. */
STRING_CASE(S25_a_hold_that_ran_out_is_released) {
    hf_acquire_options options = world_wait_for(0, 300);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    cmd_ok(w->server, "PERSIST " WORLD_NAME);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

/* A release that was never answered is repeated. */
STRING_CASE(S26_release_never_answered_is_repeated) {
    struct world brief;
    hf_options options = impatient();
    string_begin(&brief, HF_STRING, &options);
    assert_int_equal(hf_lock_acquire(brief.lock), HF_OK);
    proxy_mute_replies_after(brief.proxy, release_by(&brief));
    int err = hf_lock_release(brief.lock);
    assert_true(err == HF_EINDOUBT || err == HF_EUNREACH);
    assert_true(world_wait_free(&brief, HANG_MS));
    assert_int_equal(hf_lock_release(brief.lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(brief.lock), HF_OK);
    assert_int_equal(hf_lock_release(brief.lock), HF_OK);
    world_end(&brief);
    (void)w;
}

/* A token of the caller's choice is not released once more: it may be in use again. */
STRING_CASE(S29_a_chosen_token_is_released_once) {
    hf_acquire_options options = world_wait_for(0, 1000);
    options.string_token = "web-7";
    proxy_drop_replies_after(w->proxy, ACQUIRE);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    options.lease_ms = 60000;
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_true(
        HOLDS_FOR(strcmp(value(w), "web-7") == 0, 1500)); /* past the end of the first lease */
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* With acks the script decides: the first copy that finds its token found a stranger's. */
STRING_CASE(a_chosen_token_in_use_is_taken) {
    hf_acquire_options options = world_wait_for(0, 60000);
    options.string_token = "web-7";
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_EBUSY);
    options.acks = HF_ACKS_REPORT;
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_EBUSY);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* The lease has ended, and the keeper wants a connection to release what may be left. */
CASE(closes_while_a_late_copy_waits_for_a_connection) {
    OWN(world_end) struct world w;
    hf_options options = impatient();
    string_begin(&w, HF_STRING, &options);
    hf_acquire_options fixed = world_wait_for(0, 1000);
    assert_int_equal(hf_lock_acquire_with(w.lock, &fixed, NULL), HF_OK);
    proxy_refuse(w.proxy, true);
    assert_true(proxy_cut_all(w.proxy) > 0);
    assert_true(WAIT_FOR(hf_lock_remaining_ms(w.lock) == 0, HANG_MS));
    sleep_ms(800); /* the release begins 500 ms after the loss, and nothing shows that */
}

/* ---- Without scripts ---- */

static bool renewed_twice(void *client) {
    return world_stats(client).renewals >= 2;
}

static bool sets_if_equal(struct server *server) {
    own_reply *reply = cmd(server, "SET probe a IFEQ b");
    return reply->type != REDIS_REPLY_ERROR;
}

/* A renewal by command sets the lease: a copy that was stuck takes back an extension, of which no
 * more was trusted. */
static void a_late_renewal_shortens_nothing_that_is_trusted(struct server *server) {
    own_proxy *proxy = proxy_start(server_socket(server));
    hf_acquire_options fixed = world_wait_for(0, 40000);
    own_client *client = made(hf_open, proxy_url(proxy), NULL);
    own_lock *lock = made(new_lock, client, HF_STRING, "late", 4);
    assert_int_equal(hf_lock_acquire_with(lock, &fixed, NULL), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 41000),
                     HF_OK); /* now it is known that scripts do not run */
    proxy_hold_request(proxy, "\r\nIFEQ\r\n");
    assert_int_equal(hf_lock_extend(lock, 42000), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 600000), HF_OK);
    assert_in_range(pttl(server, "late"), 500000, 601000);
    assert_true(proxy_release_held(proxy) > 0);
    assert_in_range(pttl(server, "late"), 1, 43000);
    int64_t left_ms = pttl(server, "late");
    assert_true(hf_lock_remaining_ms(lock) <= left_ms);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* On a server that has the commands, every verb works without a script; other kinds name the
 * cause. */
static void no_script_is_needed(struct server *server) {
    hf_options given = HF_OPTIONS_INIT;
    given.watchdog_ms = 3000;
    bool broken = false;
    char handle[HF_HANDLE_MAX];
    hf_result result = HF_RESULT_INIT;
    own_client *client = made(hf_open, server_url(server), &given);
    own_lock *lock = made(new_lock, client, HF_STRING, "s", 1);
    own_lock *plain = made(new_lock, client, HF_PLAIN, "p", 1);
    assert_int_equal(hf_lock_try(plain), HF_ENOTSUP);
    assert_non_null(strstr(hf_last_error()->text, "runs no scripts"));

    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_until(renewed_twice, client, HANG_MS));
    assert_int_equal(hf_lock_extend(lock, 60000), HF_OK);
    assert_in_range(pttl(server, "s"), 50000, 61000);
    assert_int_equal(hf_lock_extend(lock, 1000), HF_OK);
    assert_in_range(pttl(server, "s"), 50000, 61000);
    assert_true(hf_lock_remaining_ms(lock) <= 3000);
    assert_int_equal(hf_lock_handle(lock, 0, handle, sizeof handle), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(pttl(server, "s"), -2);

    /* a fixed lease that was extended is proved in parts, and lasts */
    hf_acquire_options fixed = world_wait_for(0, 1000);
    assert_int_equal(hf_lock_acquire_with(lock, &fixed, NULL), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 8000), HF_OK);
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(lock) > 0, 4500));
    assert_int_equal(hf_lock_release(lock), HF_OK);

    /* without a lease it is permanent, and stays so */
    fixed.lease_ms = HF_NO_LEASE;
    assert_int_equal(hf_lock_acquire_with(lock, &fixed, NULL), HF_OK);
    assert_int_equal(pttl(server, "s"), -1);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 1000), HF_OK);
    assert_int_equal(pttl(server, "s"), -1);
    cmd_ok(server, "PEXPIRE s 60000");
    assert_true(WAIT_FOR(pttl(server, "s") == -1, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(pttl(server, "s"), -2);

    a_late_renewal_shortens_nothing_that_is_trusted(server);

    cmd_ok(server, "SET s 5f3a");
    assert_int_equal(hf_lock_adopt(lock, "5f3a", 5000, &result), HF_OK);
    assert_int_equal(pttl(server, "s"), -1); /* it has no end, as before */
    assert_int_equal(hf_lock_release_as(lock, result.owner), HF_OK);
    cmd_ok(server, "SET s 5f3a");
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    cmd_ok(server, "DEL s");
    assert_int_equal(hf_lock_extend(lock, 60000), HF_ELOST);
}

/* EVAL taken away, or the Lua module of Valkey 9.1 unloaded. */
CASE(S30_no_script_is_needed) {
    static const char *const config[] = {"rename-command EVAL \"\"", "rename-command EVALSHA \"\"",
                                         NULL};
    struct server *server = server_start(&(struct server_options){.config = config});
    struct server *without = server_start(NULL);
    bool native =
        sets_if_equal(server) && (has_command(server, "DELIFEQ") || has_command(server, "DELEX"));
    own_reply *unloaded = cmd(without, "MODULE UNLOAD lua");
    bool is_module = unloaded->type != REDIS_REPLY_ERROR;
    assert_true(is_module || strstr(unloaded->str, "no such module") != NULL);
    if (native)
        no_script_is_needed(server);
    if (native && is_module) {
        own_reply *reply = cmd(without, "EVAL %s 0", "return 1");
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        no_script_is_needed(without);
    }
    server_free(without);
    server_free(server);
    if (!native)
        skip();
}

RUN_CASES(world_start_server, world_stop_server)
