/*
 * A break notifies the holder of the lock: at once, if it has held for a second.
 *
 * Leases and renewals are so long here that no holder notices by itself while a test waits. The
 * message is a hint: no client can end a hold by publishing it.
 */
#include "support/world.h"

#define LONG_MS 1800000 /* a renewal every ten minutes */
#define ASK "holdfast_ask"

static hf_options patient(void) {
    hf_options options = world_options();
    options.watchdog_ms = LONG_MS;
    return options;
}

static bool nobody_listens(void *arg) {
    return !server_questions_are_received(arg);
}

static bool has_lost(void *arg) {
    return world_stats(arg).losses > 0;
}

static hf_lock *handle(hf_client *client, any_kind kind, const char *name, size_t len) {
    return made(new_lock, client, kind, name, len);
}

struct form {
    const char *name;
    any_kind kind;
    int64_t lease_ms;
};

static const struct form forms[] = {
    {"plain", HF_PLAIN, HF_WATCHDOG}, {"nonreentrant", HF_NONREENTRANT, HF_WATCHDOG},
    {"spin", HF_SPIN, HF_WATCHDOG},   {"fenced", HF_FENCED, HF_WATCHDOG},
    {"fair", HF_FAIR, HF_WATCHDOG},   {"read", HF_READ, HF_WATCHDOG},
    {"write", HF_WRITE, HF_WATCHDOG}, {"plain_fixed", HF_PLAIN, LONG_MS},
    {"fair_fixed", HF_FAIR, LONG_MS}, {"read_fixed", HF_READ, LONG_MS},
};

ROW_CASES(the_holder_is_notified_at_once, form, forms) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = patient();
    bool broken = false;
    world_begin(&w, &options);
    own_lock *lock = handle(w.client, form->kind, WORLD_NAME, strlen(WORLD_NAME));
    own_lock *rival = handle(w.rival, form->kind, WORLD_NAME, strlen(WORLD_NAME));
    assert_int_equal(hf_lock_on_lost(lock, world_on_event, &events), HF_OK);
    hf_acquire_options wanted = world_wait_for(HF_FOREVER, form->lease_ms);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(lock, &wanted, NULL), HF_OK);
    assert_true(wait_until(server_questions_are_received, w.server, HANG_MS));
    assert_true(now_ms() - start_ms >= 749); /* no sooner: most holds are shorter */
    int64_t left_ms = hf_lock_remaining_ms(lock);
    assert_int_equal(hf_lock_break(rival, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(left_ms > LONG_MS / 2);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
}

/* Channels know neither databases nor prefixes, and names may be any bytes. */
WORLD_CASE(names_are_reported_whole) {
    static const char name[] = "a b\0\r\n{c} broken 1 0 ";
    char url[512];
    bool broken = false;
    hf_options options = patient();
    options.name_prefix = "app x:";
    snprintf(url, sizeof url, "%s?db=3", server_url(w->server));
    own_client *holder = made(hf_open, url, &options);
    own_client *breaker = made(hf_open, url, &options);
    own_lock *lock = handle(holder, HF_PLAIN, name, sizeof name);
    own_lock *rival = handle(breaker, HF_PLAIN, name, sizeof name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(wait_until(server_questions_are_received, w->server, HANG_MS));
    assert_int_equal(hf_lock_break(rival, &broken), HF_OK);
    assert_true(broken);
    assert_true(wait_until(has_lost, holder, HANG_MS));
}

/* Both readers of one client, and the writer that also reads, are notified. */
WORLD_CASE_WITH(every_owner_on_the_name_is_notified, patient()) {
    own_lock *read = handle(w->client, HF_READ, WORLD_NAME, strlen(WORLD_NAME));
    own_lock *rival = handle(w->rival, HF_READ, WORLD_NAME, strlen(WORLD_NAME));
    for (hf_owner owner = 1; owner <= 3; owner++)
        assert_int_equal(world_acquire_async(read, owner, HANG_MS, NULL), HF_OK);
    assert_true(wait_until(server_questions_are_received, w->server, HANG_MS));
    assert_int_equal(hf_lock_break(rival, NULL), HF_OK);
    assert_true(WAIT_FOR(world_stats(w->client).losses == 3, HANG_MS));
}

/* ---- Who listens ---- */

WORLD_CASE(a_brief_holder_never_subscribes) {
    own_monitor *monitor = monitor_start(w->server);
    int64_t start_ms = now_ms(), longest_ms = 0;
    for (; now_ms() - start_ms < 2500; wait_a_moment()) {
        int64_t since_ms = now_ms();
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        int64_t held_ms = now_ms() - since_ms;
        longest_ms = held_ms > longest_ms ? held_ms : longest_ms;
    }
    if (longest_ms < 749) /* else one was not brief, because the machine paused */
        assert_int_equal(monitor_count(monitor, ASK), 0);
}

WORLD_CASE_WITH(a_client_without_holds_unsubscribes, patient()) {
    for (int i = 0; i < 2; i++) { /* and begins again */
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_true(wait_until(server_questions_are_received, w->server, HANG_MS));
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_true(wait_until(nobody_listens, w->server, HANG_MS));
    }
}

/* ---- Lies ---- */

static void publish(struct world *w, const char *message) {
    cmd_ok(w->server, "PUBLISH " ASK " %s", message);
}

WORLD_CASE_WITH(no_hold_is_taken_by_a_message, patient()) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_until(server_questions_are_received, w->server, HANG_MS));
    int64_t start_ms = now_ms();
    uint64_t before = world_stats(w->client).renewals;
    for (int i = 0; i < 2000; i++)
        publish(w, "broken 1 0 " WORLD_NAME);
    while (world_stats(w->client).renewals < before + 5) { /* it did ask */
        publish(w, "broken 1 0 " WORLD_NAME);
        assert_true(now_ms() - start_ms < HANG_MS);
        (void)wait_a_moment();
    }
    uint64_t asked = world_stats(w->client).renewals - before;
    assert_true((int64_t)asked <= (now_ms() - start_ms) / 100 + 2);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* How often it asked, once it has done so and does so no more: a doubt waits for a tenth of a second. */
static uint64_t renewals_at_rest(hf_client *client) {
    int64_t start_ms = now_ms(), changed_ms = start_ms;
    uint64_t renewals = 0;
    while (renewals == 0 || now_ms() - changed_ms < 1500) {
        assert_true(now_ms() - start_ms < HANG_MS);
        uint64_t seen = world_stats(client).renewals;
        changed_ms = seen != renewals ? now_ms() : changed_ms;
        renewals = seen;
        (void)wait_a_moment();
    }
    return renewals;
}

/* Other databases, other keys, other versions, and what means nothing. */
CASE(foreign_messages_cost_nothing) {
    OWN(world_end) struct world w;
    static const char *const messages[] = {"broken 1 1 " WORLD_NAME,
                                           "broken 1 0 another",
                                           "broken 1 0 " WORLD_NAME "x",
                                           "broken 1 0 guarde",
                                           "broken 1 00 " WORLD_NAME,
                                           "broken 1 0",
                                           "broken 1 0 ",
                                           "broken 2 0 " WORLD_NAME,
                                           "broken",
                                           "b",
                                           "ask 1 0123456789abcdef holds"};
    hf_options options = patient();
    world_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_true(wait_until(server_questions_are_received, w.server, HANG_MS));
    publish(&w, "broken 1 0 " WORLD_NAME);
    uint64_t first = renewals_at_rest(w.client); /* that, and listening, has been seen to */
    for (int i = 0; i < 20; i++)
        for (size_t j = 0; j < sizeof messages / sizeof *messages; j++)
            publish(&w, messages[j]);
    assert_true(HOLDS_FOR(world_stats(w.client).renewals == first,
                          500)); /* five times what it would take */
    publish(&w, "broken 1 0 " WORLD_NAME);
    assert_true(WAIT_FOR(world_stats(w.client).renewals > first, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* A message that was lost with its connection is made up for when that is there again. */
static void miss_a_message(int64_t lease_ms) {
    OWN(world_end) struct world w;
    hf_options options = patient();
    hf_acquire_options wanted = world_wait_for(HF_FOREVER, lease_ms);
    world_begin(&w, &options);
    assert_int_equal(hf_lock_acquire_with(w.lock, &wanted, NULL), HF_OK);
    assert_true(wait_until(server_questions_are_received, w.server, HANG_MS));
    proxy_refuse(w.proxy, true);
    assert_true(proxy_cut_connections(w.proxy, WORLD_SUBSCRIBE) > 0);
    assert_true(wait_until(nobody_listens, w.server, HANG_MS));
    assert_int_equal(hf_lock_break(w.rival_lock, NULL), HF_OK);
    proxy_refuse(w.proxy, false);
    assert_true(wait_until(has_lost, w.client, HANG_MS));
}

CASE(missed_messages_are_made_up_for) {
    miss_a_message(HF_WATCHDOG);
    miss_a_message(LONG_MS); /* which nobody renews */
}

/* The break comes when the hold is old enough, and the server has not confirmed that we listen. */
WORLD_CASE_WITH(messages_before_the_confirmation_count, patient()) {
    proxy_stall_request(w->proxy, ASK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_false(server_questions_are_received(w->server));
    assert_int_equal(hf_lock_break(w->rival_lock, NULL), HF_OK);
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_true(wait_until(has_lost, w->client, HANG_MS));
}

/* ---- Rights ---- */

#define RIGHTS                                                                                     \
    "ACL SETUSER locks reset on >secret resetchannels ~app:* &redisson_lock__channel:{app:* "      \
    "+eval +evalsha +time +exists +hexists +hmget +hset +pttl +pexpire +del +publish "             \
    "+subscribe +unsubscribe +ping +hget +hgetall +type +select +client|setname +client|list +info"

static atomic_int interrupted, mute;

static void count_words(hf_log_level level, const char *message, void *user) {
    (void)user;
    if (level <= HF_LOG_WARN && strstr(message, "refuses the subscription to breaks") != NULL)
        atomic_fetch_add(&interrupted, 1);
    if (level <= HF_LOG_WARN && strstr(message, "may not publish on " ASK) != NULL)
        atomic_fetch_add(&mute, 1);
}

/* With the access list of 0.1 all is as it was, and that is said once on each side; with the
 * channel's name in it, the holder is notified. */
CASE(U45_without_the_right_it_is_as_before) {
    struct server *server = world_server();
    for (int rights = 0; rights < 2; rights++) {
        hf_options options = patient();
        bool broken = false;
        cmd_ok(server, "FLUSHALL");
        cmd_ok(server, rights == 0 ? RIGHTS : RIGHTS " &" ASK);
        options.user = "locks";
        options.password = "secret";
        options.log = count_words;
        atomic_store(&interrupted, 0);
        atomic_store(&mute, 0);
        own_client *holder = made(hf_open, server_url(server), &options);
        own_client *breaker = made(hf_open, server_url(server), &options);
        own_lock *lock = handle(holder, HF_PLAIN, "app:a", 5);
        own_lock *rival = handle(breaker, HF_PLAIN, "app:a", 5);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        if (rights == 0)
            assert_true(world_wait_atomic(&interrupted, 1, HANG_MS));
        else
            assert_true(wait_until(server_questions_are_received, server, HANG_MS));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(hf_lock_break(rival, &broken), HF_OK);
            assert_true(broken);
            if (rights == 1)
                assert_true(wait_until(has_lost, holder, HANG_MS));
            assert_int_equal(hf_lock_release(lock), HF_ELOST);
            assert_int_equal(hf_lock_acquire(lock), HF_OK);
        }
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(atomic_load(&interrupted), rights == 0);
        assert_int_equal(atomic_load(&mute), rights == 0);
    }
    cmd_ok(server, "ACL DELUSER locks");
}

RUN_CASES(world_start_server, world_stop_server)
