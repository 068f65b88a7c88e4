/*
 * R07, second half: the watchdog lives no shorter than the hold.
 *
 * It survives whatever is not the hold's own end: errors, forgotten scripts, lost replies and
 * connections, neighbours that went bad, and a thousand others that are to be renewed as well.
 */
#include "support/world.h"

static void begin(struct world *w, int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    world_begin(w, &options);
}
#define WATCHDOG_CASE(name, watchdog_ms)                                                           \
    CASE_IN(name, struct world, w, begin, world_end, watchdog_ms)

static bool reach_renewals(struct world *w, uint64_t wanted) {
    return WAIT_FOR(world_stats(w->client).renewals >= wanted, HANG_MS);
}

static bool wait_renewals(struct world *w, uint64_t more) {
    return reach_renewals(w, world_stats(w->client).renewals + more);
}

WATCHDOG_CASE(U24_script_flush_during_a_hold, ENDURING_MS) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    for (int64_t start_ms = now_ms(); world_stats(w->client).renewals < 3; wait_a_moment()) {
        assert_true(now_ms() - start_ms < HANG_MS);
        cmd_ok(w->server, "SCRIPT FLUSH");
        assert_int_equal(world_count(w, w->owner), 1);
    }
    assert_int_equal(world_stats(w->client).renew_failures, 0);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(atomic_load(&events.losses), 0);
}

WATCHDOG_CASE(R07_renewal_survives_errors, ENDURING_MS) {
    static const char *const answers[] = {
        "-BUSY Redis is busy running a script.\r\n",
        "-LOADING Redis is loading\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-ERR whatever\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n",
        "-OOM command not allowed\r\n",
        "$-1\r\n",
        ":5\r\n",
        "*1\r\n$1\r\nx\r\n"};
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_renewals(w, 1));
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        uint64_t failures = world_stats(w->client).renew_failures;
        proxy_answer_instead(w->proxy, WORLD_RENEW, answers[i], strlen(answers[i]));
        assert_true(wait_renewals(w, 1));
        assert_true(world_stats(w->client).renew_failures <= failures + 1);
    }
    assert_true(proxy_fired(w->proxy) >= sizeof answers / sizeof answers[0] - 1);
    assert_true(world_stats(w->client).renew_failures >= 5);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 0);
}

/* Each renewal reaches the server a second late: within the limit of an exchange (here a third of
 * the lease), but later than the first copy of any other command may act. */
WORLD_CASE_WITH(R07_slow_server_still_renews, world_options(), options.watchdog_ms = 6000) {
    proxy_delay(w->proxy, WORLD_RENEW, 1100);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_stats stats;
    (void)WAIT_FOR((stats = world_stats(w->client), stats.renewals >= 2 || stats.losses > 0),
                   HANG_MS);
    assert_int_equal(stats.losses, 0);
    assert_true(stats.renewals >= 2);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WATCHDOG_CASE(R07_renewal_reply_lost, ENDURING_MS) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_renewals(w, 1));
    proxy_drop_replies_after(w->proxy, WORLD_RENEW);
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    assert_true(wait_renewals(w, 2));
    assert_int_equal(world_stats(w->client).losses, 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

/* When it ends, by the server's clock. */
static int64_t end_of(struct world *w, const char *key) {
    return cmd_int(w->server, "EVAL %s 1 %s",
                   "local t = redis.call('time') "
                   "return t[1] * 1000 + math.floor(t[2] / 1000) + redis.call('pttl', KEYS[1])",
                   key);
}

/* Since they ended then: by so much that it is no rounding. */
static bool both_renewed(struct world *w, int64_t end_ms, int64_t read_end_ms) {
    return end_of(w, WORLD_NAME) > end_ms + 100 && end_of(w, "read") > read_end_ms + 100;
}

/* Locks that are renewed by different scripts: whichever is sent second does not wait for the first
 * one's answer, which never comes. */
CASE(R07_scripts_do_not_wait_for_each_other) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    hf_lock_options reading = HF_LOCK_OPTIONS_INIT;
    own_lock *read;
    options.watchdog_ms = 9000; /* renewed every 3 s, and an answer is awaited as long */
    options.cmd_timeout_ms = 9000;
    reading.kind = HF_READ;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_new_with(w.client, "read", 4, &reading, &read), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(read), HF_OK);
    assert_true(wait_renewals(&w, 2)); /* both scripts are known by then */
    int64_t end_ms = end_of(&w, WORLD_NAME), read_end_ms = end_of(&w, "read");
    proxy_mute_replies_after(w.proxy, WORLD_RENEW);
    proxy_mute_replies_after(w.proxy, hfi_script_read_renew.sha1);
    assert_true(proxy_wait_fired(w.proxy, 1, HANG_MS));
    int64_t muted_ms = now_ms();
    (void)WAIT_FOR(both_renewed(&w, end_ms, read_end_ms), HANG_MS);
    int64_t took_ms = now_ms() - muted_ms;
    if (took_ms >= 2000)
        fail_msg("renewed %d ms after the other", (int)took_ms);
    assert_int_equal(hf_lock_release(read), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_stats(w.client).losses, 0);
}

/* ---- Many ---- */

#define MANY 1000

static void name_of(int i, char name[32]) {
    snprintf(name, 32, "many-%d", i);
}

static void acquire_many(struct world *w, hf_lock **locks, int len) {
    char name[32];
    for (int i = 0; i < len; i++) {
        name_of(i, name);
        assert_int_equal(hf_lock_new(w->client, name, &locks[i]), HF_OK);
        assert_int_equal(hf_lock_try(locks[i]), HF_OK);
    }
}

/* The numbers of keys in the renewals that a monitor has seen. */
static void assert_batches(struct monitor *monitor, long most) {
    char *text = monitor_text(monitor), *line = text;
    long seen = 0, largest = 0;
    while ((line = strstr(line, WORLD_RENEW)) != NULL) {
        line += strlen(WORLD_RENEW) + strlen("\" \"");
        long keys = strtol(line, NULL, 10);
        assert_in_range(keys, 1, most);
        largest = keys > largest ? keys : largest;
        seen++;
    }
    assert_true(seen >= MANY / most);
    assert_true(largest > 1);
    free(text);
}

/* How long the machine kept us or the server waiting at worst, within that time. */
static int64_t longest_pause_ms(struct world *w, int64_t duration_ms) {
    int64_t longest_ms = 0, last_ms = now_ms();
    for (int64_t end_ms = last_ms + duration_ms; last_ms < end_ms;) {
        (void)wait_a_moment();
        cmd_ok(w->server, "PING");
        int64_t at_ms = now_ms();
        longest_ms = at_ms - last_ms > longest_ms ? at_ms - last_ms : longest_ms;
        last_ms = at_ms;
    }
    return longest_ms;
}

WATCHDOG_CASE(R07_thousand_holds_none_late_in_batches, ENDURING_MS) {
    static hf_lock *locks[MANY];
    struct monitor *monitor = monitor_start(w->server);
    acquire_many(w, locks, MANY);
    int64_t pause_ms = longest_pause_ms(w, 2 * ENDURING_MS);
    assert_int_equal(world_keys(w->server), MANY);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.losses, 0);
    size_t in_time = proxy_seen_in_time(w->proxy, WORLD_RENEW);
    if (pause_ms < 500 && in_time == proxy_seen(w->proxy, WORLD_RENEW))
        assert_int_equal(stats.renew_failures, 0); /* else one was late by right */
    assert_int_equal(stats.holds, MANY);
    assert_true(stats.renewals >= 2 * MANY);
    assert_batches(monitor, 100);
    monitor_stop(monitor);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(world_keys(w->server), 0);
}

WATCHDOG_CASE(R07_one_bad_key_does_not_stop_the_others, ENDURING_MS) {
    hf_lock *locks[5];
    struct world_events events = {0};
    acquire_many(w, locks, 5);
    assert_int_equal(hf_lock_on_lost(locks[2], world_on_event, &events), HF_OK);
    cmd_ok(w->server, "SET many-2 text");
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(HOLDS_FOR(world_keys(w->server) == 5, ENDURING_MS + 500)); /* a lease */
    assert_int_equal(world_stats(w->client).losses, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(hf_lock_release(locks[i]), i == 2 ? HF_ELOST : HF_OK);
        hf_lock_free(locks[i]);
    }
    own_text *text = cmd_str(w->server, "GET many-2"); /* not ours to touch */
    assert_string_equal(text, "text");
}

/* Four locks in one batch, and then this user has no right to one of them any more: the last, so that the leases of the
 * others end before its own. */
CASE(R07_one_refused_name_does_not_stop_the_others) {
    OWN(world_end) struct world w;
    enum { FOUR = 4, REFUSED = 3 };
    static const char *const names[FOUR] = {"many-0", "many-1", "many-2", "many-3"};
    struct world_events events = {0};
    hf_lock *locks[FOUR];
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    options.user = "app";
    options.password = "secret";
    world_begin(&w, NULL);
    cmd_ok(w.server, "ACL SETUSER app reset on >secret ~* &* +@all");
    hf_client *client = made(hf_open, server_url(w.server), &options);
    for (int i = 0; i < FOUR; i++) {
        assert_int_equal(hf_lock_new(client, names[i], &locks[i]), HF_OK);
        assert_int_equal(hf_lock_try(locks[i]), HF_OK);
    }
    assert_int_equal(hf_lock_on_lost(locks[REFUSED], world_on_event, &events), HF_OK);
    cmd_ok(w.server, "ACL SETUSER app resetkeys ~many-0 ~many-1 ~many-2");
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(world_stats(client).losses, 1);
    for (int i = 0; i < FOUR; i++) {
        assert_int_equal(hf_lock_release(locks[i]), i == REFUSED ? HF_ELOST : HF_OK);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(w.server, "ACL DELUSER app");
}

CASE(R07_all_renewed_at_once_after_reconnect) {
    OWN(world_end) struct world w;
    hf_lock *locks[5];
    begin(&w, 9000); /* renewed every 3 s */
    acquire_many(&w, locks, 5);
    assert_true(wait_renewals(&w, 5));
    uint64_t renewals = world_stats(w.client).renewals;
    int64_t start_ms = now_ms();
    assert_true(proxy_cut_connections(w.proxy, WORLD_RENEW) >= 1);
    assert_true(reach_renewals(&w, renewals + 5));
    int64_t took_ms = now_ms() - start_ms;
    if (took_ms >= 2500) /* then they would have been due anyway */
        fail_msg("renewed %d ms after the cut", (int)took_ms);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
}

RUN_CASES(world_start_server, world_stop_server)
