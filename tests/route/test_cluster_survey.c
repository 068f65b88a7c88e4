/*
 * A survey of a cluster: all servers are asked for their locks, and every client answers once. With real
 * servers.
 */
#include "support/case.h"
#include "support/new_lock.h"
#include "support/shards.h"

#include <holdfast/holdfast.h>

#define LOCKS 24 /* some at each of three servers */

static struct shards *shards;

static int start(void **state) {
    static const struct shards_options options = {.partial = true};
    (void)state;
    shards = shards_start(&options);
    return 0;
}

static int stop(void **state) {
    (void)state;
    shards_free(shards);
    return 0;
}

static hf_client *open_one(int64_t report_after_ms) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 5000;
    options.watchdog_ms = 60000;
    options.report_after_ms = report_after_ms;
    return made(hf_open, shards_url(shards), &options);
}

static size_t reported_by_both(const hf_fleet *fleet) {
    size_t reported = 0;
    for (size_t i = 0; i < fleet->locks_len; i++)
        reported += fleet->locks[i]->holders_len == 1 &&
                    fleet->locks[i]->holders[0]->presence == HF_PRESENCE_ALIVE &&
                    fleet->locks[i]->holders[0]->seen_by == (HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    return reported;
}

struct seen {
    hf_client *client;
    hf_fleet *fleet;
};

static bool all_are_reported(void *arg) {
    struct seen *seen = arg;
    hf_fleet_free(seen->fleet);
    seen->fleet = NULL;
    assert_int_equal(hf_survey(seen->client, NULL, &seen->fleet), HF_OK);
    return reported_by_both(seen->fleet) == LOCKS && seen->fleet->missing == 0;
}

CASE(locks_of_all_servers_are_reported) {
    hf_client *client = open_one(0), *asker = open_one(1000);
    hf_lock *locks[LOCKS];
    for (int i = 0; i < LOCKS; i++) {
        own_text *name = text_of("spread-%d", i);
        assert_int_equal(hf_lock_new(client, name, &locks[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    struct seen seen = {.client = asker};
    assert_true(wait_until(all_are_reported, &seen, HANG_MS));
    assert_int_equal(seen.fleet->locks_len, LOCKS);
    for (size_t i = 0; i < seen.fleet->locks_len; i++)
        assert_false(seen.fleet->locks[i]->disputed);
    hf_fleet_free(seen.fleet);
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_close(asker), HF_OK);
}

/* Each name has two keys, and both are at one server. */
CASE(permits_of_all_servers_are_reported) {
    hf_client *client = open_one(-1), *asker = open_one(1000);
    hf_permits *permits[LOCKS];
    hf_permit_id ids[LOCKS];
    hf_fleet *fleet = NULL;
    bool set;
    for (int i = 0; i < LOCKS; i++) {
        own_text *name = text_of(i % 2 == 0 ? "pool-%d" : "pool-{%d}", i);
        assert_int_equal(hf_permits_new(client, name, &permits[i]), HF_OK);
        assert_int_equal(hf_permits_try_set(permits[i], 2, &set), HF_OK);
        assert_int_equal(hf_permits_acquire(permits[i], &ids[i]), HF_OK);
    }
    assert_int_equal(hf_survey(asker, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->locks_len, LOCKS);
    for (size_t i = 0; i < fleet->locks_len; i++) {
        assert_string_equal(fleet->locks[i]->kind, "permits");
        assert_int_equal(fleet->locks[i]->available, 1);
        assert_int_equal(fleet->locks[i]->holders_len, 1);
    }
    hf_fleet_free(fleet);
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(hf_permits_release(permits[i], &ids[i]), HF_OK);
        hf_permits_free(permits[i]);
    }
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_close(asker), HF_OK);
}

static bool holder_is_alive(void *arg) {
    own_fleet *fleet = NULL;
    assert_int_equal(hf_survey(arg, NULL, &fleet), HF_OK);
    bool alive = fleet->missing == 0 && fleet->locks_len == 1 &&
                 fleet->locks[0]->holders[0]->presence == HF_PRESENCE_ALIVE;
    return alive;
}

/* Whichever is the first: it does not let this user ask, and the next but one does. */
CASE(a_client_unreachable_at_one_server_is_asked_at_another) {
    static const char *const refusals[] = {"resetchannels", "-publish", "-subscribe"};
    hf_client *client = open_one(0), *asker;
    hf_options options = HF_OPTIONS_INIT;
    options.user = "asker";
    options.password = "secret";
    hf_lock *lock = made(hf_lock_new, client, "kept");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    for (int i = 0; i < SHARDS; i++) {
        for (int k = 0; k < SHARDS; k++)
            cmd_ok(shards_server(shards, k), "ACL SETUSER asker reset on >secret ~* +@all %s %s",
                   "allchannels", k != i ? refusals[i] : "+@all");
        assert_int_equal(hf_open(shards_url(shards), &options, &asker), HF_OK);
        assert_true(wait_until(holder_is_alive, asker, HANG_MS));
        assert_int_equal(hf_close(asker), HF_OK);
    }
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
}

static bool all_answer(void *arg) {
    own_fleet *fleet = NULL;
    return hf_survey(arg, NULL, &fleet) == HF_OK && fleet->missing == 0;
}

/* The answers of the other servers are reported, and the missing server is named. */
CASE(a_dead_server_is_missing) {
    own_client *client = open_one(1000);
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.limit_ms = HANG_MS;
    assert_true(wait_until(all_answer, client, HANG_MS));
    server_kill(shards_server(shards, 1));
    int err = hf_survey(client, &options, &fleet);
    if (err == HF_OK) { /* else it was the first that was asked */
        assert_int_equal(fleet->missing & HF_MISSING_LOCKS, HF_MISSING_LOCKS);
        assert_non_null(strstr(fleet->missing_text, "did not answer"));
        hf_fleet_free(fleet);
    }
}

RUN_CASES(start, stop)
