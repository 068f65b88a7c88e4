/* String locks on a quorum: the tokens at the servers, other libraries' values there, loss, refusals; and
 * servers that come back empty. */
#include "joint/fleet.h"

#define NAME "shared"

/* A string lock on each side; of `name`, with these flags. */
static hf_lock *lock_of(hf_client *client, hf_kind kind, unsigned flags) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    options.flags = flags;
    return made(hf_lock_new_with, client, NAME, strlen(NAME), &options);
}

static hf_lock *string_of(hf_client *client) {
    return lock_of(client, HF_STRING, 0);
}

/* How many servers that are up have a value that begins like this. */
static int stored(struct fleet *f, const char *start) {
    int count = 0;
    for (int i = 0; i < FLEET; i++) {
        own_text *value = server_pid(f->server[i]) != 0 ? cmd_str(f->server[i], "GET " NAME) : NULL;
        count += value != NULL && strncmp(value, start, strlen(start)) == 0;
    }
    return count;
}

static bool wait_stored(struct fleet *f, const char *start, int servers) {
    return WAIT_FOR(stored(f, start) == servers, HANG_MS);
}

static bool wait_gone(struct fleet *f) {
    return wait_stored(f, "", 0);
}

/* All servers vote for this hold: then any two make up for one. A server that votes is proved again by
 * the nested acquire behind that. */
static void all_vote(hf_lock *lock) {
    hf_result result = HF_RESULT_INIT;
    for (int again = 0; again < 2;) {
        assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        again += result.votes == FLEET;
    }
}

/* Another library's hold, with one value at all of them. */
static void occupy(struct fleet *f, int from, int below) {
    for (int i = from; i < below; i++)
        cmd_ok(f->server[i], "SET " NAME " 5f3a PX 60000");
}

static void vacate(struct fleet *f, int from, int below) {
    for (int i = from; i < below; i++)
        cmd_ok(f->server[i], "DEL " NAME);
}

FLEET_CASE(S60_a_hold_is_a_string_at_each_server) {
    hf_lock *lock = string_of(f->client), *rival = string_of(f->rival);
    hf_result result = HF_RESULT_INIT;
    int64_t count;
    bool yes;
    assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
    assert_true(result.votes >= MAJORITY);
    assert_int_equal(result.servers, FLEET);
    assert_true(result.remaining_ms <= 60000 - 602 && result.remaining_ms > 50000);
    assert_true(wait_stored(f, f->owner, FLEET));
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);

    assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
    assert_int_equal(result.count, 2);
    assert_int_equal(hf_lock_hold_count(lock, &count), HF_OK);
    assert_int_equal(count, 2);
    assert_int_equal(hf_lock_is_mine(rival, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_extend(lock, 600000), HF_OK);
    for (int i = 0; i < FLEET; i++)
        assert_true(WAIT_FOR(pttl(f->server[i], NAME) > 500000, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_gone(f));
    assert_int_equal(hf_lock_release(lock), HF_ENOTOWNER);
    hf_lock_free(lock);
    hf_lock_free(rival);
}

FLEET_CASE(S61_a_waiter_enters_behind_a_release) {
    hf_lock *lock = string_of(f->client), *rival = string_of(f->rival);
    struct fleet_caller caller;
    assert_int_equal(hf_lock_acquire(rival), HF_OK);
    fleet_call_acquire(&caller, lock, fleet_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(HOLDS_FOR(!atomic_load(&caller.done), 300));
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_int_equal(fleet_join(&caller), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    hf_lock_free(lock);
    hf_lock_free(rival);
}

FLEET_CASE(S62_another_librarys_majority_keeps_it_out) {
    own_lock *lock = string_of(f->client);
    struct fleet_caller caller;
    bool yes, broken;
    hf_lock_info *info;
    occupy(f, 0, FLEET);
    assert_int_equal(hf_lock_try(lock), HF_EBUSY);
    assert_int_equal(hf_lock_is_locked(lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_inspect(lock, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_STRING);
    assert_int_equal(info->holders_len, 1);
    hf_lock_info_free(info);
    assert_int_equal(stored(f, "5f3a"), FLEET);

    fleet_call_acquire(&caller, lock, fleet_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(HOLDS_FOR(!atomic_load(&caller.done), 300));
    vacate(f, 0, FLEET); /* nobody publishes */
    assert_int_equal(fleet_join(&caller), HF_OK);
    assert_true(WAIT_FOR(stored(f, hf_client_id(f->client)) == FLEET, HANG_MS));
    own_lock *rival = string_of(f->rival);
    assert_int_equal(hf_lock_break(rival, &broken), HF_OK);
    assert_true(broken);
    assert_true(wait_gone(f));

    occupy(f, 0, FLEET); /* the operator's way to free what another library left */
    assert_int_equal(hf_lock_break(rival, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(hf_lock_release(rival), HF_OK);
}

FLEET_CASE(S63_another_librarys_minority_does_not) {
    own_lock *lock = string_of(f->client);
    occupy(f, 1, 3);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(stored(f, "5f3a"), 2);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_stored(f, f->owner, 0));
    assert_int_equal(stored(f, "5f3a"), 2); /* what is not ours stays */
    vacate(f, 1, 3);
}

FLEET_CASE(S64_a_majority_that_lost_it_is_a_loss) {
    own_lock *lock = string_of(f->client);
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(wait_stored(f, f->owner, FLEET));
    occupy(f, 0, 3); /* as ShedLock does */
    assert_int_equal(hf_lock_extend(lock, 60000), HF_ELOST);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(wait_stored(f, f->owner, 0));
    assert_int_equal(stored(f, "5f3a"), 3);
    assert_int_equal(hf_lock_release(lock), HF_ENOTOWNER);
    vacate(f, 0, 3);
}

/* It is given back its hold under another token: the last one is never used again. */
FLEET_CASE(S65_a_server_that_lost_it_is_asked_again) {
    own_lock *lock = string_of(f->client);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(wait_stored(f, f->owner, FLEET));
    all_vote(lock);
    char *first = cmd_str(f->server[2], "GET " NAME);
    cmd_ok(f->server[2], "DEL " NAME);
    assert_int_equal(hf_lock_extend(lock, 60000), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 60000), HF_OK);
    assert_true(wait_stored(f, f->owner, FLEET));
    char *second = cmd_str(f->server[2], "GET " NAME);
    assert_string_not_equal(first, second);
    free(first);
    free(second);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_gone(f));
}

FLEET_CASE(S66_a_token_of_the_callers_choice_at_all_servers) {
    hf_lock *lock = string_of(f->client), *plain = lock_of(f->client, HF_PLAIN, 0);
    hf_acquire_options options = fleet_wait_for(HANG_MS, 60000);
    char handle[HF_HANDLE_MAX];
    options.string_token = "web-7";
    assert_int_equal(hf_lock_acquire_with(plain, &options, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
    assert_true(wait_stored(f, "web-7", FLEET));
    assert_int_equal(hf_lock_handle(lock, 0, handle, sizeof handle), HF_OK);
    assert_string_equal(handle, "web-7");
    all_vote(lock);
    cmd_ok(f->server[1], "DEL " NAME);
    assert_int_equal(hf_lock_extend(lock, 60000), HF_OK);
    assert_true(wait_stored(f, "web-7", FLEET)); /* asked again under the same */
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_gone(f));
    assert_int_equal(hf_lock_acquire(lock), HF_OK); /* the next hold has one of its own */
    assert_true(wait_stored(f, f->owner, FLEET));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(plain);
    hf_lock_free(lock);
}

FLEET_CASE(S67_strings_and_hashes_refuse_each_other) {
    hf_lock *lock = string_of(f->client), *plain = lock_of(f->client, HF_PLAIN, 0), *once;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(wait_stored(f, f->owner, FLEET));
    assert_int_equal(hf_lock_try(plain), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_remaining_ms(plain), 0);
    assert_true(hf_lock_remaining_ms(lock) > 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_gone(f));
    assert_int_equal(hf_lock_acquire(plain), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(plain), HF_OK);

    once = lock_of(f->client, HF_STRING, HF_NONREENTRANT);
    assert_true(WAIT_FOR(hf_lock_try(once) == HF_OK, HANG_MS));
    assert_int_equal(hf_lock_try(once), HF_EDEADLK);
    assert_int_equal(hf_lock_release(once), HF_OK);
    hf_lock_free(once);
    options.kind = HF_STRING;
    options.flags = HF_FENCED;
    assert_int_equal(hf_lock_new_with(f->client, NAME, strlen(NAME), &options, &once), HF_ENOTSUP);
    options.flags = HF_SPIN;
    assert_int_equal(hf_lock_new_with(f->client, NAME, strlen(NAME), &options, &once), HF_ENOTSUP);
    hf_lock_free(plain);
    hf_lock_free(lock);
}

/* Its cohort is not that of the plain lock of that name. */
FLEET_CASE(S68_threads_pass_it_on) {
    hf_lock *lock = lock_of(f->client, HF_STRING, HF_COHORT), *rival = string_of(f->rival);
    hf_lock *plain = lock_of(f->client, HF_PLAIN, HF_COHORT);
    hf_acquire_options eleven = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *next;
    eleven.owner = 11;
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(WAIT_FOR(stored(f, hf_client_id(f->client)) == FLEET, HANG_MS));
    assert_int_equal(hf_lock_try(plain), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_acquire_start(lock, &eleven, NULL, NULL, &next), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(joined(next, NULL), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(lock, 11), HF_OK);
    assert_true(wait_gone(f));
    hf_lock_free(plain);
    hf_lock_free(rival);
    hf_lock_free(lock);
}

/* A reply is lost at each of them, or all come late: what is left behind is deleted. */
FLEET_CASE(S69_lost_replies_leave_nothing) {
    own_lock *lock = string_of(f->client);
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f->proxy[i], f->owner);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(wait_stored(f, f->owner, FLEET));
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f->proxy[i], f->owner);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_gone(f));

    hf_acquire_options brief = fleet_wait_for(0, 1500);
    for (int i = 0; i < FLEET; i++)
        proxy_hold_request(f->proxy[i], "PXAT");
    int err = hf_lock_acquire_with(lock, &brief, NULL);
    for (int i = 0; i < FLEET; i++)
        (void)proxy_release_held(f->proxy[i]);
    if (err == HF_OK)
        assert_int_equal(hf_lock_release(lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "PERSIST " NAME);
    assert_true(wait_gone(f)); /* although no lease ends there any more */
}

#define GUARD_MS 4000

/* Three hold it, one of them restarts empty: with the guard no other client of ours enters. A client of
 * another library does, since it has no guard (docs/strings.md says so). */
CASE(S70_the_guard_binds_us_and_nobody_else) {
    OWN(fleet_end) struct fleet f;
    hf_options options = fleet_options();
    options.restart_guard_ms = options.watchdog_ms = GUARD_MS;
    fleet_begin(&f, &options);
    hf_lock *lock = string_of(f.client), *rival = string_of(f.rival);
    proxy_refuse(f.proxy[3], true);
    proxy_refuse(f.proxy[4], true);
    (void)proxy_cut_all(f.proxy[3]);
    (void)proxy_cut_all(f.proxy[4]);
    /* the guard of servers that have been up for a moment only ends first */
    assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
    assert_int_equal(stored(&f, f.owner), 3);
    proxy_refuse(f.proxy[0], true); /* the holder does not give it back its token */
    (void)proxy_cut_all(f.proxy[0]);
    server_restart(f.server[0]);
    hf_lock *young_lock;
    hf_client *young = made(hf_open, f.direct_urls, &options);
    young_lock = string_of(young);
    int err = hf_lock_try(young_lock);
    assert_true(err == HF_ENOQUORUM || err == HF_EBUSY);
    assert_true(WAIT_FOR(stored(&f, hf_client_id(young)) == 0, HANG_MS));
    assert_int_equal(stored(&f, f.owner), 2);
    /* another library has a majority now, beside the holder */
    int others = 0;
    for (int i = 0; i < FLEET; i++) {
        own_reply *reply = cmd(f.server[i], "SET " NAME " 5f3a NX PX 60000");
        others += reply->type == REDIS_REPLY_STATUS;
    }
    assert_int_equal(others, 3);
    hf_lock_free(young_lock);
    assert_int_equal(hf_close(young), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
