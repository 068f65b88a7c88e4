/*
 * Tracking: the server reports what happens to a lock behind its holder's back, and when another
 * library gives one back.
 *
 * Leases and renewals are so long here that no holder and no waiter notices by itself while a test
 * waits. hf_stats tells that a hold is tracked, so nothing is done before that.
 */
#include "lock/group.h"
#include "support/notification_log.h"

#define LONG_MS 1800000                      /* a renewal every ten minutes */
#define ATTEMPT "\"SET\" \"" WORLD_NAME "\"" /* the stranger's own is the first */
#define FOREIGN "a-token-of-another-library"

static hf_options patient(void) {
    hf_options options = world_options();
    options.watchdog_ms = LONG_MS;
    return options;
}

static bool is_tracked(hf_client *client, uint64_t holds) {
    return WAIT_FOR(world_stats(client).tracked == holds, HANG_MS);
}

static bool is_lost(hf_client *client, uint64_t losses) {
    return WAIT_FOR(world_stats(client).losses == losses, HANG_MS);
}

/* ---- Holders ---- */

struct form {
    const char *name;
    any_kind kind;
    int64_t lease_ms;
    bool group;
};

static const struct form forms[] = {
    {"plain", HF_PLAIN, HF_WATCHDOG, false},
    {"nonreentrant", HF_NONREENTRANT, HF_WATCHDOG, false},
    {"spin", HF_SPIN, HF_WATCHDOG, false},
    {"fenced", HF_FENCED, HF_WATCHDOG, false},
    {"fair", HF_FAIR, HF_WATCHDOG, false},
    {"read", HF_READ, HF_WATCHDOG, false},
    {"write", HF_WRITE, HF_WATCHDOG, false},
    {"group", HF_PLAIN, HF_WATCHDOG, true},
    {"string", HF_STRING, HF_WATCHDOG, false},
    {"cohort", HF_PLAIN | HF_COHORT, HF_WATCHDOG, false},
    {"plain_fixed", HF_PLAIN, LONG_MS, false},
    {"fair_fixed", HF_FAIR, LONG_MS, false},
    {"read_fixed", HF_READ, LONG_MS, false},
    {"group_fixed", HF_PLAIN, LONG_MS, true},
    {"string_fixed", HF_STRING, LONG_MS, false},
    {"string_no_lease", HF_STRING, HF_NO_LEASE, false},
};

/* Each renewer, and each way to read whether a hold is there. */
static const struct form renewers[] = {{"plain", HF_PLAIN, HF_WATCHDOG, false},
                                       {"read", HF_READ, HF_WATCHDOG, false},
                                       {"group", HF_PLAIN, HF_WATCHDOG, true},
                                       {"string", HF_STRING, HF_WATCHDOG, false}};

static hf_lock *form_lock(hf_client *client, const struct form *form) {
    if (form->group)
        return new_values(client, "jack mary");
    return made(new_lock, client, form->kind, WORLD_NAME, strlen(WORLD_NAME));
}

static void form_hold(struct world *w, const struct form *form) {
    const hf_acquire_options leased = world_wait_for(0, form->lease_ms);
    hf_lock_free(w->lock);
    w->lock = form_lock(w->client, form);
    assert_int_equal(hf_lock_acquire_with(w->lock, &leased, NULL), HF_OK);
    assert_true(is_tracked(w->client, 1));
}

static void by_del(struct world *w) {
    server_drop(w->server, WORLD_NAME);
}

static void by_flush(struct world *w) {
    cmd_ok(w->server, "FLUSHALL");
}

static void by_overwriting(struct world *w) {
    cmd_ok(w->server, "SET " WORLD_NAME " text");
}

static void by_renaming(struct world *w) {
    cmd_ok(w->server, "RENAME " WORLD_NAME " {" WORLD_NAME "}.old");
}

/* It is over when the script ends, so that no renewal comes before that and gives it its lease again. */
static void by_expiring(struct world *w) {
    cmd_ok(
        w->server, "EVAL %s 1 " WORLD_NAME,
        "redis.call('pexpire', KEYS[1], 1) for i = 1, 2000000 do end return redis.status_reply('OK')");
}

/* All keys have a lease, and so any of them may go. */
static void by_evicting(struct world *w) {
    cmd_ok(w->server, "CONFIG SET maxmemory-policy allkeys-random");
    cmd_ok(w->server, "CONFIG SET maxmemory 1");
    assert_true(WAIT_FOR(cmd_int(w->server, "DBSIZE") == 0, HANG_MS));
    cmd_ok(w->server, "CONFIG SET maxmemory 0");
}

/* Between two commands of a transaction, so that the next look finds a key again. */
static void by_replacing(struct world *w) {
    cmd_ok(w->server, "MULTI");
    cmd_ok(w->server, "DEL " WORLD_NAME);
    cmd_ok(w->server, "HSET " WORLD_NAME " somebody:1 1");
    cmd_ok(w->server, "EXEC");
}

static const struct way {
    const char *name;
    void (*lose)(struct world *w);
} ways[] = {{"del", by_del},           {"flush", by_flush},      {"overwritten", by_overwriting},
            {"renamed", by_renaming},  {"expired", by_expiring}, {"evicted", by_evicting},
            {"replaced", by_replacing}};

static void assert_loss_reported(struct world *w) {
    assert_true(is_lost(w->client, 1));
    assert_int_equal(world_stats(w->client).tracked, 0);
    assert_in_range(world_stats(w->client).track_events, 0, 4);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

ROW_CASES(S80_a_deleted_lock_is_reported_to_its_holder, form, forms) {
    OWN(world_end) struct world w;
    const hf_options options = patient();
    world_begin(&w, &options);
    form_hold(&w, form);
    by_del(&w);
    assert_loss_reported(&w);
    assert_true(world_stats(w.client).track_events > 0);
}

ROW_CASES(S81_so_is_whatever_else_ends_it, way, ways) {
    static const struct form *const some[] = {&forms[0], &forms[8]};
    for (size_t i = 0; i < 2; i++) {
        struct world w;
        const hf_options options = patient();
        world_begin(&w, &options);
        form_hold(&w, some[i]);
        way->lose(&w);
        assert_loss_reported(&w);
        /* The server does not report a lease's end to the connection whose renewal finds it. */
        assert_true(way->lose == by_expiring || world_stats(w.client).track_events > 0);
        world_end(&w);
    }
}

/* Before the server reports anything. */
ROW_CASES(S105_what_happens_before_a_hold_is_tracked_is_noticed_then, form, renewers) {
    struct world w;
    const hf_options options = patient();
    world_begin(&w, &options);
    hf_lock_free(w.lock);
    w.lock = form_lock(w.client, form);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    by_del(&w);
    assert_true(is_lost(w.client, 1));
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    world_end(&w);
}

/* ---- How soon ---- */

#define AT_ONCE_MS 1000
#define TIMES 21

static int by_value(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* A machine that pauses for a second or two makes some of them late, not half. */
CASE(S79_a_deletion_is_reported_within_a_second) {
    OWN(world_end) struct world w;
    hf_lock *locks[TIMES];
    char names[TIMES][24];
    int64_t times[TIMES];
    const hf_options options = patient();
    world_begin(&w, &options);
    for (int i = 0; i < TIMES; i++) {
        snprintf(names[i], sizeof names[i], "held-%d", i);
        assert_int_equal(new_lock(w.client, i % 2 == 0 ? HF_PLAIN : HF_STRING, names[i],
                                  strlen(names[i]), &locks[i]),
                         HF_OK);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    assert_true(is_tracked(w.client, TIMES));
    for (uint64_t i = 0; i < TIMES; i++) {
        int64_t begin_ms = now_ms();
        cmd_ok(w.server, "DEL %s", names[i]);
        assert_true(is_lost(w.client, i + 1));
        times[i] = now_ms() - begin_ms;
        hf_lock_free(locks[i]);
    }
    qsort(times, TIMES, sizeof *times, by_value);
    assert_in_range(times[TIMES / 2], 0, AT_ONCE_MS - 1);
}

#define NEW_CLIENTS 9
#define ROUNDS_MAX 8
#define PAUSE_MS 50 /* a round in which this thread was kept from running for longer says nothing */

struct newcomer {
    hf_client *client;
    hf_lock *lock;
    int64_t granted_ms, took_ms; /* until its hold was tracked; -1: it is not yet */
};

static void newcomer_acquires(struct newcomer *newcomer) {
    assert_int_equal(hf_lock_acquire(newcomer->lock), HF_OK);
    newcomer->granted_ms = now_ms();
    newcomer->took_ms = -1;
}

/* Whether all are; notes when. */
static bool are_tracked(struct newcomer *newcomers) {
    int tracked = 0;
    for (int i = 0; i < NEW_CLIENTS; i++) {
        struct newcomer *newcomer = &newcomers[i];
        if (newcomer->took_ms < 0 && world_stats(newcomer->client).tracked == 1)
            newcomer->took_ms = now_ms() - newcomer->granted_ms;
        tracked += newcomer->took_ms >= 0;
    }
    return tracked == NEW_CLIENTS;
}

/* Waits until all are tracked. Returns how long this thread was kept from running meanwhile. */
static int64_t wait_tracked(struct newcomer *newcomers) {
    int64_t start_ms = now_ms(), last_ms = start_ms, longest_ms = 0;
    for (; !are_tracked(newcomers) && last_ms - start_ms < HANG_MS; wait_a_moment()) {
        int64_t at_ms = now_ms();
        longest_ms = at_ms - last_ms > longest_ms ? at_ms - last_ms : longest_ms;
        last_ms = at_ms;
    }
    assert_true(are_tracked(newcomers));
    return longest_ms;
}

static void newcomers_begin(struct newcomer *newcomers, struct server *server) {
    const hf_options options = patient();
    for (int i = 0; i < NEW_CLIENTS; i++) {
        own_text *name = text_of("new-%d", i);
        assert_int_equal(hf_open(server_url(server), &options, &newcomers[i].client), HF_OK);
        assert_int_equal(hf_lock_new(newcomers[i].client, name, &newcomers[i].lock), HF_OK);
    }
}

static void newcomers_end(struct newcomer *newcomers) {
    for (int i = 0; i < NEW_CLIENTS; i++) {
        assert_int_equal(hf_lock_release(newcomers[i].lock), HF_OK);
        hf_lock_free(newcomers[i].lock);
        assert_int_equal(hf_close(newcomers[i].client), HF_OK);
    }
}

static int64_t median_age(const struct newcomer *newcomers) {
    int64_t ages[NEW_CLIENTS];
    for (int i = 0; i < NEW_CLIENTS; i++)
        ages[i] = newcomers[i].took_ms;
    qsort(ages, NEW_CLIENTS, sizeof *ages, by_value);
    return ages[NEW_CLIENTS / 2];
}

/* The median age of the holds of new clients when they are tracked; of their first holds, or of their
 * second. -1: the machine paused. */
static int64_t tracked_at_ms(struct world *w, bool first) {
    struct newcomer newcomers[NEW_CLIENTS];
    newcomers_begin(newcomers, w->server);
    if (!first) {
        for (int i = 0; i < NEW_CLIENTS; i++)
            newcomer_acquires(&newcomers[i]);
        wait_tracked(newcomers);
        for (int i = 0; i < NEW_CLIENTS; i++)
            assert_int_equal(hf_lock_release(newcomers[i].lock), HF_OK);
    }
    for (int i = 0; i < NEW_CLIENTS; i++)
        newcomer_acquires(&newcomers[i]);
    bool calm = wait_tracked(newcomers) <= PAUSE_MS;
    newcomers_end(newcomers);
    return calm ? median_age(newcomers) : -1;
}

WORLD_CASE(S103_a_hold_is_tracked_within_a_second) {
    for (int first = 0; first < 2; first++) {
        int64_t age_ms = -1;
        for (int round = 0; round < ROUNDS_MAX && age_ms < 0; round++)
            age_ms = tracked_at_ms(w, first);
        if (age_ms < 0)
            skip();
        assert_in_range(age_ms, 0, 999);
    }
}

/* ---- Many ---- */

struct holds {
    hf_lock **locks;
    char (*names)[24];
    int len;
};

static struct holds hold_many(struct world *w, int len, any_kind kind) {
    struct holds holds = {calloc((size_t)len, sizeof(hf_lock *)), calloc((size_t)len, 24), len};
    assert_non_null(holds.locks);
    assert_non_null(holds.names);
    for (int i = 0; i < len; i++) {
        snprintf(holds.names[i], sizeof holds.names[i], "many-%u-%d", kind, i);
        assert_int_equal(
            new_lock(w->client, kind, holds.names[i], strlen(holds.names[i]), &holds.locks[i]),
            HF_OK);
        assert_int_equal(hf_lock_acquire(holds.locks[i]), HF_OK);
    }
    return holds;
}

static void drop_many(struct holds *holds) {
    for (int i = 0; i < holds->len; i++)
        hf_lock_free(holds->locks[i]);
    free(holds->locks);
    free(holds->names);
}

/* One in three is deleted, all in one step. */
static uint64_t delete_some(struct world *w, const struct holds *holds) {
    uint64_t deleted = 0;
    cmd_ok(w->server, "MULTI");
    for (int i = 0; i < holds->len; i += 3, deleted++)
        cmd_ok(w->server, "DEL %s", holds->names[i]);
    cmd_ok(w->server, "EXEC");
    return deleted;
}

/* The keys of all are read at once, not each with a command that asks for tracking. */
WORLD_CASE_WITH(S84_renewals_of_many_have_them_tracked_together, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    struct holds hashes = hold_many(w, 50, HF_PLAIN), strings = hold_many(w, 50, HF_STRING);
    assert_true(is_tracked(w->client, 100));
    struct monitor *monitor = monitor_start(w->server);
    uint64_t renewals = world_stats(w->client).renewals;
    assert_true(WAIT_FOR(world_stats(w->client).renewals >= renewals + 200, HANG_MS));
    size_t scripts = monitor_count(monitor, "\"EVALSHA\"");
    assert_in_range(monitor_count(monitor, "\"CACHING\""), 0, scripts);
    assert_in_range(monitor_count(monitor, "\"MGET\""), 1, scripts);
    assert_in_range(monitor_count(monitor, "\"EXISTS\""), 1, scripts);
    monitor_stop(monitor);
    assert_true(is_tracked(w->client, 100));
    uint64_t deleted = delete_some(w, &hashes) + delete_some(w, &strings);
    assert_true(is_lost(w->client, deleted));
    assert_true(is_tracked(w->client, 100 - deleted));
    drop_many(&hashes);
    drop_many(&strings);
}

#define DELETE_EVERY_FOURTH                                                                        \
    "for i = ARGV[3], ARGV[2] - 1, 4 do redis.call('del', ARGV[1] .. string.format('%d', i)) end " \
    "return redis.status_reply('OK')"

/* More at once than are noted one by one. */
CASE(S95_thousands_of_holds) {
    OWN(world_end) struct world w;
    const int len = getenv("HF_SOAK") != NULL ? 10000 : 2000;
    own_text *stem = text_of("many-%u-", (unsigned)HF_STRING);
    const hf_options options = patient();
    world_begin(&w, &options);
    struct holds holds = hold_many(&w, len, HF_STRING);
    assert_true(is_tracked(w.client, (uint64_t)len));
    uint64_t lost = 0;
    for (int i = 0; i < 2; i++) {
        cmd_ok(w.server, "EVAL %s 0 %s %d %d", DELETE_EVERY_FOURTH, stem, len, i);
        lost += (uint64_t)len / 4;
        assert_true(is_lost(w.client, lost));
        assert_true(is_tracked(w.client, (uint64_t)len - lost));
    }
    cmd_ok(w.server, "FLUSHALL");
    assert_true(is_lost(w.client, (uint64_t)len));
    drop_many(&holds);
}

/* When its table is full the server forgets keys, and does not report those that it forgets during a
 * command of the connection that asked for them. Then a renewal notices. */
WORLD_CASE_WITH(S95_a_full_table_loses_nothing, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    cmd_ok(w->server, "CONFIG SET tracking-table-max-keys 5");
    struct holds holds = hold_many(w, 30, HF_PLAIN);
    assert_true(is_tracked(w->client, 30));
    assert_true(is_lost(w->client, delete_some(w, &holds)));
    assert_true(WAIT_FOR(world_stats(w->client).renewals >= 40, HANG_MS));
    assert_int_equal(world_stats(w->client).losses, 10);
    cmd_ok(w->server, "CONFIG SET tracking-table-max-keys 1000000");
    drop_many(&holds);
}

#define TRACK_CASE(name) WORLD_CASE_WITH(name, patient())

/* A report is a doubt: the hold is looked at, and goes on. */
TRACK_CASE(S82_a_change_that_ends_nothing_is_no_loss) {
    form_hold(w, &forms[0]);
    for (uint64_t i = 1; i <= 3; i++) {
        cmd_ok(w->server, "HSET " WORLD_NAME " other 1");
        assert_true(WAIT_FOR(world_stats(w->client).track_false >= i, HANG_MS));
        assert_true(is_tracked(w->client, 1));
    }
    assert_int_equal(world_stats(w->client).losses, 0);
    by_del(w);
    assert_true(is_lost(w->client, 1));
}

/* What the server remembers of the last hold says nothing of the next. */
TRACK_CASE(S82_reports_about_the_last_hold_are_not_counted) {
    for (uint64_t i = 1; i <= 2; i++) {
        form_hold(w, &forms[0]);
        by_del(w);
        assert_true(is_lost(w->client, i));
        assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    }
    assert_int_equal(world_stats(w->client).track_false, 0);
}

/* The owner's own commands make the server forget the key, or report it: it is tracked
 * again. */
ROW_CASES(S83_own_commands_do_not_end_it, form, renewers) {
    OWN(world_end) struct world w;
    const hf_options options = patient();
    const bool reentrant = (form->kind & HF_NONREENTRANT) == 0;
    world_begin(&w, &options);
    form_hold(&w, form);
    for (int lane = 0; lane < 2; lane++) {
        if (lane == 0 && reentrant)
            assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        else if (reentrant)
            assert_int_equal(world_acquire_async(w.lock, 0, 0, NULL), HF_OK);
        assert_true(is_tracked(w.client, 1));
        if (lane == 0 && reentrant)
            assert_int_equal(hf_lock_release(w.lock), HF_OK);
        else if (reentrant)
            assert_int_equal(world_release_async(w.lock, hf_owner_self(), NULL), HF_OK);
        assert_true(is_tracked(w.client, 1));
        assert_int_equal(hf_lock_extend(w.lock, LONG_MS), HF_OK);
        assert_true(is_tracked(w.client, 1));
    }
    assert_int_equal(world_stats(w.client).losses, 0);
    by_del(&w);
    assert_true(is_lost(w.client, 1));
}

/* A renewal, too. */
ROW_CASES(S84_renewals_do_not_end_it, form, renewers) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    world_begin(&w, &options);
    form_hold(&w, form);
    assert_true(WAIT_FOR(world_stats(w.client).renewals >= 2, HANG_MS));
    assert_true(is_tracked(w.client, 1));
    assert_int_equal(world_stats(w.client).track_events, 0);
    by_del(&w);
    assert_true(is_lost(w.client, 1));
}

/* A thousand of them: the holds are looked at once a second, not a thousand times. */
TRACK_CASE(S85_many_flushes_are_few_looks) {
    form_hold(w, &forms[0]);
    struct monitor *monitor = monitor_start(w->server);
    int64_t begin_ms = now_ms();
    for (int i = 0; i < 1000; i++) {
        cmd_ok(w->server, "HSET " WORLD_NAME " %s 1", w->owner);
        cmd_ok(w->server, "SELECT 1");
        cmd_ok(w->server, "FLUSHDB");
        cmd_ok(w->server, "SELECT 0");
    }
    assert_true(WAIT_FOR(world_stats(w->client).track_events >= 1000, HANG_MS));
    assert_true(is_tracked(w->client, 1));
    size_t seconds = (size_t)(now_ms() - begin_ms) / 1000 + 1;
    assert_in_range(monitor_count(monitor, "\"HEXISTS\""), 1, 11 * seconds);
    monitor_stop(monitor);
    assert_int_equal(world_stats(w->client).losses, 0);
}

/* Without that it would be some ten times a second. */
TRACK_CASE(S106_a_key_that_changes_often_is_looked_at_once_a_second) {
    enum { SECONDS = 6 };
    form_hold(w, &forms[0]);
    struct monitor *monitor = monitor_start(w->server);
    int64_t begin_ms = now_ms();
    while (now_ms() - begin_ms < SECONDS * 1000) {
        cmd_ok(w->server, "HINCRBY " WORLD_NAME " other 1");
        linger(5);
    }
    size_t looks = monitor_count(monitor, "\"HEXISTS\"");
    monitor_stop(monitor);
    assert_in_range(looks, 1, 6 + 2 * (size_t)(now_ms() - begin_ms) / 1000);
    assert_int_equal(world_stats(w->client).losses, 0);
}

/* Every use changes their key. */
TRACK_CASE(S107_permits_are_not_tracked) {
    hf_permit_id id;
    assert_int_equal(hf_permits_set(w->permits, 1), HF_OK);
    assert_int_equal(hf_permits_acquire(w->permits, &id), HF_OK);
    struct monitor *monitor = monitor_start(w->server);
    assert_true(WAIT_FOR(server_questions_are_received(w->server), HANG_MS));
    assert_true(monitor_wait(monitor, "EVALSHA", 1, HANG_MS)); /* it was verified */
    assert_int_equal(monitor_count(monitor, "\"TRACKING\""), 0);
    assert_int_equal(world_stats(w->client).tracked, 0);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_OK);
    monitor_stop(monitor);
}

/* ---- Listeners ---- */

static void look(hf_lock *lock, hf_found kind) {
    own_info *info;
    assert_int_equal(hf_lock_inspect(lock, &info), HF_OK);
    assert_int_equal(info->kind, kind);
}

/* Of what its client has looked at, and once, until it looks again. */
TRACK_CASE(S57_a_listener_is_notified_of_a_change) {
    struct subscriber subscriber = subscriber_new(w->rival, WORLD_NAME);
    look(w->rival_lock, HF_FOUND_FREE);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_CHANGED, 1, HANG_MS));
    assert_string_equal(notification_log_last(subscriber.notification_log, HF_NOTIFY_CHANGED).name,
                        WORLD_NAME);
    assert_int_equal(hf_lock_extend(w->lock, LONG_MS), HF_OK);
    look(w->rival_lock, HF_FOUND_PLAIN);
    by_del(w);
    assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_CHANGED, 2, HANG_MS));
    by_overwriting(w);
    look(w->rival_lock, HF_FOUND_OTHER);
    by_flush(w);
    assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_CHANGED, 3, HANG_MS));
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_CHANGED), 3);
    subscriber_free(&subscriber);
}

/* Nor is anything asked for a client that does not listen. */
TRACK_CASE(S57_nobody_else_is) {
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    struct monitor *monitor = monitor_start(w->server);
    look(w->rival_lock, HF_FOUND_FREE);
    assert_int_equal(monitor_count(monitor, "CACHING"), 0);
    cmd_ok(w->server, "HSET " WORLD_NAME " somebody:1 1");
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_CHANGED), 0);
    monitor_stop(monitor);
    subscriber_free(&subscriber);
}

/* ---- Connections ---- */

static void kill_clients(struct world *w, const char *type) {
    cmd_ok(w->server, "CLIENT KILL TYPE %s", type);
}

TRACK_CASE(S86_a_lost_subscription_is_made_again) {
    form_hold(w, &forms[0]);
    kill_clients(w, "pubsub");
    assert_true(WAIT_FOR(world_stats(w->client).reconnects > 0, HANG_MS));
    assert_true(is_tracked(w->client, 1));
    by_del(w);
    assert_true(is_lost(w->client, 1));
}

/* What happens meanwhile is noticed when it is back. */
TRACK_CASE(S86_a_loss_without_a_subscription_is_noticed_with_the_next) {
    form_hold(w, &forms[8]);
    cmd_ok(w->server, "MULTI");
    kill_clients(w, "pubsub");
    by_del(w);
    cmd_ok(w->server, "EXEC");
    assert_true(is_lost(w->client, 1));
}

/* The connection that had the key tracked: the server forgets the key with it. */
TRACK_CASE(S87_a_lost_connection_is_made_again) {
    for (size_t i = 0; i < 2; i++) {
        form_hold(w, &forms[i == 0 ? 0 : 10]);
        kill_clients(w, "normal");
        assert_true(WAIT_FOR(world_stats(w->client).reconnects > i, HANG_MS));
        assert_true(is_tracked(w->client, 1));
        by_del(w);
        assert_true(is_lost(w->client, i + 1));
        assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    }
}

/* What happens meanwhile is noticed when it is back. */
TRACK_CASE(S87_a_loss_without_a_connection_is_noticed_with_the_next) {
    form_hold(w, &forms[8]);
    cmd_ok(w->server, "MULTI");
    kill_clients(w, "normal");
    by_del(w);
    cmd_ok(w->server, "EXEC");
    assert_true(is_lost(w->client, 1));
}

/* ---- Without it ---- */

/* Nobody is asked, and everything else is as ever. */
WORLD_CASE_WITH(S88_it_can_be_switched_off, patient(), options.flags = HF_NO_TRACKING) {
    own_monitor *monitor = monitor_start(w->server);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(WAIT_FOR(server_questions_are_received(w->server), HANG_MS));
    assert_true(monitor_wait(monitor, "EVALSHA", 2, HANG_MS)); /* it was verified */
    assert_int_equal(monitor_count(monitor, "TRACKING"), 0);
    assert_int_equal(monitor_count(monitor, "\"ID\""), 0);
    assert_int_equal(world_stats(w->client).tracked, 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

static const struct refused {
    const char *name, *rights;
} refused[] = {
    {"tracking", "-client|tracking"}, {"caching", "-client|caching"}, {"id", "-client|id"}};

/* Before 7.0 there are only rights to all of CLIENT. */
static void forbid(struct world *w, const char *rights) {
    redisReply *reply = cmd(w->server, "ACL SETUSER default %s", rights);
    bool known = reply->type != REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    if (!known)
        cmd_ok(w->server, "ACL SETUSER default -client");
}

static void hold_until_looked_at(struct world *w) {
    own_monitor *monitor = monitor_start(w->server);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(monitor_wait(monitor, WORLD_RENEW, 1, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* A client listens while it has an old hold. If the server refuses that there is nothing to see of
 * it: then the time has to do, and a machine that is slower tests less. */
static void hold_until_listening(struct world *w, bool may_listen) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    if (may_listen)
        assert_true(WAIT_FOR(server_questions_are_received(w->server), HANG_MS));
    else
        /* longer than it takes to listen where that is allowed; a refusal shows nothing */
        sleep_ms(1500);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* It is asked once, and remembered. */
static void assert_not_tracked(struct world *w, bool may_listen) {
    hold_until_listening(w, may_listen);
    hold_until_looked_at(w);
    own_monitor *monitor = monitor_start(w->server);
    hold_until_looked_at(w);
    assert_int_equal(monitor_count(monitor, "TRACKING"), 0);
    assert_int_equal(monitor_count(monitor, "HEXISTS"), 0); /* scripts call it in lower case */
    assert_int_equal(world_stats(w->client).tracked, 0);
}

ROW_CASES(S89_a_server_may_refuse_it, row, refused) {
    OWN(world_end) struct world w;
    const hf_options options = patient();
    world_begin(&w, &options);
    forbid(&w, row->rights);
    assert_not_tracked(&w, true);
    cmd_ok(w.server, "ACL SETUSER default +@all");
}

/* An older one, or a proxy in front of it. */
TRACK_CASE(S89_a_server_may_not_know_it) {
    static const char unknown[] = "-ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.\r\n";
    proxy_answer_instead(w->proxy, "TRACKING", unknown, strlen(unknown));
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_not_tracked(w, true);
    assert_int_equal(proxy_seen(w->proxy, "TRACKING"), 1);
}

/* Without a subscription the server reports nothing, and a hold that it does not report does not count. */
TRACK_CASE(S89_a_server_may_refuse_the_subscription) {
    cmd_ok(w->server, "ACL SETUSER default resetchannels &redisson*");
    assert_not_tracked(w, false);
    cmd_ok(w->server, "ACL SETUSER default allchannels");
}

/* Short holds cost nothing. */
TRACK_CASE(S90_short_holds_are_not_tracked) {
    own_monitor *monitor = monitor_start(w->server);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
    }
    assert_int_equal(monitor_count(monitor, "\"EVALSHA\""), 400);
    assert_int_equal(monitor_count(monitor, "TRACKING"), 0);
    assert_int_equal(monitor_count(monitor, "CACHING"), 0);
}

/* As long as nothing is asked of the server for them. */
TRACK_CASE(S90_no_hold_is_tracked_before_it_is_three_quarters_of_a_second_old) {
    struct monitor *monitor = monitor_start(w->server);
    int64_t begin_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(monitor_wait(monitor, "SUBSCRIBE", 1, HANG_MS));
    assert_true(now_ms() - begin_ms >= 749);
    assert_true(is_tracked(w->client, 1));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    hf_lock_free(w->lock);
    w->lock = form_lock(w->client, &forms[0]);
    monitor_clear(monitor);
    begin_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(monitor_wait(monitor, "HEXISTS", 1, HANG_MS)); /* scripts call it in lower case */
    assert_true(now_ms() - begin_ms >= 749);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    monitor_stop(monitor);
}

/* ---- Waiters ---- */

static void wait_for_foreign(struct world *w, struct world_caller *caller, const char *with) {
    hf_lock_free(w->lock);
    assert_int_equal(new_lock(w->client, HF_STRING, WORLD_NAME, strlen(WORLD_NAME), &w->lock),
                     HF_OK);
    cmd_ok(w->server, "SET " WORLD_NAME " " FOREIGN "%s", with);
    world_call_acquire(caller, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
}

/* How many keys the server remembers for its clients. */
static long long tracked_keys(struct server *server) {
    own_text *info = cmd_str(server, "INFO stats");
    const char *found = strstr(info, "\ntracking_total_keys:");
    return found != NULL ? strtoll(strchr(found, ':') + 1, NULL, 10) : 0;
}

/* The waiter attempts, subscribes, and has the key tracked by its second attempt; then it sleeps. */
static void assert_asleep(struct world *w, struct monitor *monitor) {
    assert_true(WAIT_FOR(tracked_keys(w->server) == 1, HANG_MS));
    assert_true(monitor_wait(monitor, ATTEMPT, 3, HANG_MS));
}

/* Redis before 7.0 does not show what is asked for. */
static void assert_asleep_again(struct monitor *monitor, bool shows_clients) {
    assert_true(monitor_wait(monitor, "\"SUBSCRIBE\"", 1, HANG_MS));
    assert_true(!shows_clients || monitor_wait(monitor, "\"CACHING\"", 1, HANG_MS));
}

static const struct foreign_end {
    const char *name, *with, *end;
} ends[] = {{"del", " PX 1800000", "DEL " WORLD_NAME},
            {"del_without_lease", "", "DEL " WORLD_NAME},
            {"flush", " PX 1800000", "FLUSHALL"},
            {"shortened", " PX 1800000", "PEXPIRE " WORLD_NAME " 1"}};

/* It attempts three times before it sleeps, and once when it is woken: polls would be many. */
ROW_CASES(S91_a_foreign_release_wakes_a_waiter, end, ends) {
    OWN(world_end) struct world w;
    struct world_caller caller;
    const hf_options options = patient();
    world_begin(&w, &options);
    own_monitor *monitor = monitor_start(w.server);
    wait_for_foreign(&w, &caller, end->with);
    assert_asleep(&w, monitor);
    /* The attempts of this time are counted: waiting for some would not show that there are no more. */
    sleep_ms(1000);
    assert_in_range(monitor_count(monitor, ATTEMPT), 3, 4);
    cmd_ok(w.server, end->end);
    assert_int_equal(world_join(&caller), HF_OK);
    assert_in_range(monitor_count(monitor, ATTEMPT), 4, 6);
}

/* The connection of the attempt has ended, and with it what it asked for. */
TRACK_CASE(S92_a_waiter_attempts_every_few_seconds_all_the_same) {
    struct world_caller caller;
    own_monitor *monitor = monitor_start(w->server);
    wait_for_foreign(w, &caller, "");
    assert_asleep(w, monitor);
    kill_clients(w, "normal");
    server_drop(w->server, WORLD_NAME);
    assert_int_equal(world_join(&caller), HF_OK);
}

/* The subscription is made again, and the key tracked for it. */
TRACK_CASE(S93_a_waiter_whose_subscription_is_lost_attempts) {
    struct world_caller caller;
    own_monitor *monitor = monitor_start(w->server);
    wait_for_foreign(w, &caller, "");
    assert_asleep(w, monitor);
    bool shows_clients = monitor_count(monitor, "\"CACHING\"") > 0;
    monitor_clear(monitor);
    kill_clients(w, "pubsub");
    assert_asleep_again(monitor, shows_clients);
    server_drop(w->server, WORLD_NAME);
    assert_int_equal(world_join(&caller), HF_OK);
}

/* As before there was tracking. */
ROW_CASES(S94_without_tracking_a_waiter_polls, row, refused) {
    OWN(world_end) struct world w;
    struct world_caller caller;
    const hf_options options = patient();
    world_begin(&w, &options);
    forbid(&w, row->rights);
    struct monitor *monitor = monitor_start(w.server);
    wait_for_foreign(&w, &caller, "");
    assert_true(monitor_wait(monitor, ATTEMPT, 12, HANG_MS));
    server_drop(w.server, WORLD_NAME);
    assert_int_equal(world_join(&caller), HF_OK);
    monitor_stop(monitor);
    cmd_ok(w.server, "ACL SETUSER default +@all");
}

/* An answer would have to be acknowledged by replicas, which a read in front of it is not. */
TRACK_CASE(S94_with_acks_a_waiter_polls) {
    struct world_caller caller;
    hf_acquire_options wait = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    wait.acks = HF_ACKS_REPORT;
    hf_lock_free(w->lock);
    assert_int_equal(new_lock(w->client, HF_STRING, WORLD_NAME, strlen(WORLD_NAME), &w->lock),
                     HF_OK);
    cmd_ok(w->server, "SET " WORLD_NAME " " FOREIGN);
    struct monitor *monitor = monitor_start(w->server);
    world_call_acquire(&caller, w->lock, wait);
    assert_true(monitor_wait(monitor, "\"EVALSHA\"", 12, HANG_MS));
    assert_int_equal(monitor_count(monitor, "\"CACHING\""), 0);
    server_drop(w->server, WORLD_NAME);
    assert_int_equal(world_join(&caller), HF_OK);
    monitor_stop(monitor);
}

/* All in one write, and nothing in between. */
TRACK_CASE(S91_the_attempt_on_the_wire) {
    struct world_caller caller;
    struct monitor *monitor = monitor_start(w->server);
    wait_for_foreign(w, &caller, "");
    assert_asleep(w, monitor);
    char *text = monitor_text(monitor), *list = cmd_str(w->server, "CLIENT LIST TYPE pubsub");
    char expected[256], id[32] = "", *at = strstr(text, "\"TRACKING\"");
    static const char *const next[] = {"\"CACHING\" \"YES\"", "\"PTTL\" \"" WORLD_NAME "\"",
                                       ATTEMPT};
    sscanf(list, "id=%31[0-9]", id);
    snprintf(expected, sizeof expected,
             "\"TRACKING\" \"ON\" \"REDIRECT\" \"%s\" \"OPTIN\" \"NOLOOP\"\n", id);
    if (at != NULL) { /* Redis before 7.0 does not show them */
        assert_int_equal(strncmp(at, expected, strlen(expected)), 0);
        for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
            char *line = strchr(at, '\n') + 1;
            at = strstr(line, next[i]);
            assert_true(at != NULL && memchr(line, '\n', (size_t)(at - line)) == NULL);
        }
    }
    free(text);
    free(list);
    server_drop(w->server, WORLD_NAME);
    assert_int_equal(world_join(&caller), HF_OK);
    monitor_stop(monitor);
}

RUN_CASES(world_start_server, world_stop_server)
