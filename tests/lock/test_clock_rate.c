/*
 * A server whose clock runs faster or slower than ours, as long as clocks are slewed (tests/support/clock).
 *
 * A lease ends by the server's clock: nobody else may have the lock while its holder learns that
 * time remains, if the rates differ by no more than `clock_drift_ppm`. And a command that is given
 * up is dead by the server's clock, too, also on a connection that has long been idle.
 */
#include "support/step.h"
#include "support/world.h"

#include <inttypes.h>

#define PPM 1000000

static bool can_step;

static int start(void **state) {
    can_step = step_preload(HF_TEST_STEPPED_CLOCK);
    return world_start_server(state);
}

static void begin(struct world *w, int64_t slew_ppm, const hf_options *options) {
    if (!can_step) {
        print_message("the clock of this server cannot be slewed: skipped\n");
        skip();
    }
    world_begin(w, options);
    step_slew(w->server, slew_ppm);
}

static void finish(struct world *w) {
    step_slew(w->server, 0);
    world_end(w);
}

/* ---- Leases ---- */

enum { PLAIN, FAIR, FENCED, SPIN, READ, WRITE, STRING, GROUP, LOCKS, PERMITS = LOCKS, HOLDS };

/* One thing, as two clients have it. */
struct pair {
    hf_lock *holder, *rival;
    hf_permits *permits, *rival_permits;
    hf_permit_id id;
    bool taken; /* by the rival */
};

static hf_lock *lock_of(hf_client *client, int what, bool rival) {
    static const hf_kind kinds[] = {HF_PLAIN, HF_FAIR,  HF_PLAIN, HF_PLAIN,
                                    HF_READ,  HF_WRITE, HF_STRING};
    hf_lock *lock;
    char name[16];
    int len = snprintf(name, sizeof name, "kind%d", what);
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    if (what == GROUP) {
        const hf_bytes value = {"value", 5};
        assert_int_equal(hf_lock_new_group(client, name, (size_t)len, &value, 1, &lock), HF_OK);
        return lock;
    }
    options.kind = what == READ && rival ? HF_WRITE : kinds[what];
    options.flags = what == FENCED ? HF_FENCED : what == SPIN ? HF_SPIN : 0;
    assert_int_equal(hf_lock_new_with(client, name, (size_t)len, &options, &lock), HF_OK);
    return lock;
}

static void take(struct world *w, struct pair *pair, int what, int64_t lease_ms) {
    *pair = (struct pair){.taken = false};
    if (what == PERMITS) {
        hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
        options.lease_ms = lease_ms;
        assert_int_equal(hf_permits_new(w->client, "permits", &pair->permits), HF_OK);
        assert_int_equal(hf_permits_new(w->rival, "permits", &pair->rival_permits), HF_OK);
        assert_int_equal(hf_permits_set(pair->permits, 1), HF_OK);
        assert_int_equal(hf_permits_acquire_with(pair->permits, &options, &pair->id), HF_OK);
        return;
    }
    hf_acquire_options options = world_wait_for(HF_FOREVER, lease_ms);
    pair->holder = lock_of(w->client, what, false);
    pair->rival = lock_of(w->rival, what, true);
    assert_int_equal(hf_lock_acquire_with(pair->holder, &options, NULL), HF_OK);
}

/* The rival has it: then nothing remains for the holder. */
static void look(struct pair *pair, int what) {
    hf_permit_id id;
    if (pair->taken)
        return;
    int err = what == PERMITS ? hf_permits_try(pair->rival_permits, &id) : hf_lock_try(pair->rival);
    int64_t left_ms = what == PERMITS ? hf_permits_remaining_ms(pair->permits, &pair->id)
                                      : hf_lock_remaining_ms(pair->holder);
    if (err == HF_EBUSY)
        return;
    assert_int_equal(err, HF_OK);
    if (left_ms > 0)
        fail_msg("kind %d: the rival has it, and %" PRId64 " ms remain for the holder", what,
                 left_ms);
    pair->taken = true;
    if (what == PERMITS)
        assert_int_equal(hf_permits_release(pair->rival_permits, &id), HF_OK);
    else
        assert_int_equal(hf_lock_release(pair->rival), HF_OK);
}

static void leave(struct pair *pair) {
    hf_lock_free(pair->holder);
    hf_lock_free(pair->rival);
    hf_permits_free(pair->permits);
    hf_permits_free(pair->rival_permits);
}

/* Every kind at once: each of the rival's attempts is one command, so all of them are looked at often enough. */
static void nobody_enters_while_time_remains(int64_t slew_ppm, const char *option,
                                             int64_t lease_ms) {
    OWN(finish) struct world w;
    struct pair pairs[HOLDS];
    begin(&w, slew_ppm, NULL);
    own_text *url = text_of("%s%s", proxy_url(w.proxy), option);
    hf_lock_free(w.lock);
    assert_int_equal(hf_close(w.client), HF_OK);
    hf_options options = world_options();
    assert_int_equal(hf_open(url, &options, &w.client), HF_OK);
    assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &w.lock), HF_OK);
    for (int i = 0; i < HOLDS; i++)
        take(&w, &pairs[i], i, lease_ms);
    int taken = 0;
    for (int64_t end_ms = now_ms() + HANG_MS; taken < HOLDS && now_ms() < end_ms;) {
        taken = 0;
        for (int i = 0; i < HOLDS; i++) {
            look(&pairs[i], i);
            taken += pairs[i].taken;
        }
    }
    assert_int_equal(taken, HOLDS);
    for (int i = 0; i < HOLDS; i++)
        leave(&pairs[i]);
}

/* By default it is one in a hundred. */
CASE(a_lease_is_trusted_less_the_default) {
    nobody_enters_while_time_remains(9500, "", 10000);
}

/* As chrony slews, by default. */
CASE(a_lease_is_trusted_less_the_option) {
    nobody_enters_while_time_remains(83333, "?clock_drift_ppm=90000", 6000);
}

/* A string lock ends at a time of the server's clock, of which the client knows only an earlier
 * reading: it allows for the drift since then, too. */
CASE(a_lease_that_ends_at_a_time) {
    OWN(finish) struct world w;
    enum { AGE_MS = 800, LEASE_MS = 1000, ROUNDS = 3 }; /* a reading of over a second is replaced */
    hf_options options = world_options();
    options.clock_drift_ppm = 300000;
    begin(&w, 290000, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        struct pair pair;
        hf_lock_free(w.lock);
        assert_int_equal(hf_close(w.client), HF_OK);
        assert_int_equal(hf_open(server_url(w.server), &options, &w.client), HF_OK);
        assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &w.lock), HF_OK);
        take(&w, &pair, STRING, LEASE_MS); /* connects, and reads the clock */
        assert_int_equal(hf_lock_release(pair.holder), HF_OK);
        leave(&pair);
        sleep_ms(AGE_MS); /* so old the reading becomes by the clock alone */
        take(&w, &pair, STRING, LEASE_MS);
        for (int64_t end_ms = now_ms() + HANG_MS; !pair.taken && now_ms() < end_ms;)
            look(&pair, STRING);
        assert_true(pair.taken);
        leave(&pair);
    }
}

static hf_lock *lock_named(hf_client *client, hf_kind kind, const char *name) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    return made(hf_lock_new_with, client, name, strlen(name), &options);
}

/* The clock is stepped, then the lock acquired: how much later than it says the key ends. */
static int64_t lasts_longer_than_it_says(struct world *w, hf_lock *lock, int64_t step_ms) {
    step_clock(w->server, step_ms);
    hf_acquire_options options = world_wait_for(0, 60000);
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
    long long left_ms = pttl(w->server, "stepped"); /* before it is asked what remains */
    int64_t remaining_ms = hf_lock_remaining_ms(lock);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    return left_ms - remaining_ms;
}

/* The server's clock is stepped while a connection is idle: the key ends that much earlier, and the
 * client knows. */
CASE_IN(S37_a_step_since_the_last_reading, struct world, w, begin, finish, 0, NULL) {
    hf_lock *lock = lock_named(w->client, HF_STRING, "stepped");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    sleep_ms(1100); /* longer than a reading is trusted: it ages by the clock alone */
    assert_true(lasts_longer_than_it_says(w, lock, 20000) >= 0);
    hf_lock_free(lock);
    step_clock(w->server, 0);
}

/* It was found to be stepped, and is stepped again at once. */
CASE_IN(S38_a_clock_that_is_stepped_again, struct world, w, begin, finish, 0, NULL) {
    hf_lock *lock = lock_named(w->client, HF_STRING, "stepped");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    sleep_ms(1100); /* the same */
    for (int64_t step_ms = 10000; step_ms <= 50000; step_ms += 10000)
        assert_true(lasts_longer_than_it_says(w, lock, step_ms) >= 0);
    hf_lock_free(lock);
    step_clock(w->server, 0);
}

/* Whether eight renewals came before their warnings, which come when half of what is trusted is left. */
static bool renews_before_warnings(struct world *w, struct world_events *events,
                                   int64_t trusted_ms) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    uint64_t renewals = world_stats(w->client).renewals;
    int warnings = atomic_load(&events->warnings);
    for (int64_t end_ms = now_ms() + HANG_MS;
         world_stats(w->client).renewals < renewals + 8 && now_ms() < end_ms; wait_a_moment()) {
        int err = hf_lock_try(w->rival_lock);
        assert_true(err == HF_EBUSY || hf_lock_remaining_ms(w->lock) == 0);
        assert_true(hf_lock_remaining_ms(w->lock) <= trusted_ms);
    }
    int err = hf_lock_release(w->lock);
    assert_true(err == HF_OK || err == HF_ELOST);
    return err == HF_OK && atomic_load(&events->warnings) == warnings;
}

/* Half of each lease is gone early, and renewals still come in time: on a busy machine, once. */
CASE(watchdogs_renew_early_enough) {
    OWN(finish) struct world w;
    enum { WATCHDOG_MS = 4000, ROUNDS = 10 };
    struct world_events events = {0};
    hf_options options = world_options();
    options.watchdog_ms = WATCHDOG_MS;
    options.clock_drift_ppm = 500000;
    begin(&w, 900000, &options); /* that is nearly twice as fast: a lease lasts 2105 ms of ours */
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    for (int rounds = 0; !renews_before_warnings(&w, &events, WATCHDOG_MS / 2);)
        assert_true(++rounds < ROUNDS);
}

/* ---- A turn that a message announces ---- */

/* It is proved for its confirmation only, by the server's clock, and nothing renews it. */
CASE(a_turn_in_the_queue) {
    OWN(finish) struct world w;
    struct world_caller waiter;
    hf_options options = world_options();
    options.clock_drift_ppm = 400000;
    begin(&w, 390000, &options);
    hf_lock_options fair = HF_LOCK_OPTIONS_INIT;
    own_lock *rival;
    fair.kind = HF_FAIR;
    own_lock *lock = made(hf_lock_new_with, w.client, "line", 4, &fair);
    assert_int_equal(hf_lock_new_with(w.rival, "line", 4, &fair, &rival), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK); /* scripts are known */
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_acquire(rival), HF_OK);
    hf_acquire_options waits = world_wait_as(hf_owner_new(), HF_FOREVER, HF_WATCHDOG);
    size_t seen = proxy_seen(w.proxy, "redisson_lock_queue");
    world_call_acquire(&waiter, lock, waits);
    assert_true(
        proxy_wait_seen(w.proxy, "redisson_lock_queue", seen + 2, HANG_MS)); /* it listens */
    assert_true(proxy_wait_answered(w.proxy, HANG_MS));
    proxy_blackhole(w.proxy, true, false);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(hf_lock_remaining_ms_as(lock, waits.owner) > 0);
    int err = HF_EBUSY;
    int64_t left_ms = 0;
    for (int64_t end_ms = now_ms() + HANG_MS; err == HF_EBUSY && now_ms() < end_ms;) {
        err = hf_lock_try(rival);
        left_ms = hf_lock_remaining_ms_as(lock, waits.owner);
    }
    assert_int_equal(err, HF_OK);
    assert_int_equal(left_ms, 0);
    proxy_heal(w.proxy);
    assert_int_equal(hf_lock_release(rival), HF_OK);
}

/* ---- Commands that come late ---- */

/* A connection is idle while the server's clock falls behind by more than an exchange takes. Then a command is held up
 * until it has been given up: it must not run any more. */
CASE(given_up_means_given_up) {
    OWN(finish) struct world w;
    hf_options options = world_options();
    options.ping_interval_ms = 3600000;
    options.cmd_timeout_ms = options.connect_timeout_ms = WORLD_BRIEF_MS;
    options.clock_drift_ppm = 300000;
    begin(&w, -290000, &options);
    world_warm_up(w.lock);
    assert_true(world_wait_free(&w, HANG_MS));
    sleep_ms(9000); /* 2610 ms of the server's are missing then: the clocks part by time alone */
    for (int copies = 0; copies < 3; copies++)
        proxy_stall_request(w.proxy, WORLD_ACQUIRE);
    size_t undone = proxy_seen(w.proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_try(w.lock), HF_EUNREACH);
    assert_true(proxy_wait_seen(w.proxy, WORLD_RELEASE, undone + 1, HANG_MS));
    assert_true(proxy_release_held(w.proxy) >= 1);
    assert_true(world_free(&w));
    proxy_heal(w.proxy);
}

/* What an idle connection knows of the server's clock is refreshed: a command is in time at once, however far the two
 * have come apart. */
CASE(idle_connections_read_the_clock) {
    OWN(finish) struct world w;
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.ping_interval_ms = WORLD_BRIEF_MS;
    options.clock_drift_ppm = 50000;
    begin(&w, 45000, &options);
    world_warm_up(w.lock);
    int64_t start_ms = now_ms();
    size_t queries = proxy_seen(w.proxy, "\r\nTIME\r\n");
    while (now_ms() - start_ms <
           12000) /* 540 ms ahead: more than the first copy of a command is given */
        assert_true(proxy_wait_seen(w.proxy, "\r\nTIME\r\n", ++queries, HANG_MS));
    assert_true(proxy_wait_answered(w.proxy, HANG_MS));
    size_t copies = proxy_seen(w.proxy, WORLD_ACQUIRE);
    start_ms = now_ms();
    assert_int_equal(hf_lock_try(w.lock), HF_OK);
    int64_t took_ms = now_ms() - start_ms; /* on a busy machine it may be late all the same */
    assert_true(proxy_seen(w.proxy, WORLD_ACQUIRE) == copies + 1 || took_ms > 100);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* ---- The option ---- */

CASE(bounds) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    assert_int_equal(options.clock_drift_ppm, 10000);
    options.clock_drift_ppm = -1;
    assert_int_equal(hf_open("redis://127.0.0.1:1", &options, &client), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "clock_drift_ppm"));
    options.clock_drift_ppm = PPM / 2 + 1;
    assert_int_equal(hf_open("redis://127.0.0.1:1", &options, &client), HF_EINVAL);
    assert_int_equal(hf_open("redis://127.0.0.1:1?clock_drift_ppm=500000", &options, &client),
                     HF_OK);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_open("redis://127.0.0.1:1?clock_drift_ppm=1 redis://127.0.0.1:2 "
                             "redis://127.0.0.1:3?clock_drift_ppm=2",
                             NULL, &client),
                     HF_EINVAL);
}

RUN_CASES(start, world_stop_server)
