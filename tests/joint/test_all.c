/* One lock out of many: all or nothing, each member busy in turn, nesting, flattening, mixed kinds and
 * clients, what each verb says. C113 to C116. */
#include "joint/pack.h"

#include <poll.h>

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static const char *const abc[] = {"a", "b", "c"};

/* ---- All or nothing ---- */

CASE(C113_lock_and_unlock) {
    OWN(pack_end) struct pack p;
    bool mine;
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 60000);
    pack_begin(&p, NULL);
    assert_int_equal(hf_lock_acquire_with(p.all, &leased, &result), HF_OK);
    assert_int_equal(result.count, 1);
    assert_int_equal(result.owner, hf_owner_self());
    assert_true(result.remaining_ms > 30000 && result.remaining_ms <= 60000);
    assert_int_equal(pack_held(&p), PACK);
    assert_int_equal(hf_lock_is_mine(p.all, &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(hf_lock_is_mine_as(p.all, hf_owner_self(), &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(hf_lock_release(p.all), HF_OK);
    assert_int_equal(pack_locked(&p), 0);
    assert_int_equal(hf_lock_is_mine(p.all, &mine), HF_OK);
    assert_false(mine);
    assert_int_equal(hf_lock_release(p.all), HF_ENOTOWNER);
}

/* Of clients that try at once at most one wins, and the others hold nothing. (If two collide, both
 * may give way; to avoid that, wait.) */
CASE_IN(C114_ten_try_at_once, struct pack, p, pack_begin, pack_end_anyhow, NULL) {
    struct fleet_caller callers[10];
    int won = 0;
    for (size_t i = 0; i < LEN(callers); i++)
        fleet_call_acquire(&callers[i], p->all, fleet_wait_for(0, 600000));
    for (size_t i = 0; i < LEN(callers); i++) {
        int err = fleet_join(&callers[i]);
        assert_true(err == HF_OK || err == HF_EBUSY);
        won += err == HF_OK;
    }
    assert_true(won <= 1);
    assert_int_equal(pack_locked(p), won * PACK);
}

PACK_CASE(each_member_busy_in_turn) {
    char text[64];
    for (int i = 0; i < PACK; i++) {
        pack_occupy(p, i);
        assert_int_equal(hf_lock_try(p->all), HF_EBUSY);
        snprintf(text, sizeof text, "'%s': another owner holds the lock", pack_names[i]);
        assert_string_equal(hf_last_error()->text, text);
        assert_int_equal(pack_locked(p), 1);
        assert_int_equal(hf_lock_acquire_for(p->all, 50), HF_ETIMEDOUT);
        assert_true(pack_wait_locked(p, 1, HANG_MS)); /* what it had is given back behind it */
        pack_vacate(p, i);
        assert_int_equal(hf_lock_try(p->all), HF_OK);
        assert_int_equal(pack_held(p), PACK);
        assert_int_equal(hf_lock_release(p->all), HF_OK);
    }
}

/* For each member: a waiter holds nothing, and acquires when that one is free. */
PACK_CASE(C115_waits_without_holding) {
    struct fleet_caller caller;
    for (int i = 0; i < PACK; i++) {
        pack_occupy(p, i);
        fleet_call_acquire(&caller, p->all, fleet_wait_for(HANG_MS, 60000));
        assert_true(proxy_wait_seen(p->proxy[i], "\r\nSUBSCRIBE\r\n", 1, HANG_MS));
        assert_true(pack_wait_locked(p, 1, HANG_MS));
        for (int j = 0; j < PACK; j++)
            if (j != i)
                assert_int_equal(hf_lock_acquire(p->rival_lock[j]), HF_OK);
        for (int j = 0; j < PACK; j++)
            assert_int_equal(hf_lock_release(p->rival_lock[j]), HF_OK);
        assert_int_equal(fleet_join(&caller), HF_OK);
        for (int j = 0; j < PACK; j++) /* its thread has ended */
            cmd_ok(p->server[j], "DEL %s", pack_names[j]);
    }
}

PACK_CASE(C116_outsiders_are_refused) {
    own_lock *other = made(hf_lock_new_multi, p->rival_lock, PACK);
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_int_equal(hf_lock_try(other), HF_EBUSY);
    assert_int_equal(hf_lock_try(other), HF_EBUSY);
    for (int i = 0; i < PACK; i++)
        assert_int_equal(hf_lock_try(p->rival_lock[i]), HF_EBUSY);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    assert_int_equal(hf_lock_try(other), HF_OK);
    assert_int_equal(hf_lock_try(p->all), HF_EBUSY);
    assert_int_equal(hf_lock_release(other), HF_OK);
}

/* ---- Nesting ---- */

static long long count_at(struct pack *p, int i) {
    return cmd_int(p->server[i], "HGET %s %s", pack_names[i], p->owner[i]);
}

PACK_CASE(nests) {
    hf_result result = HF_RESULT_INIT;
    int64_t count;
    for (int times = 1; times <= 3; times++) {
        assert_int_equal(hf_lock_acquire_with(p->all, NULL, &result), HF_OK);
        assert_int_equal(result.count, times);
    }
    assert_int_equal(hf_lock_acquire(p->lock[1]), HF_OK);
    assert_int_equal(count_at(p, 0), 3);
    assert_int_equal(count_at(p, 1), 4);
    assert_int_equal(hf_lock_hold_count(p->all, &count), HF_OK);
    assert_int_equal(count, 3);
    for (int times = 2; times >= 0; times--) {
        assert_int_equal(hf_lock_release(p->all), HF_OK);
        if (times > 0)
            assert_int_equal(count_at(p, 0), times);
    }
    assert_int_equal(hf_lock_release(p->all), HF_ENOTOWNER);
    assert_int_equal(pack_locked(p), 1); /* what was acquired by itself stays */
    assert_int_equal(count_at(p, 1), 1);
    assert_int_equal(hf_lock_release(p->lock[1]), HF_OK);
}

/* A member that its owner held before is still held when the whole is not acquired. */
PACK_CASE(earlier_holds_stay) {
    assert_int_equal(hf_lock_acquire(p->lock[0]), HF_OK);
    pack_occupy(p, 2);
    assert_int_equal(hf_lock_try(p->all), HF_EBUSY);
    assert_int_equal(count_at(p, 0), 1);
    pack_vacate(p, 2);
    assert_int_equal(hf_lock_try(p->all), HF_OK);
    assert_int_equal(count_at(p, 0), 2);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    assert_int_equal(count_at(p, 0), 1);
    assert_int_equal(hf_lock_release(p->lock[0]), HF_OK);
}

PACK_CASE(one_inside_another_counts_as_its_members) {
    size_t len;
    hf_lock *inner = made(hf_lock_new_multi, p->lock, 2);
    hf_lock *members[] = {inner, p->lock[2]};
    own_lock *outer = made(hf_lock_new_multi, members, 2);
    hf_lock_free(inner);
    assert_memory_equal(hf_lock_name(outer, &len), "a b c", 6);
    assert_int_equal(len, 5);
    hf_acquire_options leased = fleet_wait_for(1000, 60000); /* which Redisson fails at */
    assert_int_equal(hf_lock_acquire_with(outer, &leased, NULL), HF_OK);
    assert_int_equal(pack_held(p), PACK);
    assert_int_equal(hf_lock_release(outer), HF_OK);
    assert_int_equal(hf_lock_new_multi((hf_lock *[]){outer, p->lock[0]}, 2, &inner), HF_EINVAL);
}

/* The same members in another order are other handles on the same locks. */
PACK_CASE(order_means_nothing) {
    hf_lock *members[] = {p->lock[2], p->lock[1], p->lock[0]};
    own_lock *backwards = made(hf_lock_new_multi, members, 3);
    assert_string_equal(hf_lock_name(backwards, NULL), "c b a");
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_int_equal(hf_lock_acquire(backwards), HF_OK);
    assert_int_equal(count_at(p, 1), 2);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    assert_int_equal(count_at(p, 1), 1);
    assert_int_equal(hf_lock_release(backwards), HF_OK);
}

/* ---- Making one ---- */

PACK_CASE(refused_members) {
    hf_lock *lock = NULL, *many[HF_MULTI_MAX + 1], *same, *reader, *writer;
    char name[16];
    assert_int_equal(hf_lock_new_multi(NULL, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_multi(p->lock, 0, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_multi(p->lock, 1, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_new_multi((hf_lock *[]){p->lock[0], NULL}, 2, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_multi((hf_lock *[]){p->lock[0], p->lock[0]}, 2, &lock), HF_EINVAL);
    assert_int_equal(new_lock(p->client[0], HF_FAIR, "a", 1, &same), HF_OK);
    assert_int_equal(hf_lock_new_multi((hf_lock *[]){p->lock[0], same}, 2, &lock), HF_EINVAL);
    assert_int_equal(new_lock(p->client[0], HF_READ, "r", 1, &reader), HF_OK);
    assert_int_equal(new_lock(p->client[0], HF_WRITE, "r", 1, &writer), HF_OK);
    assert_int_equal(hf_lock_new_multi((hf_lock *[]){reader, writer}, 2, &lock), HF_EINVAL);
    for (size_t i = 0; i < LEN(many); i++) {
        snprintf(name, sizeof name, "m%zu", i);
        assert_int_equal(hf_lock_new(p->client[0], name, &many[i]), HF_OK);
    }
    assert_int_equal(hf_lock_new_multi(many, LEN(many), &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_multi(many, HF_MULTI_MAX, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(cmd_int(p->server[0], "DBSIZE"), HF_MULTI_MAX);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(cmd_int(p->server[0], "DBSIZE"), 0);
    hf_lock_free(lock);
    hf_lock_free(same);
    hf_lock_free(reader);
    hf_lock_free(writer);
    for (size_t i = 0; i < LEN(many); i++)
        hf_lock_free(many[i]);
}

/* Sets that look alike once their names are joined have nothing in common. */
PACK_CASE(names_that_look_alike) {
    int64_t count;
    own_lock *one = pack_all_of(p->client[0], HF_PLAIN, (const char *[]){"x y", "z"}, 2);
    own_lock *two = pack_all_of(p->client[0], HF_PLAIN, (const char *[]){"x", "y z"}, 2);
    own_lock *plain = made(hf_lock_new, p->client[0], "x y z");
    assert_string_equal(hf_lock_name(one, NULL), hf_lock_name(two, NULL));
    assert_int_equal(hf_lock_acquire(one), HF_OK);
    assert_int_equal(hf_lock_hold_count(two, &count), HF_OK);
    assert_int_equal(count, 0);
    assert_int_equal(hf_lock_release(two), HF_ENOTOWNER);
    assert_int_equal(hf_lock_remaining_ms(two), 0);
    assert_int_equal(hf_lock_release(plain), HF_ENOTOWNER);
    assert_int_equal(hf_lock_break(plain, NULL), HF_OK);
    assert_true(hf_lock_remaining_ms(one) > 0);
    assert_int_equal(hf_lock_release(one), HF_OK);
}

/* ---- Kinds ---- */

CASE(mixed_kinds) {
    OWN(pack_end_anyhow) struct pack p;
    static const any_kind kinds[] = {HF_PLAIN, HF_FAIR, HF_READ, HF_WRITE, HF_PLAIN | HF_FENCED};
    static const hf_bytes values[] = {{"v1", 2}, {"v2", 2}};
    hf_lock *members[LEN(kinds) + 1], *all;
    int64_t token;
    char name[8];
    pack_begin(&p, NULL);
    for (size_t i = 0; i < LEN(kinds); i++) {
        snprintf(name, sizeof name, "k%zu", i);
        assert_int_equal(new_lock(p.client[i % PACK], kinds[i], name, strlen(name), &members[i]),
                         HF_OK);
    }
    assert_int_equal(hf_lock_new_group(p.client[2], "group", 5, values, 2, &members[LEN(kinds)]),
                     HF_OK);
    assert_int_equal(hf_lock_new_multi(members, LEN(members), &all), HF_OK);
    assert_string_equal(hf_lock_name(all, NULL), "k0 k1 k2 k3 k4 group");
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    assert_int_equal(hf_lock_token(members[4], &token), HF_OK);
    assert_true(token > 0);
    assert_int_equal(hf_lock_token(all, &token), HF_ENOTSUP);
    for (size_t i = 0; i < LEN(members); i++) {
        bool mine;
        assert_int_equal(hf_lock_is_mine(members[i], &mine), HF_OK);
        assert_true(mine);
    }
    assert_int_equal(hf_lock_release(all), HF_OK);
    for (size_t i = 0; i < LEN(members); i++) {
        bool locked;
        assert_int_equal(hf_lock_is_locked(members[i], &locked), HF_OK);
        assert_false(locked);
        hf_lock_free(members[i]);
    }
    hf_lock_free(all);
}

/* Locks that are read are shared, those that are written are not. */
CASE_IN(readers_share, struct pack, p, pack_begin, pack_end_anyhow, NULL) {
    hf_acquire_options other = HF_ACQUIRE_OPTIONS_INIT;
    own_lock *readers = pack_all_of(p->client[0], HF_READ, abc, LEN(abc));
    own_lock *writers = pack_all_of(p->client[0], HF_WRITE, abc, LEN(abc));
    other.owner = hf_owner_new();
    other.wait_ms = 0;
    assert_int_equal(hf_lock_acquire(readers), HF_OK);
    assert_int_equal(hf_lock_acquire_with(readers, &other, NULL), HF_OK);
    assert_int_equal(hf_lock_acquire_with(writers, &other, NULL), HF_EDEADLK);
    other.owner = hf_owner_new();
    assert_int_equal(hf_lock_acquire_with(writers, &other, NULL), HF_EBUSY);
    assert_int_equal(hf_lock_release(readers), HF_OK);
    assert_int_equal(hf_lock_acquire_with(writers, &other, NULL), HF_EBUSY);
}

/* One attempt does not line up, so it does not stay in the queue either. */
CASE_IN(fair_members, struct pack, p, pack_begin, pack_end_anyhow, NULL) {
    struct fleet_caller caller;
    own_lock *all = pack_all_of(p->client[0], HF_FAIR, abc, LEN(abc));
    own_lock *rivals = pack_all_of(p->rival[0], HF_FAIR, abc, LEN(abc));
    assert_int_equal(hf_lock_acquire(rivals), HF_OK);
    assert_int_equal(hf_lock_try(all), HF_EBUSY);
    assert_int_equal(cmd_int(p->server[0], "EXISTS redisson_lock_queue:{a} "
                                           "redisson_lock_queue:{b} redisson_lock_queue:{c}"),
                     0);
    fleet_call_acquire(&caller, all, fleet_wait_for(HANG_MS, 60000));
    assert_true(proxy_wait_seen(p->proxy[0], "\r\nSUBSCRIBE\r\n", 1, HANG_MS));
    assert_int_equal(hf_lock_release(rivals), HF_OK);
    assert_int_equal(fleet_join(&caller), HF_OK);
}

/* A member that does not nest: the second acquire is refused, and gives back what it took. */
PACK_CASE(members_that_do_not_nest) {
    own_lock *once = made(new_lock, p->client[1], HF_NONREENTRANT, "b", 1);
    own_lock *all = made(hf_lock_new_multi, (hf_lock *[]){p->lock[0], once, p->lock[2]}, 3);
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    assert_int_equal(hf_lock_acquire(all), HF_EDEADLK);
    assert_int_equal(count_at(p, 0), 1);
    assert_int_equal(count_at(p, 2), 1);
    assert_int_equal(hf_lock_release(all), HF_OK);
}

/* ---- What the verbs say ---- */

CASE(questions) {
    OWN(pack_end) struct pack p;
    bool yes, broken;
    int64_t ttl_ms, token;
    hf_lock_info *info;
    hf_acquire_options shorter = fleet_wait_for(0, 30000);
    pack_begin(&p, NULL);
    assert_string_equal(hf_lock_name(p.all, NULL), "a b c");
    assert_int_equal(hf_lock_is_locked(p.all, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_ttl_ms(p.all, &ttl_ms), HF_OK);
    assert_int_equal(ttl_ms, -2);
    pack_occupy(&p, 1);
    assert_int_equal(hf_lock_is_locked(p.all, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(p.all, &yes), HF_OK);
    assert_false(yes);
    pack_vacate(&p, 1);
    assert_int_equal(hf_lock_acquire(p.all), HF_OK);
    assert_int_equal(hf_lock_ttl_ms(p.all, &ttl_ms), HF_OK);
    assert_true(ttl_ms > 30000 && ttl_ms <= 60000);
    assert_true(hf_lock_remaining_ms(p.all) > 30000 && hf_lock_remaining_ms(p.all) <= 60000);
    assert_int_equal(hf_lock_break(p.all, &broken), HF_ENOTSUP);
    assert_int_equal(hf_lock_inspect(p.all, &info), HF_ENOTSUP);
    assert_int_equal(hf_lock_token(p.all, &token), HF_ENOTSUP);
    assert_int_equal(hf_lock_release(p.all), HF_OK);
    assert_int_equal(hf_lock_acquire_with(p.lock[1], &shorter, NULL), HF_OK);
    assert_int_equal(hf_lock_ttl_ms(p.all, &ttl_ms), HF_OK);
    assert_true(ttl_ms > 0 && ttl_ms <= 30000);
    assert_int_equal(hf_lock_release(p.lock[1]), HF_OK);
}

CASE(extend) {
    OWN(pack_end) struct pack p;
    hf_acquire_options leased = fleet_wait_for(0, 20000);
    pack_begin(&p, NULL);
    assert_int_equal(hf_lock_extend(p.all, 60000), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire_with(p.all, &leased, NULL), HF_OK);
    assert_true(hf_lock_remaining_ms(p.all) <= 20000);
    assert_int_equal(hf_lock_extend(p.all, 60000), HF_OK);
    assert_true(hf_lock_remaining_ms(p.all) > 30000);
    for (int i = 0; i < PACK; i++)
        assert_true(pttl(p.server[i], pack_names[i]) > 30000);
    cmd_ok(p.server[1], "DEL b");
    assert_int_equal(hf_lock_extend(p.all, 60000), HF_ELOST);
    assert_int_equal(hf_lock_remaining_ms(p.all), 0);
    assert_int_equal(hf_lock_release(p.all), HF_ENOTOWNER);
}

/* A client that came first is as fresh as the last one: no lease is shorter than was asked for by a tenth. */
CASE(leases_are_aligned) {
    OWN(pack_end) struct pack p;
    hf_options options = pack_options();
    hf_acquire_options leased = fleet_wait_for(0, 20000);
    options.cmd_timeout_ms = 15000;
    pack_begin(&p, &options);
    const char *lease = "\r\n20000\r\n"; /* what a look at a hold does not ask for */
    proxy_delay(p.proxy[2], FLEET_ACQUIRE, 3000);
    assert_int_equal(hf_lock_acquire_with(p.all, &leased, NULL), HF_OK);
    assert_true(proxy_seen(p.proxy[0], lease) >= 2);
    assert_true(proxy_seen(p.proxy[1], lease) >= 2);
    assert_int_equal(hf_lock_release(p.all), HF_OK);
    proxy_heal(p.proxy[2]);
}

PACK_CASE(statistics) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_int_equal(hf_client_stats(p->client[0], &stats), HF_OK);
    assert_int_equal(stats.holds, 2); /* it, and its member */
    assert_int_equal(hf_client_stats(p->client[1], &stats), HF_OK);
    assert_int_equal(stats.holds, 1);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    assert_int_equal(hf_client_stats(p->client[0], &stats), HF_OK);
    assert_int_equal(stats.holds, 0);
}

RUN_CASES(pack_start_servers, pack_stop_servers)
