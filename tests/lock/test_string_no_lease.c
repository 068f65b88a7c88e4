/*
 * String locks without a lease (HF_NO_LEASE): permanent at the server, from the second step of the
 * acquire on; what ends them, what does not, and what lost replies and late copies of both steps
 * leave. Of tests/scripts/test_string_scripts.c: what the script does.
 */
#include "support/world.h"

#define ACQUIRE "\r\nNX\r\n"                 /* the first step, as the proxy sees it */
#define PERSIST hfi_script_string_renew.sha1 /* the second step, and each look at it */
#define FIRST_LEASE_MS 2000

struct form {
    const char *name;
    any_kind kind;
    bool reentrant;
};

static const struct form forms[] = {
    {"plain", HF_STRING, true},
    {"nonreentrant", HF_STRING | HF_NONREENTRANT, false},
    {"spin", HF_STRING | HF_SPIN, true},
};

static void begin(struct world *w, any_kind kind, const hf_options *options) {
    world_begin(w, options);
    hf_lock_free(w->lock);
    hf_lock_free(w->rival_lock);
    assert_int_equal(new_lock(w->client, kind, WORLD_NAME, strlen(WORLD_NAME), &w->lock), HF_OK);
    assert_int_equal(new_lock(w->rival, kind, WORLD_NAME, strlen(WORLD_NAME), &w->rival_lock),
                     HF_OK);
    world_warm_up(w->lock);
    server_empty(w->server);
}
#define NO_LEASE_CASE(name) CASE_IN(name, struct world, w, begin, world_end, HF_STRING, NULL)

static int acquire(hf_lock *lock, int64_t wait_ms, hf_result *ret) {
    const hf_acquire_options options = world_wait_for(wait_ms, HF_NO_LEASE);
    return hf_lock_acquire_with(lock, &options, ret);
}

/* The value at the server; "" for none. */
static const char *value(struct world *w) {
    static char text[128];
    own_reply *reply = cmd(w->server, "GET " WORLD_NAME);
    snprintf(text, sizeof text, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
    return text;
}

static bool is_permanent(struct world *w) {
    return pttl(w->server, WORLD_NAME) == -1;
}

static hf_options with_watchdog(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    return options;
}

/* ---- Holding ---- */

ROW_CASES(S51_permanent_until_released, form, forms) {
    OWN(world_end) struct world w;
    hf_result result = HF_RESULT_INIT;
    hf_lock_info *info;
    int64_t ttl_ms = 0;
    begin(&w, form->kind, NULL);
    assert_int_equal(acquire(w.lock, 0, &result), HF_OK);
    assert_true(is_permanent(&w));
    assert_int_equal(result.remaining_ms, INT64_MAX);
    assert_int_equal(hf_lock_remaining_ms(w.lock), INT64_MAX);
    assert_int_equal(hf_lock_ttl_ms(w.rival_lock, &ttl_ms), HF_OK);
    assert_int_equal(ttl_ms, -1);
    assert_int_equal(hf_lock_inspect(w.rival_lock, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_STRING);
    assert_int_equal(info->ttl_ms, -1);
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
    assert_int_equal(acquire(w.rival_lock, 0, NULL), HF_EBUSY);
    assert_int_equal(hf_lock_forget(w.lock), HF_OK);
    assert_int_equal(hf_lock_remaining_ms(w.lock), INT64_MAX);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK); /* the next one has a lease again */
    assert_true(pttl(w.server, WORLD_NAME) > 0);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* However it is acquired again, or extended: a lease never shortens a hold without one. */
NO_LEASE_CASE(S51_nested_and_extended) {
    const int64_t leases[] = {HF_WATCHDOG, 1000, HF_NO_LEASE};
    hf_extend_options extend = HF_EXTEND_OPTIONS_INIT;
    int64_t count = 0;
    assert_int_equal(acquire(w->lock, 0, NULL), HF_OK);
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        const hf_acquire_options options = world_wait_for(0, leases[i]);
        assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
        assert_true(is_permanent(w));
        assert_int_equal(hf_lock_remaining_ms(w->lock), INT64_MAX);
    }
    assert_int_equal(hf_lock_hold_count(w->lock, &count), HF_OK);
    assert_int_equal(count, 4);
    assert_int_equal(hf_lock_extend(w->lock, 1000), HF_OK);
    assert_true(is_permanent(w));
    assert_int_equal(hf_lock_extend(w->lock, HF_NO_LEASE), HF_EINVAL);
    extend.lease_ms = 1000;
    for (int mode = HF_EXTEND_SET; mode <= HF_EXTEND_ADD; mode++) {
        extend.mode = (hf_extend_mode)mode;
        assert_int_equal(hf_lock_extend_with(w->lock, &extend, NULL), HF_ENOTSUP);
    }
    for (; count > 0; count--) {
        assert_true(is_permanent(w));
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
    }
    assert_true(world_free(w));
}

NO_LEASE_CASE(S51_with_acks_and_a_chosen_token) {
    hf_acquire_options options = world_wait_for(0, HF_NO_LEASE);
    options.acks = HF_ACKS_REPORT;
    options.string_token = "deploy-7";
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_true(is_permanent(w));
    assert_string_equal(value(w), "deploy-7");
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

static bool looked_twice(void *client) {
    return world_stats(client).renewals >= 2;
}

/* Neither time nor the end of its client ends it: another frees it by its handle. */
CASE(S52_it_outlives_its_client) {
    OWN(world_end) struct world w;
    char handle[HF_HANDLE_MAX];
    hf_result result = HF_RESULT_INIT;
    const hf_options options = with_watchdog(FIRST_LEASE_MS);
    begin(&w, HF_STRING, &options);
    assert_int_equal(acquire(w.lock, HANG_MS, NULL), HF_OK);
    assert_int_equal(hf_lock_handle(w.lock, 0, handle, sizeof handle), HF_OK);
    assert_true(wait_until(looked_twice, w.client, HANG_MS));
    assert_true(is_permanent(&w));
    assert_int_equal(hf_close(w.client), HF_OK);
    w.client = NULL;
    assert_true(is_permanent(&w));
    assert_string_equal(value(&w), handle);
    assert_int_equal(hf_lock_adopt(w.rival_lock, handle, 10000, &result), HF_OK);
    assert_true(is_permanent(&w));
    assert_int_equal(hf_lock_release_as(w.rival_lock, result.owner), HF_OK);
    assert_true(world_free(&w));
}

NO_LEASE_CASE(S52_or_breaks_it) {
    bool broken = false;
    assert_int_equal(acquire(w->lock, 0, NULL), HF_OK);
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

/* A waiter is woken by the release, of one that is ours or theirs. */
NO_LEASE_CASE(S52_a_waiter_enters_behind_the_release) {
    struct world_caller waiter;
    assert_int_equal(acquire(w->rival_lock, 0, NULL), HF_OK);
    size_t seen = proxy_seen(w->proxy, ACQUIRE);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_NO_LEASE));
    assert_true(proxy_wait_seen(w->proxy, ACQUIRE, seen + 2, HANG_MS));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms < 9000); /* the next poll would be after 10 s */
    assert_true(is_permanent(w));
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    assert_true(world_free(w));
}

/* ---- Loss ---- */

static const struct end {
    const char *name, *command;
} ends[] = {{"deleted", "DEL " WORLD_NAME},
            {"overwritten", "SET " WORLD_NAME " other"},
            {"another_type", "HSET " WORLD_NAME " f 1"}};

/* Without tracking the client looks as often as it would renew. */
ROW_CASES(S53_a_loss_is_reported, end, ends) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = with_watchdog(FIRST_LEASE_MS);
    options.flags |= HF_NO_TRACKING;
    begin(&w, HF_STRING, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(acquire(w.lock, HANG_MS, NULL), HF_OK);
    cmd_ok(w.server, "DEL " WORLD_NAME);
    if (end != ends)
        cmd_ok(w.server, end->command);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(events.warnings, 0);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
}

/* A failover may lose the second step and keep the first; or somebody sets an expiry. */
CASE(S53_an_expiry_is_taken_away_again) {
    OWN(world_end) struct world w;
    const hf_options options = with_watchdog(FIRST_LEASE_MS);
    begin(&w, HF_STRING, &options);
    assert_int_equal(acquire(w.lock, HANG_MS, NULL), HF_OK);
    cmd_ok(w.server, "PEXPIRE " WORLD_NAME " 60000");
    assert_true(WAIT_FOR(is_permanent(&w), HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* ---- Where it is refused ---- */

static const struct form others[] = {
    {"plain", HF_PLAIN, true},
    {"spin", HF_SPIN, true},
    {"fenced", HF_FENCED, true},
    {"fair", HF_FAIR, true},
    {"read", HF_READ, true},
    {"write", HF_WRITE, true},
    {"cohort", HF_PLAIN | HF_COHORT, true},
    {"string_cohort", HF_STRING | HF_COHORT, true},
};

static void assert_refused(hf_lock *lock) {
    hf_acquire_options options = world_wait_for(0, HF_NO_LEASE);
    hf_op *op = NULL;
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "HF_NO_LEASE is for string locks"));
    assert_int_equal(hf_lock_acquire_start(lock, &options, NULL, NULL, &op), HF_EINVAL);
    options.lease_ms = -2;
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_EINVAL);
}

WORLD_CASE(S54_other_locks_refuse_it) {
    hf_lock *lock, *members[1];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(new_lock(w->client, others[i].kind, "other", 5, &lock), HF_OK);
        assert_refused(lock);
        hf_lock_free(lock);
    }
    assert_int_equal(new_lock(w->client, HF_STRING, "other", 5, &members[0]), HF_OK);
    assert_int_equal(hf_lock_new_multi(members, 1, &lock), HF_OK);
    assert_refused(lock);
    hf_lock_free(lock);
    hf_lock_free(members[0]);
    assert_int_equal(world_keys(w->server), 0);
}

/* Nothing is sent. */
CASE(S54_quorums_and_zookeeper_refuse_it) {
    static const struct {
        const char *url;
        any_kind kind;
    } rows[] = {{"redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3", HF_STRING},
                {"zk://127.0.0.1:1", HF_PLAIN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        own_client *client = made(hf_open, rows[i].url, NULL);
        own_lock *lock = made(new_lock, client, rows[i].kind, "other", 5);
        assert_refused(lock);
    }
}

/* Renewals of that hold may be on their way, and would give it a lease. */
NO_LEASE_CASE(S54_a_hold_with_a_lease_keeps_it) {
    int64_t count = 0;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(acquire(w->lock, 0, NULL), HF_ENOTSUP);
    assert_int_equal(hf_lock_hold_count(w->lock, &count), HF_OK);
    assert_int_equal(count, 1);
    assert_true(pttl(w->server, WORLD_NAME) > 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* ---- Lost replies, late copies ---- */

static const struct step {
    const char *name;
    bool second;
} steps[] = {{"first", false}, {"second", true}};

ROW_CASES(S55_a_lost_reply_changes_nothing, step, steps) {
    OWN(world_end) struct world w;
    begin(&w, HF_STRING, NULL);
    const char *matcher = step->second ? PERSIST : ACQUIRE;
    for (int round = 0; round < 2; round++) {
        proxy_drop_replies_after(w.proxy, matcher);
        assert_int_equal(acquire(w.lock, 0, NULL), HF_OK);
        assert_int_equal(proxy_fired(w.proxy), round + 1);
        assert_true(is_permanent(&w));
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        assert_true(world_free(&w));
    }
}

/* The key is permanent by then, so only a release ends it. */
ROW_CASES(S56_one_that_is_never_answered_is_undone, step, steps) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    begin(&w, HF_STRING, &options);
    proxy_mute_replies_after(w.proxy, step->second ? PERSIST : ACQUIRE);
    assert_true(acquire(w.lock, 0, NULL) < 0);
    assert_int_equal(proxy_fired(w.proxy), 1); /* so it had run */
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_true(world_wait_free(&w, HANG_MS));
    assert_int_equal(acquire(w.lock, HANG_MS, NULL), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* A server that refuses the second step does not keep the first. */
NO_LEASE_CASE(S56_one_that_is_refused_is_undone) {
    static const char refusal[] = "-ERR no\r\n";
    proxy_answer_instead(w->proxy, PERSIST, refusal, strlen(refusal));
    assert_true(acquire(w->lock, 0, NULL) < 0);
    assert_true(world_wait_free(w, FIRST_LEASE_MS)); /* its first lease is much longer */
}

/* Deleted, or at its end, between the two steps: the wait goes on. */
NO_LEASE_CASE(S49_gone_between_the_steps) {
    static const char gone[] = "*2\r\n:0\r\n:1\r\n";
    proxy_answer_instead(w->proxy, PERSIST, gone, strlen(gone));
    assert_int_equal(acquire(w->lock, 0, NULL), HF_ETIMEDOUT);
    assert_true(world_wait_free(w, HANG_MS));
    proxy_hold_request(w->proxy, PERSIST);
    struct world_caller waiter;
    world_call_acquire(&waiter, w->lock, world_wait_for(HANG_MS, HF_NO_LEASE));
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    cmd_ok(w->server, "DEL " WORLD_NAME);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(is_permanent(w));
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_true(world_free(w));
}

/* The token of a released hold, set by a late copy of the first step, and made permanent by one of
 * the second. */
static void haunt(struct world *w, const hf_options *options) {
    char handle[HF_HANDLE_MAX];
    begin(w, HF_STRING, options);
    cmd_ok(w->server, "ACL SETUSER default -client +client|setname +client|info +client|id "
                      "+client|tracking +client|caching +client|list"); /* else none is late */
    proxy_hold_request(w->proxy, ACQUIRE);
    assert_int_equal(acquire(w->lock, 0, NULL), HF_OK);
    assert_int_equal(hf_lock_handle(w->lock, 0, handle, sizeof handle), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_string_equal(value(w), handle);
    assert_false(is_permanent(w));
    cmd_ok(w->server, "PERSIST " WORLD_NAME);
}

CASE(S58_late_copies_of_both_steps_are_deleted) {
    OWN(world_end) struct world w;
    const hf_options options = with_watchdog(FIRST_LEASE_MS);
    haunt(&w, &options);
    assert_int_equal(acquire(w.rival_lock, 0, NULL), HF_EBUSY);
    assert_true(world_wait_free(&w, HANG_MS));
    cmd_ok(w.server, "ACL SETUSER default +@all");
}

/* Late copies of the second step and of looks find the next hold's token. */
NO_LEASE_CASE(S58_late_second_steps_leave_the_next_hold_alone) {
    proxy_hold_request(w->proxy, PERSIST);
    assert_int_equal(acquire(w->lock, 0, NULL), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_true(pttl(w->server, WORLD_NAME) > 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

static bool are_there(struct world *w, long long count) {
    return cmd_int(w->server, "EXISTS " WORLD_NAME " second third") == count;
}

/* What is left behind is released however long that takes, since no lease ends it: what late copies
 * have left, a hold whose release is not answered, and an acquire whose second step was not. */
CASE_WITH(S59_it_is_released_however_long_the_server_is_away, struct world, w, haunt, world_end,
          with_watchdog(FIRST_LEASE_MS), options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    hf_lock *second, *third;
    assert_int_equal(new_lock(w->client, HF_STRING, "second", 6, &second), HF_OK);
    assert_int_equal(new_lock(w->client, HF_STRING, "third", 5, &third), HF_OK);
    assert_int_equal(acquire(second, HANG_MS, NULL), HF_OK);
    proxy_mute_replies_after(w->proxy, PERSIST);
    proxy_refuse(w->proxy, true);
    assert_true(acquire(third, 0, NULL) < 0);
    assert_int_equal(proxy_fired(w->proxy), 2); /* it had run */
    proxy_cut_all(w->proxy);                    /* those that the client has not given up */
    assert_true(hf_lock_release(second) < 0);
    sleep_ms(FIRST_LEASE_MS + 1000); /* every lease has ended then, by time alone */
    assert_true(are_there(w, 3));
    proxy_refuse(w->proxy, false);
    assert_true(WAIT_FOR(are_there(w, 0), HANG_MS));
    hf_lock_free(second);
    hf_lock_free(third);
    cmd_ok(w->server, "ACL SETUSER default +@all");
}

RUN_CASES(world_start_server, world_stop_server)
