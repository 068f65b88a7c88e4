/*
 * Adopting: a hold that another client has acquired becomes this one's, by its handle.
 *
 * The rival acquires and the world's client adopts, as one process hands over to the next. What may
 * go wrong with a handle is here too: that it is none, that it is of another lock or kind, that
 * what it stood for is gone, and that two use it.
 */
#include "support/world.h"

#define OTHER_MS 20000 /* the rival's lease: less than the adopter's watchdog, which is 60 s */

static int acquire_for(hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(0, lease_ms);
    return hf_lock_acquire_with(lock, &options, NULL);
}

static hf_result adopt(hf_lock *lock, const char *handle, int64_t lease_ms) {
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_adopt(lock, handle, lease_ms, &result), HF_OK);
    assert_true(result.owner > UINT32_MAX);
    return result;
}

static int adopt_error(hf_lock *lock, const char *handle) {
    return hf_lock_adopt(lock, handle, HF_WATCHDOG, NULL);
}

WORLD_CASE(it_is_kept_and_given_back) {
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result result = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    assert_int_equal(result.count, 1);
    assert_true(result.remaining_ms > OTHER_MS);
    assert_true(pttl(w->server, WORLD_NAME) > OTHER_MS);
    assert_int_equal(world_count(w, w->rival_owner), 1); /* the handle is as good as before */
    assert_true(hf_lock_remaining_ms_as(w->lock, result.owner) > OTHER_MS);
    bool mine = false;
    assert_int_equal(hf_lock_is_mine_as(w->lock, result.owner, &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(world_stats(w->client).holds, 1);

    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ELOST);
}

WORLD_CASE(a_client_that_is_gone_leaves_its_hold) {
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_lock_free(w->rival_lock);
    assert_int_equal(hf_close(w->rival), HF_OK);
    w->rival_lock = NULL;
    w->rival = NULL;
    hf_result result = adopt(w->lock, w->rival_owner, OTHER_MS);
    assert_int_equal(hf_lock_extend_as(w->lock, result.owner, 2 * OTHER_MS), HF_OK);
    assert_true(pttl(w->server, WORLD_NAME) > OTHER_MS);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_true(world_free(w));
}

WORLD_CASE(its_count_comes_with_it) {
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result result = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    assert_int_equal(result.count, 2);
    hf_acquire_options once_more = world_wait_as(result.owner, 0, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_with(w->lock, &once_more, NULL), HF_OK);
    for (long long left = 2; left >= 0; left--) {
        assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
        assert_int_equal(world_count(w, w->rival_owner), left);
    }
    assert_true(world_free(w));
}

WORLD_CASE(twice_is_once) {
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result first = adopt(w->lock, w->rival_owner, OTHER_MS);
    hf_result second = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    assert_true(first.owner == second.owner);
    assert_int_equal(second.count, 1);
    assert_true(second.remaining_ms > OTHER_MS);
    assert_int_equal(hf_lock_release_as(w->lock, first.owner), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(adopt_error(w->lock, w->rival_owner), HF_ENOTOWNER);
}

/* An owner's number serves whatever it holds, and is nobody's when it holds nothing. */
WORLD_CASE(its_owner_may_hold_other_locks) {
    own_lock *other;
    assert_int_equal(hf_lock_new(w->client, "other", &other), HF_OK);
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result result = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    hf_acquire_options options = world_wait_as(result.owner, 0, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_with(other, &options, NULL), HF_OK);
    assert_int_equal(cmd_int(w->server, "HEXISTS other %s", w->rival_owner), 1);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_int_equal(hf_lock_release_as(other, result.owner), HF_OK);
    assert_int_equal(hf_lock_release_as(other, result.owner), HF_ENOTOWNER);
    assert_int_equal(world_keys(w->server), 0);
}

WORLD_CASE(two_clients_with_one_handle) {
    own_client *third = made(hf_open, server_url(w->server), NULL);
    own_lock *lock = made(hf_lock_new, third, WORLD_NAME);
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result one = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    hf_result two = adopt(lock, w->rival_owner, HF_WATCHDOG);
    assert_int_equal(hf_lock_release_as(lock, two.owner), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, one.owner), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w->lock, one.owner), HF_ENOTOWNER);
}

WORLD_CASE(missing_objects) {
    own_lock *elsewhere;
    assert_int_equal(adopt_error(w->lock, w->rival_owner), HF_ENOTOWNER);
    hf_acquire_options brief = world_wait_for(0, 100);
    world_acquire_brief(w->rival_lock, &brief);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(adopt_error(w->lock, w->rival_owner), HF_ENOTOWNER);

    assert_int_equal(hf_lock_new(w->client, "elsewhere", &elsewhere), HF_OK);
    assert_int_equal(hf_lock_acquire(elsewhere), HF_OK);
    assert_int_equal(adopt_error(elsewhere, w->rival_owner), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(elsewhere), HF_OK);
    cmd_ok(w->server, "SET elsewhere text");
    assert_int_equal(adopt_error(elsewhere, w->rival_owner), HF_EWRONGTYPE);
}

WORLD_CASE(bad_handles) {
    static const char *const texts[] = {
        "",
        ":",
        "1",
        ":1",
        "0123abcd-0123-0123-0123-0123456789ab",
        "0123abcd-0123-0123-0123-0123456789ab:",
        "0123abcd-0123-0123-0123-0123456789ab:0",
        "0123abcd-0123-0123-0123-0123456789ab:01",
        "0123abcd-0123-0123-0123-0123456789ab:-1",
        "0123abcd-0123-0123-0123-0123456789ab:+1",
        "0123abcd-0123-0123-0123-0123456789ab: 1",
        "0123abcd-0123-0123-0123-0123456789ab:1 ",
        "0123abcd-0123-0123-0123-0123456789ab:1:write",
        "0123abcd-0123-0123-0123-0123456789ab:18446744073709551616",
        "0123abcd-0123-0123-0123-0123456789ab:99999999999999999999999999999999999999999999999999999",
        "0123ABCD-0123-0123-0123-0123456789AB:1",
        "0123abcd00123-0123-0123-0123456789ab:1",
        "0123abcd-0123-0123-0123-0123456789a:1",
        "mode",
        "0123abcd-0123-0123-0123-01234567\r\nab:1",
    };
    uint64_t commands = world_stats(w->client).commands;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(adopt_error(w->lock, texts[i]), HF_EINVAL);
    assert_int_equal(adopt_error(w->lock, NULL), HF_EINVAL);
    assert_int_equal(adopt_error(NULL, w->rival_owner), HF_EINVAL);
    assert_int_equal(hf_lock_adopt(w->lock, w->rival_owner, -1, NULL), HF_EINVAL);
    hf_result wrong_size = {.size = 1};
    assert_int_equal(hf_lock_adopt(w->lock, w->rival_owner, 0, &wrong_size), HF_EINVAL);
    assert_int_equal(world_stats(w->client).commands, commands);
    /* as large as it can be, and nobody's */
    assert_int_equal(
        adopt_error(w->lock, "0123abcd-0123-0123-0123-0123456789ab:18446744073709551615"),
        HF_ENOTOWNER);
}

/* ---- Kinds ---- */

static hf_lock *lock_of(hf_client *client, hf_kind kind, unsigned flags) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    options.flags = flags;
    assert_int_equal(hf_lock_new_with(client, WORLD_NAME, strlen(WORLD_NAME), &options, &lock),
                     HF_OK);
    return lock;
}

WORLD_CASE(every_kind_that_has_a_handle) {
    static const struct {
        hf_kind kind;
        unsigned flags;
    } kinds[] = {
        {HF_PLAIN, HF_NONREENTRANT}, {HF_PLAIN, HF_SPIN}, {HF_PLAIN, HF_FENCED}, {HF_FAIR, 0},
        {HF_FAIR, HF_NONREENTRANT},  {HF_READ, 0},        {HF_WRITE, 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        own_lock *theirs = lock_of(w->rival, kinds[i].kind, kinds[i].flags);
        own_lock *ours = lock_of(w->client, kinds[i].kind, kinds[i].flags);
        bool locked = true;
        assert_int_equal(acquire_for(theirs, OTHER_MS), HF_OK);
        hf_result result = adopt(ours, w->rival_owner, HF_WATCHDOG);
        assert_int_equal(result.count, 1);
        assert_true(pttl(w->server, WORLD_NAME) > OTHER_MS);
        assert_int_equal(hf_lock_release_as(ours, result.owner), HF_OK);
        assert_int_equal(hf_lock_is_locked(ours, &locked), HF_OK);
        assert_false(locked);
        assert_int_equal(hf_lock_release(theirs), HF_ELOST);
    }
}

WORLD_CASE(a_fenced_one_draws_a_token) {
    own_lock *theirs = lock_of(w->rival, HF_PLAIN, HF_FENCED);
    own_lock *ours = lock_of(w->client, HF_PLAIN, HF_FENCED);
    hf_acquire_options options = world_wait_for(0, OTHER_MS);
    hf_result acquired = HF_RESULT_INIT;
    int64_t token = 0;
    assert_int_equal(hf_lock_acquire_with(theirs, &options, &acquired), HF_OK);
    hf_result result = adopt(ours, w->rival_owner, HF_WATCHDOG);
    assert_true(result.token > acquired.token);
    assert_int_equal(hf_lock_token_as(ours, result.owner, &token), HF_OK);
    assert_int_equal(token, result.token);
    assert_int_equal(hf_lock_release_as(ours, result.owner), HF_OK);
}

WORLD_CASE(of_another_kind) {
    hf_lock *read = lock_of(w->client, HF_READ, 0), *write = lock_of(w->client, HF_WRITE, 0);
    own_lock *their_read = lock_of(w->rival, HF_READ, 0);
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    assert_int_equal(adopt_error(read, w->rival_owner), HF_EWRONGTYPE);
    assert_int_equal(adopt_error(write, w->rival_owner), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(acquire_for(their_read, OTHER_MS), HF_OK);
    assert_int_equal(adopt_error(w->lock, w->rival_owner), HF_EWRONGTYPE);
    assert_int_equal(adopt_error(write, w->rival_owner), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(their_read), HF_OK);
    hf_lock_free(read);
    hf_lock_free(write);
}

WORLD_CASE(engines_that_do_not_offer_it) {
    own_lock *group;
    const hf_bytes value = {"v", 1};
    assert_int_equal(hf_lock_new_group(w->client, "group", 5, &value, 1, &group), HF_OK);
    own_lock *all = made(hf_lock_new_multi, &w->lock, 1);
    assert_int_equal(adopt_error(group, w->rival_owner), HF_ENOTSUP);
    assert_int_equal(adopt_error(all, w->rival_owner), HF_ENOTSUP);
}

/* ---- In time ---- */

static bool was_renewed(void *arg) {
    return world_stats(arg).renewals > 0;
}

WORLD_CASE_WITH(it_is_renewed_and_its_loss_is_reported, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result result = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    assert_true(wait_until(was_renewed, w->client, HANG_MS));
    assert_int_equal(cmd_int(w->server, "DEL %s", WORLD_NAME), 1);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_ENOTOWNER);
    assert_int_equal(world_stats(w->client).losses, 1);
}

static bool adopter_is_notified(void *arg) {
    struct world *w = arg;
    own_fleet *fleet;
    assert_int_equal(hf_survey(w->rival, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->locks_len, 1);
    const hf_fleet_party *holder = fleet->locks[0]->holders[0];
    assert_string_equal(holder->owner, w->rival_owner);
    bool notified = holder->presence == HF_PRESENCE_ALIVE && holder->client != NULL &&
                    holder->renewed && strcmp(holder->client->id, hf_client_id(w->client)) == 0;
    return notified;
}

WORLD_CASE_WITH(a_survey_shows_the_adopter, world_options(), options.report_after_ms = 0) {
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    hf_result result = adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    assert_true(wait_until(adopter_is_notified, w, HANG_MS));
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
}

WORLD_CASE(a_loss_is_reported_before_it_is_adopted_again) {
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    adopt(w->lock, w->rival_owner, HF_WATCHDOG);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(adopt_error(w->lock, w->rival_owner), HF_ELOST);
    assert_int_equal(adopt_error(w->lock, w->rival_owner), HF_ENOTOWNER);
}

WORLD_CASE(ones_own_handle) {
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(acquire_for(w->lock, OTHER_MS), HF_OK);
    assert_int_equal(hf_lock_adopt(w->lock, w->owner, HF_WATCHDOG, &result), HF_OK);
    assert_true(result.owner == hf_owner_self());
    assert_int_equal(result.count, 1);
    assert_true(hf_lock_remaining_ms(w->lock) > OTHER_MS);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

WORLD_CASE(as_an_operation) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(acquire_for(w->rival_lock, OTHER_MS), HF_OK);
    assert_int_equal(hf_lock_adopt_start(w->lock, w->rival_owner, HF_WATCHDOG, NULL, NULL, &op),
                     HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_int_equal(result.count, 1);
    hf_op_free(op);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    assert_true(world_free(w));
}

RUN_CASES(world_start_server, world_stop_server)
