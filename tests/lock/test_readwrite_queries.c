/*
 * The read/write lock, asked about: rows C101 to C107 of the catalogue, what hf_lock_inspect()
 * shows of it, and U68, other kinds of lock under its name.
 */
#include "lock/readwrite.h"

/* ---- Questions ---- */

/* Asks from a thread of its own. */
struct asker {
    hf_lock *lock;
    bool locked, mine;
    int err;
};

static void *ask(void *arg) {
    struct asker *asker = arg;
    asker->err = hf_lock_is_locked(asker->lock, &asker->locked);
    if (asker->err == HF_OK)
        asker->err = hf_lock_is_mine(asker->lock, &asker->mine);
    return NULL;
}

static void assert_another_thread_sees(hf_lock *lock, bool locked) {
    struct asker asker = {.lock = lock, .locked = !locked, .mine = true};
    pthread_t thread = started(ask, &asker);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(asker.err, HF_OK);
    assert_int_equal(asker.locked, locked);
    assert_false(asker.mine);
}

RW_CASE(C101_C102_C103_threads_ask) {
    bool mine;
    assert_int_equal(hf_lock_is_mine(rw->read, &mine), HF_OK);
    assert_false(mine);
    assert_int_equal(hf_lock_acquire(rw->read), HF_OK);
    assert_int_equal(hf_lock_is_mine(rw->read, &mine), HF_OK);
    assert_true(mine);
    assert_another_thread_sees(rw->read, true);
    assert_another_thread_sees(rw->rival_read, true);
    assert_int_equal(hf_lock_release(rw->read), HF_OK);
    assert_int_equal(hf_lock_is_mine(rw->read, &mine), HF_OK);
    assert_false(mine);
    assert_another_thread_sees(rw->read, false);
    assert_another_thread_sees(rw->rival_read, false);
    rw_assert_clean(rw);
}

RW_CASE(C101_C102_C103_C104_C106_owners_ask) {
    for (int round = 0; round < 2; round++) {
        assert_false(rw_held(rw->read, A));
        assert_false(rw_locked(rw->read));
        assert_int_equal(try_as(rw->read, A), HF_OK);
        assert_true(rw_held(rw->read, A));
        assert_false(rw_held(rw->read, B));
        assert_false(rw_held(rw->rival_read, A)); /* another client's A */
        assert_false(rw_held(rw->write, A));
        assert_true(rw_locked(rw->read));
        assert_true(rw_locked(rw->rival_read));
        assert_false(rw_locked(rw->rival_write));
        assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
        assert_false(rw_held(rw->read, A));
        assert_false(rw_locked(rw->rival_read));
    }
    rw_assert_clean(rw);
}

/* A writer that also reads stops writing during the query: the lock is held for reading
 * throughout. */
CASE(read_side_is_seen_at_one_moment) {
    OWN(rw_end) struct rw rw;
    server_redis_only(world_server(), "there it is one question, here two commands");
    rw_begin(&rw, NULL);
    struct proxy *proxy = proxy_start(server_socket(rw.w.server));
    hf_client *client = made(hf_open, proxy_url(proxy), NULL);
    struct asker asker = {.lock = rw_handle(client, HF_READ)};
    assert_int_equal(try_as(rw.write, A), HF_OK);
    assert_int_equal(try_as(rw.read, A), HF_OK);

    proxy_stall_request(proxy, "\r\nHGETALL\r\n"); /* what follows the question for the mode */
    pthread_t thread = started(ask, &asker);
    assert_true(proxy_wait_held(proxy, 10000));
    assert_int_equal(hf_lock_release_as(rw.write, A), HF_OK);
    assert_int_equal(proxy_release_held(proxy), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(asker.err, HF_OK);
    assert_true(asker.locked);

    assert_int_equal(hf_lock_release_as(rw.read, A), HF_OK);
    hf_lock_free(asker.lock);
    hf_close(client);
    proxy_free(proxy);
    rw_assert_clean(&rw);
}

RW_CASE(C105_release_by_a_non_reader) {
    assert_int_equal(try_as(rw->read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, B), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(rw->rival_read, A), HF_ENOTOWNER);
    assert_true(rw_break(rw->rival_read));
    assert_true(world_free(&rw->w));
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
    rw_assert_clean(rw);
}

RW_CASE(C107_reentrancy) {
    static const any_kind kinds[] = {HF_READ, HF_WRITE};
    for (size_t i = 0; i < 2; i++) {
        hf_lock *lock = kinds[i] == HF_READ ? rw->read : rw->write;
        for (int64_t count = 1; count <= 4; count++) {
            assert_int_equal(count % 2 ? try_as(lock, A) : world_acquire_async(lock, A, 0, NULL),
                             HF_OK);
            assert_int_equal(rw_hold_count(lock, A), count);
        }
        assert_int_equal(world_stats(rw->w.client).holds, 1);
        bool key_for_each = kinds[i] == HF_READ && !server_is_other(rw->w.server);
        assert_int_equal(world_keys(rw->w.server), key_for_each ? 5 : 1);
        for (int64_t count = 3; count >= 0; count--) {
            assert_int_equal(count % 2 ? hf_lock_release_as(lock, A)
                                       : world_release_async(lock, A, NULL),
                             HF_OK);
            assert_int_equal(rw_hold_count(lock, A), count);
        }
        assert_int_equal(hf_lock_release_as(lock, A), HF_ENOTOWNER);
        rw_assert_clean(rw);
    }
}

static const hf_holder *find_holder(const hf_lock_info *info, const char *owner) {
    for (size_t i = 0; i < info->holders_len; i++)
        if (strcmp(info->holders[i]->owner, owner) == 0)
            return info->holders[i];
    return NULL;
}

RW_CASE(inspect_shows_readers_and_the_writer) {
    hf_lock_info *info;
    char reader[64], rival[64], writer[80];
    world_owner_text(rw->w.client, A, reader);
    world_owner_text(rw->w.rival, B, rival);
    snprintf(writer, sizeof writer, "%s:write", reader);

    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    assert_int_equal(hf_lock_inspect(rw->rival_read, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_WRITE);
    assert_int_equal(info->holders_len, 2);
    bool counts = !server_is_other(rw->w.server); /* there only the holder itself does */
    assert_int_equal(find_holder(info, writer)->count, counts ? 2 : 1);
    assert_int_equal(find_holder(info, reader)->count, 1);
    assert_non_null(find_holder(info, writer)->connection);
    hf_lock_info_free(info);

    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->rival_read, B), HF_OK);
    assert_int_equal(hf_lock_inspect(rw->write, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_READ);
    assert_int_equal(info->holders_len, 2);
    assert_int_equal(find_holder(info, rival)->count, 1);
    assert_true(counts ? info->ttl_ms > 0 : info->ttl_ms == -1);
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_read, B), HF_OK);
}

/* ---- Other kinds under the same name ---- */

static long long holders_of_another_kind(struct rw *rw) {
    return server_is_other(rw->w.server) ? server_queued(rw->w.server, WORLD_NAME)
                                         : cmd_int(rw->w.server, "HLEN " WORLD_NAME);
}

RW_CASE(U68_other_kinds_are_refused_both_ways) {
    static const any_kind others[] = {HF_PLAIN,  HF_NONREENTRANT, HF_SPIN,
                                      HF_FENCED, HF_FAIR,         HF_FAIR | HF_NONREENTRANT};
    hf_lock *const sides[] = {rw->read, rw->write};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        own_lock *other = rw_handle(rw->w.client, others[i]);
        for (size_t side = 0; side < 2; side++) {
            for (hf_owner owner = A; owner <= B; owner++) { /* the holder itself, and another */
                bool broken;
                assert_int_equal(try_as(other, A), HF_OK);
                assert_int_equal(try_as(sides[side], owner), HF_EWRONGTYPE);
                assert_int_equal(acquire_as(sides[side], owner, HF_FOREVER, HF_WATCHDOG),
                                 HF_EWRONGTYPE);
                assert_int_equal(hf_lock_break(sides[side], &broken), HF_EWRONGTYPE);
                assert_int_equal(hf_lock_release_as(sides[side], owner), HF_ENOTOWNER);
                assert_int_equal(holders_of_another_kind(rw), 1);
                assert_int_equal(hf_lock_release_as(other, A), HF_OK);

                assert_int_equal(try_as(sides[side], A), HF_OK);
                assert_int_equal(try_as(other, owner), HF_EWRONGTYPE);
                assert_int_equal(acquire_as(other, owner, HF_FOREVER, HF_WATCHDOG), HF_EWRONGTYPE);
                assert_int_equal(hf_lock_break(other, &broken), HF_EWRONGTYPE);
                assert_int_equal(hf_lock_release_as(sides[side], A), HF_OK);
            }
        }
    }
    if (!server_is_other(rw->w.server)) { /* there a node may have words and a queue beneath it */
        cmd_ok(rw->w.server, "SET " WORLD_NAME " text");
        assert_int_equal(try_as(rw->read, A), HF_EWRONGTYPE);
        assert_int_equal(try_as(rw->write, A), HF_EWRONGTYPE);
        cmd_ok(rw->w.server, "DEL " WORLD_NAME);
    }
    assert_int_equal(world_stats(rw->w.client).holds, 0);
}

RUN_CASES(world_start_server, world_stop_server)
