/*
 * The read/write lock in ZooKeeper: who shares, who waits for whom, a writer that reads, and other locks of
 * the same name.
 */
#include "zk/crowd.h"

#include <stdio.h>

enum { A = 1, B, C, D };

struct both {
    struct crowd crowd;
    hf_lock *read, *write, *their_read, *their_write;
};

static void begin(struct both *b, const char *name) {
    crowd_begin(&b->crowd);
    b->read = crowd_lock(b->crowd.ours, name, HF_READ);
    b->write = crowd_lock(b->crowd.ours, name, HF_WRITE);
    b->their_read = crowd_lock(b->crowd.theirs, name, HF_READ);
    b->their_write = crowd_lock(b->crowd.theirs, name, HF_WRITE);
}

static void end(struct both *b) {
    hf_lock_free(b->read);
    hf_lock_free(b->write);
    hf_lock_free(b->their_read);
    hf_lock_free(b->their_write);
    crowd_end(&b->crowd);
}

static int try_as(hf_lock *lock, hf_owner owner) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    options.owner = owner;
    options.wait_ms = 0;
    return hf_lock_acquire_with(lock, &options, NULL);
}

static void readers_share_and_a_writer_waits_for_all(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/share");
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.their_read, B), HF_OK);
    assert_int_equal(try_as(b.their_write, C), HF_EBUSY);
    hf_op *writer = crowd_acquire(b.their_write, C);
    crowd_await_nodes("/rw/share/", 3);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    crowd_await_nodes("/rw/share/", 2);
    assert_false(crowd_is_done(writer));
    assert_int_equal(hf_lock_release_as(b.their_read, B), HF_OK);
    assert_int_equal(crowd_join(writer), HF_OK);
    assert_int_equal(try_as(b.read, A), HF_EBUSY);
    assert_int_equal(try_as(b.write, A), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b.their_write, C), HF_OK);
    end(&b);
}

/* Redisson lets it in; Curator does not. */
static void a_reader_waits_behind_a_writer_that_waits(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/behind");
    assert_int_equal(try_as(b.read, A), HF_OK);
    hf_op *writer = crowd_acquire(b.their_write, B);
    crowd_await_nodes("/rw/behind/", 2);
    assert_int_equal(try_as(b.their_read, C), HF_EBUSY);
    hf_op *reader = crowd_acquire(b.read, C);
    hf_op *second = crowd_acquire(b.their_read, D);
    crowd_await_nodes("/rw/behind/", 4);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(crowd_join(writer), HF_OK);
    assert_false(crowd_is_done(reader));
    assert_false(crowd_is_done(second));
    assert_int_equal(hf_lock_release_as(b.their_write, B), HF_OK);
    assert_int_equal(crowd_join(reader), HF_OK);
    assert_int_equal(crowd_join(second), HF_OK);
    assert_int_equal(hf_lock_release_as(b.read, C), HF_OK);
    assert_int_equal(hf_lock_release_as(b.their_read, D), HF_OK);
    end(&b);
}

/* It takes the writer's number, so the next writer stays behind it when the writing ends. */
static void a_writer_that_reads_goes_on_as_a_reader(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/down");
    assert_int_equal(try_as(b.write, A), HF_OK);
    hf_op *writer = crowd_acquire(b.their_write, B);
    crowd_await_nodes("/rw/down/", 2);
    assert_int_equal(try_as(b.read, A), HF_OK);
    crowd_await_nodes("/rw/down/", 3);
    crowd_await_nodes("__READ__0000000000", 1);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_OK);
    crowd_await_nodes("/rw/down/", 2);
    assert_int_equal(try_as(b.their_read, C), HF_EBUSY); /* behind that writer */
    assert_false(crowd_is_done(writer));
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(crowd_join(writer), HF_OK);
    assert_int_equal(hf_lock_release_as(b.their_write, B), HF_OK);
    end(&b);
}

static void readers_follow_a_writer_that_reads_on(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/follow");
    assert_int_equal(try_as(b.write, A), HF_OK);
    hf_op *reader = crowd_acquire(b.their_read, B);
    crowd_await_nodes("/rw/follow/", 2);
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_OK);
    assert_int_equal(crowd_join(reader), HF_OK);
    assert_int_equal(hf_lock_release_as(b.their_read, B), HF_OK);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    end(&b);
}

/* If its writing was broken another may write: its number is worth nothing then. */
static void a_writer_that_was_broken_does_not_read(void **state) {
    (void)state;
    struct both b;
    bool broken = false;
    begin(&b, "rw/broken");
    assert_int_equal(try_as(b.write, A), HF_OK);
    assert_int_equal(hf_lock_break(b.their_write, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(try_as(b.their_write, B), HF_OK);
    assert_int_equal(try_as(b.read, A), HF_EBUSY);
    crowd_await_nodes("/rw/broken/", 1);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(b.their_write, B), HF_OK);
    end(&b);
}

static void both_sides_count(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/count");
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.write, A), HF_EDEADLK);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.their_write, B), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.write, A), HF_OK);
    assert_int_equal(try_as(b.write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_OK);
    assert_int_equal(try_as(b.their_read, B), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_ENOTOWNER);
    end(&b);
}

static void a_wait_that_is_given_up_lets_others_pass(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/gone");
    assert_int_equal(try_as(b.read, A), HF_OK);
    hf_op *writer = crowd_acquire(b.their_write, B);
    crowd_await_nodes("/rw/gone/", 2);
    hf_op *reader = crowd_acquire(b.read, C);
    crowd_await_nodes("/rw/gone/", 3);
    hf_op_cancel(writer);
    assert_int_equal(crowd_join(writer), HF_ECANCELED);
    assert_int_equal(crowd_join(reader), HF_OK);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b.read, C), HF_OK);
    end(&b);
}

static void tokens_grow_on_both_sides(void **state) {
    (void)state;
    struct both b;
    int64_t last = 0;
    begin(&b, "rw/token");
    for (int i = 0; i < 4; i++) {
        hf_lock *lock = i % 2 == 0 ? b.write : b.their_read;
        hf_result result = HF_INIT(hf_result, HF_NO_DEFAULTS);
        hf_acquire_options options = HF_ACQUIRE_INIT;
        options.owner = A;
        assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_OK);
        assert_true(result.token > last);
        last = result.token;
        assert_int_equal(hf_lock_release_as(lock, A), HF_OK);
    }
    end(&b);
}

static void a_mutex_of_that_name_is_another_kind(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/type");
    hf_lock *plain = crowd_lock(b.crowd.theirs, "rw/type", HF_PLAIN);
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(try_as(plain, B), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(try_as(plain, B), HF_OK);
    assert_int_equal(try_as(b.write, A), HF_EWRONGTYPE);
    assert_int_equal(try_as(b.read, A), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release_as(plain, B), HF_OK);
    hf_lock_free(plain);
    end(&b);
}

/* ---- By whatever handle one looks ---- */

static void assert_owner(const hf_holder *found, hf_client *client, hf_owner owner,
                         const char *side) {
    char text[96];
    snprintf(text, sizeof text, "%s:%llu%s", hf_client_id(client), (unsigned long long)owner, side);
    assert_string_equal(found->owner, text);
}

static hf_lock_info *look_by(hf_lock *lock, hf_found kind, size_t holders, size_t waiters) {
    hf_lock_info *info = NULL;
    assert_int_equal(hf_lock_inspect(lock, &info), HF_OK);
    assert_int_equal(info->kind, kind);
    assert_int_equal(info->holders_len, holders);
    assert_int_equal(info->waiters_len, waiters);
    assert_int_equal(info->ttl_ms, holders > 0 ? -1 : -2);
    return info;
}

/* A writer that reads has two nodes of one number, and another waits. */
static void a_writer_is_shown_by_any_handle(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/writer");
    hf_lock *plain = crowd_lock(b.crowd.theirs, "rw/writer", HF_PLAIN);
    hf_lock *handles[] = {plain, b.read, b.write, b.their_read};
    assert_int_equal(try_as(b.write, A), HF_OK);
    assert_int_equal(try_as(b.read, A), HF_OK);
    hf_op *writer = crowd_acquire(b.their_write, B);
    crowd_await_nodes("/rw/writer/", 3);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        hf_lock_info *info = look_by(handles[i], HF_FOUND_WRITE, 2, 1);
        assert_owner(info->holders[0], b.crowd.ours, A, "");
        assert_owner(info->holders[1], b.crowd.ours, A, ":write");
        assert_owner(info->waiters[0], b.crowd.theirs, B, ":write");
        hf_lock_info_free(info);
    }
    hf_lock_free(plain);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(crowd_join(writer), HF_OK);
    assert_int_equal(hf_lock_release_as(b.their_write, B), HF_OK);
    end(&b);
}

static void readers_are_shown_by_any_handle(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/readers");
    hf_lock *plain = crowd_lock(b.crowd.theirs, "rw/readers", HF_PLAIN);
    hf_lock *handles[] = {plain, b.read, b.write};
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.their_read, B), HF_OK);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        hf_lock_info *info = look_by(handles[i], HF_FOUND_READ, 2, 0);
        assert_owner(info->holders[0], b.crowd.ours, A, "");
        assert_owner(info->holders[1], b.crowd.theirs, B, "");
        hf_lock_info_free(info);
    }
    assert_int_equal(hf_lock_release_as(b.read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b.their_read, B), HF_OK);
    hf_lock_info_free(look_by(plain, HF_FOUND_FREE, 0, 0));

    assert_int_equal(try_as(plain, C), HF_OK);
    hf_lock_info *info = look_by(b.write, HF_FOUND_PLAIN, 1, 0);
    assert_owner(info->holders[0], b.crowd.theirs, C, "");
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_release_as(plain, C), HF_OK);
    hf_lock_free(plain);
    end(&b);
}

/* What a writer reads goes with its writing, or the next would wait for one who has been told that it is lost. */
static void a_break_by_what_was_found_frees_it(void **state) {
    (void)state;
    struct both b;
    bool broken = false;
    begin(&b, "rw/free");
    hf_lock *plain = crowd_lock(b.crowd.theirs, "rw/free", HF_PLAIN);
    assert_int_equal(try_as(b.write, A), HF_OK);
    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(hf_lock_break(plain, &broken), HF_EWRONGTYPE);
    hf_lock_info_free(look_by(plain, HF_FOUND_WRITE, 2, 0));
    assert_int_equal(hf_lock_break(b.their_write, &broken), HF_OK);
    assert_true(broken);
    hf_lock_info_free(look_by(plain, HF_FOUND_FREE, 0, 0));
    assert_int_equal(hf_lock_release_as(b.write, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(b.read, A), HF_ELOST);

    assert_int_equal(try_as(b.read, A), HF_OK);
    assert_int_equal(try_as(b.their_read, B), HF_OK);
    assert_int_equal(hf_lock_break(b.their_read, &broken), HF_OK);
    assert_true(broken);
    hf_lock_info_free(look_by(plain, HF_FOUND_FREE, 0, 0));
    hf_lock_free(plain);
    end(&b);
}

static void the_tool_frees_either_side(void **state) {
    (void)state;
    struct both b;
    begin(&b, "rw/tool");
    for (int side = 0; side < 2; side++) {
        if (side == 0)
            assert_int_equal(try_as(b.write, A), HF_OK);
        assert_int_equal(try_as(b.read, A), HF_OK);
        assert_int_equal(crowd_tool("show --held", "rw/tool"), 0);
        assert_int_equal(crowd_tool("show", "rw/tool"), 0);
        assert_int_equal(crowd_tool("unlock --force", "rw/tool"), 0);
        assert_int_equal(crowd_tool("show --held", "rw/tool"), 1);
        assert_int_equal(crowd_tool("unlock --force", "rw/tool"), 1);
        assert_int_equal(hf_lock_release_as(b.read, A), HF_ELOST);
        if (side == 0)
            assert_int_equal(hf_lock_release_as(b.write, A), HF_ELOST);
    }
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_share_and_a_writer_waits_for_all),
        cmocka_unit_test(a_reader_waits_behind_a_writer_that_waits),
        cmocka_unit_test(a_writer_that_reads_goes_on_as_a_reader),
        cmocka_unit_test(readers_follow_a_writer_that_reads_on),
        cmocka_unit_test(a_writer_that_was_broken_does_not_read),
        cmocka_unit_test(both_sides_count),
        cmocka_unit_test(a_wait_that_is_given_up_lets_others_pass),
        cmocka_unit_test(tokens_grow_on_both_sides),
        cmocka_unit_test(a_mutex_of_that_name_is_another_kind),
        cmocka_unit_test(a_writer_is_shown_by_any_handle),
        cmocka_unit_test(readers_are_shown_by_any_handle),
        cmocka_unit_test(a_break_by_what_was_found_frees_it),
        cmocka_unit_test(the_tool_frees_either_side),
    };
    zk_need();
    return cmocka_run_group_tests(tests, crowd_start_server, crowd_stop_server);
}
