/*
 * A survey of a quorum: all servers' answers make one view, and a client that answers at all of
 * them is one client. Holders and waiters are reported as the client sees them, not per server.
 */
#include "joint/fleet.h"

struct seen {
    hf_client *client;
    unsigned missing; /* what is to be */
    hf_fleet *fleet;
};

/* Holder and waiter have answered, and all servers, or not all. */
static bool both_are_reported(void *arg) {
    struct seen *seen = arg;
    hf_fleet_free(seen->fleet);
    seen->fleet = NULL;
    assert_int_equal(hf_survey(seen->client, NULL, &seen->fleet), HF_OK);
    const hf_fleet *fleet = seen->fleet;
    return fleet->missing == seen->missing && fleet->locks_len == 1 &&
           fleet->locks[0]->waiters_len == 1 && fleet->locks[0]->holders_len == 1 &&
           fleet->locks[0]->holders[0]->presence == HF_PRESENCE_ALIVE;
}

static void check(const struct fleet *f, const hf_fleet_lock *lock, const hf_client *waiter) {
    const hf_fleet_party *holder = lock->holders[0];
    assert_string_equal(lock->name, FLEET_NAME);
    assert_string_equal(holder->owner, f->owner);
    assert_string_equal(holder->kind, "plain");
    assert_int_equal(holder->count, 1);
    assert_int_equal(holder->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    assert_true(holder->renewed);
    assert_false(lock->disputed);
    assert_string_equal(lock->waiters[0]->client->id, hf_client_id(waiter));
    assert_int_equal(lock->waiters[0]->remaining_ms, -1);
}

CASE(a_quorum_is_one_view) {
    OWN(fleet_end) struct fleet f;
    struct fleet_caller waiter;
    hf_options options = fleet_options();
    options.report_after_ms = 0;
    fleet_begin(&f, &options);
    own_client *asker = made(hf_open, f.direct_urls, &options);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    fleet_call_acquire(&waiter, f.rival_lock, (hf_acquire_options)HF_ACQUIRE_OPTIONS_INIT);
    struct seen seen = {.client = asker};
    assert_true(wait_until(both_are_reported, &seen, HANG_MS));
    check(&f, seen.fleet->locks[0], f.rival);

    server_kill(f.server[4]);
    seen.missing = HF_MISSING_LOCKS;
    assert_true(wait_until(both_are_reported, &seen, HANG_MS));
    check(&f, seen.fleet->locks[0], f.rival);
    assert_non_null(strstr(seen.fleet->missing_text, "of 5 servers did not answer"));
    hf_fleet_free(seen.fleet);

    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_int_equal(fleet_join(&waiter), HF_OK);
}

/* A silent server may have the same as the others, so a minority of those that answered may
 * count. */
static bool all_have_answered(void *arg) {
    struct seen *seen = arg;
    hf_fleet_free(seen->fleet);
    seen->fleet = NULL;
    assert_int_equal(hf_survey(seen->client, NULL, &seen->fleet), HF_OK);
    return (seen->fleet->missing & HF_MISSING_LOCKS) == 0;
}

/* So many servers have somebody's lock. */
static size_t holders_with(struct fleet *f, int servers) {
    struct seen seen = {.client = f->rival};
    for (int i = 0; i < servers; i++)
        cmd_int(f->server[i], "HSET " FLEET_NAME " eeeeeeee-0000-4000-8000-00000000000e:7 1");
    assert_true(wait_until(all_have_answered, &seen, HANG_MS));
    size_t holders = seen.fleet->locks_len > 0 ? seen.fleet->locks[0]->holders_len : 0;
    hf_fleet_free(seen.fleet);
    return holders;
}

/* It is about to be taken, or was not to be had. */
FLEET_CASE(a_hold_of_a_minority_is_none) {
    assert_int_equal(holders_with(f, MAJORITY - 1), 0);
    assert_int_equal(holders_with(f, MAJORITY), 1);
}

static bool times_are_reported(void *arg) {
    struct seen *seen = arg;
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    options.wanted = HF_WANT_HISTOGRAMS;
    hf_fleet_free(seen->fleet);
    assert_int_equal(hf_survey(seen->client, &options, &seen->fleet), HF_OK);
    for (size_t i = 0; i < seen->fleet->clients_len; i++)
        if (seen->fleet->clients[i]->names_len > 0)
            return true;
    return false;
}

/* One acquire at all servers is one acquire and one hold, whichever servers report it. */
FLEET_CASE(times_are_those_of_the_quorum) {
    hf_options options = fleet_options();
    options.report_after_ms = 0;
    own_client *asker = made(hf_open, f->direct_urls, NULL);
    own_client *client = made(hf_open, f->direct_urls, &options);
    own_lock *lock = made(hf_lock_new, client, "timed");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct seen seen = {.client = asker};
    assert_true(wait_until(times_are_reported, &seen, HANG_MS));
    for (size_t i = 0; i < seen.fleet->clients_len; i++) {
        const hf_fleet_client *reported = seen.fleet->clients[i];
        bool own = strcmp(reported->id, hf_client_id(client)) == 0;
        assert_int_equal(reported->names_len, own);
        assert_int_equal(reported->acquired, 0); /* that was not asked for */
        if (!own)
            continue;
        assert_string_equal(reported->names[0]->name, "timed");
        assert_int_equal(reported->names[0]->wait.count, 3);
        assert_int_equal(reported->names[0]->hold.count, 2);
    }
    hf_fleet_free(seen.fleet);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

FLEET_CASE(without_a_majority_there_is_none) {
    hf_fleet *fleet = NULL;
    for (int i = 0; i < MAJORITY; i++)
        server_kill(f->server[i]);
    assert_int_equal(hf_survey(f->rival, NULL, &fleet), HF_ENOQUORUM);
    assert_null(fleet);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
