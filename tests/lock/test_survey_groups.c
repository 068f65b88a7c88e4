/*
 * Groups of values in a survey, as the server has them: ours, and Java's, written here by hand as it does.
 */
#include "lock/surveys.h"

#define JAVA "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d"
#define VALUE_1 "7pNoDdizVy2xY792MaFv+w"
#define VALUE_2 "kIX2DFOX4IWct7G7K6tV9A"

WORLD_CASE_WITH(a_group_of_ours, reporting(0)) {
    struct world_caller waiter;
    const hf_bytes some[] = {{"one", 3}, {"two", 3}}, one[] = {{"two", 3}};
    own_lock *held = made(hf_lock_new_group, w->client, "group", 5, some, 2);
    own_lock *wanted = made(hf_lock_new_group, w->rival, "group", 5, one, 1);
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    world_call_acquire(&waiter, wanted, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    struct reported reported = {
        .client = w->client, .name = "group", .holders = 1, .waiters = 1, .listeners = 1};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    const hf_fleet_lock *lock = find(reported.fleet, "group");
    assert_string_equal(lock->kind, "group");
    assert_false(lock->disputed);
    assert_int_equal(lock->holders_len, 1);
    const hf_fleet_party *holder = lock->holders[0];
    assert_string_equal(holder->owner, w->owner);
    assert_int_equal(holder->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    assert_int_equal(holder->count, 2);
    assert_true(lock->ttl_ms > 0);
    assert_int_equal(lock->available, -1);
    hf_fleet_free(reported.fleet);
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
}

static void hold_value(struct server *server, const char *field, const char *owner,
                       const char *ends, int count) {
    assert_int_equal(cmd_int(server, "HSET group %s %s %s:%s:expire_time %s %s:%s:lock_count %d",
                             field, owner, field, owner, ends, field, owner, count),
                     3);
}

/* What others left behind there, and what has ended, holds nothing. */
WORLD_CASE(a_group_of_java) {
    char later[32], latest[32], ended[32];
    score_after(w->server, 20000, later);
    score_after(w->server, 50000, latest);
    score_after(w->server, -5000, ended);
    hold_value(w->server, VALUE_1, JAVA ":7", later, 1);
    hold_value(w->server, VALUE_2, JAVA ":7", latest, 3);
    hold_value(w->server, "nMtxa73M/ZjwHCcA4AdYhg", JAVA ":8", ended, 1);
    assert_int_equal(cmd_int(w->server, "HSET group " VALUE_1 ":" JAVA ":9:expire_time %s", later),
                     1);
    cmd_ok(w->server, "HSET other " VALUE_1 " joe " VALUE_2 " jim");
    own_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 1);
    const hf_fleet_lock *lock = find(fleet, "group");
    assert_string_equal(lock->kind, "group");
    assert_int_equal(lock->holders_len, 1);
    assert_string_equal(lock->holders[0]->owner, JAVA ":7");
    assert_int_equal(lock->holders[0]->count, 3);
    assert_true(lock->holders[0]->remaining_ms > 40000 && lock->holders[0]->remaining_ms <= 50000);
    assert_int_equal(lock->left_out, 0);
}

WORLD_CASE(a_large_group_is_reported_in_part) {
    static const char fill[] =
        "for i = 1, 1000 do local f, o = string.format('%022d', i), '" JAVA ":' .. i "
        "redis.call('hset', 'group', f, o, f .. ':' .. o .. ':expire_time', '4102444800000', "
        "f .. ':' .. o .. ':lock_count', '1') end return 1";
    assert_int_equal(cmd_int(w->server, "EVAL %s 0", fill), 1);
    own_fleet *fleet = survey(w->rival, NULL);
    const hf_fleet_lock *lock = find(fleet, "group");
    assert_non_null(lock);
    assert_true(lock->holders_len > 0 && lock->holders_len <= 100);
    assert_int_equal((int64_t)lock->holders_len + lock->left_out, 1000);
}

/* How often the server has run a command. */
static long long count_of(struct server *server, const char *command) {
    char wanted[64];
    own_reply *reply = cmd(server, "INFO commandstats");
    snprintf(wanted, sizeof wanted, "cmdstat_%s:calls=", command);
    const char *at = strstr(reply->str, wanted);
    return at != NULL ? strtoll(at + strlen(wanted), NULL, 10) : 0;
}

/* The server does nothing else while a script runs: what others keep in hashes is not read for one
 * field of it, and what is large has a script of its own. */
WORLD_CASE(no_script_has_much_to_do) {
    static const char fill[] =
        "for i = 1, 20 do for f = 1, 300 do "
        "redis.call('hset', 'foreign' .. i, 'field' .. f, 'x') "
        "redis.call('hset', 'read' .. i, 'mode', 'read', '" JAVA ":' .. f, '1') "
        "end end return 1";
    assert_int_equal(cmd_int(w->server, "EVAL %s 0", fill), 1);
    cmd_ok(w->server, "CONFIG RESETSTAT");
    hf_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 20);
    for (size_t i = 0; i < fleet->locks_len; i++) {
        assert_int_equal(fleet->locks[i]->kind[0], 'r');
        assert_int_equal((int64_t)fleet->locks[i]->holders_len + fleet->locks[i]->left_out, 300);
    }
    hf_fleet_free(fleet);
    assert_int_equal(count_of(w->server, "hscan"), 20);
    assert_int_equal(count_of(w->server, "hgetall"), 0);
    assert_true(count_of(w->server, "eval") >= 20);
}

RUN_CASES(world_start_server, world_stop_server)
