/*
 * The read/write lock in ZooKeeper: sharing, waiting, a writer that reads, and other locks of the
 * same name.
 */
#include "support/case.h"
#include "zk/scene.h"

enum { A = 1, B, C, D };

struct both {
    struct scene_pair pair;
    hf_lock *read, *write, *their_read, *their_write;
};

static void begin(struct both *b, const char *name) {
    scene_pair_begin(&b->pair);
    b->read = scene_lock(b->pair.ours, HF_READ, name);
    b->write = scene_lock(b->pair.ours, HF_WRITE, name);
    b->their_read = scene_lock(b->pair.theirs, HF_READ, name);
    b->their_write = scene_lock(b->pair.theirs, HF_WRITE, name);
}

static void end(struct both *b) {
    hf_lock_free(b->read);
    hf_lock_free(b->write);
    hf_lock_free(b->their_read);
    hf_lock_free(b->their_write);
    scene_pair_end(&b->pair);
}

static int try_as(hf_lock *lock, hf_owner owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = owner;
    options.wait_ms = 0;
    return hf_lock_acquire_with(lock, &options, NULL);
}

CASE_IN(readers_share_and_a_writer_waits_for_all, struct both, b, begin, end, "rw/share") {
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->their_read, B), HF_OK);
    assert_int_equal(try_as(b->their_write, C), HF_EBUSY);
    hf_op *writer = scene_acquire_as(b->their_write, C);
    scene_await_nodes("/rw/share/", 3);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    scene_await_nodes("/rw/share/", 2);
    assert_false(scene_is_done(writer));
    assert_int_equal(hf_lock_release_as(b->their_read, B), HF_OK);
    assert_int_equal(scene_join(writer), HF_OK);
    assert_int_equal(try_as(b->read, A), HF_EBUSY);
    assert_int_equal(try_as(b->write, A), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b->their_write, C), HF_OK);
}

/* Redisson lets it in; Curator does not. */
CASE_IN(a_reader_waits_behind_a_writer_that_waits, struct both, b, begin, end, "rw/behind") {
    assert_int_equal(try_as(b->read, A), HF_OK);
    hf_op *writer = scene_acquire_as(b->their_write, B);
    scene_await_nodes("/rw/behind/", 2);
    assert_int_equal(try_as(b->their_read, C), HF_EBUSY);
    hf_op *reader = scene_acquire_as(b->read, C);
    hf_op *second = scene_acquire_as(b->their_read, D);
    scene_await_nodes("/rw/behind/", 4);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(scene_join(writer), HF_OK);
    assert_false(scene_is_done(reader));
    assert_false(scene_is_done(second));
    assert_int_equal(hf_lock_release_as(b->their_write, B), HF_OK);
    assert_int_equal(scene_join(reader), HF_OK);
    assert_int_equal(scene_join(second), HF_OK);
    assert_int_equal(hf_lock_release_as(b->read, C), HF_OK);
    assert_int_equal(hf_lock_release_as(b->their_read, D), HF_OK);
}

/* It takes the writer's number, so the next writer stays behind it when the writing ends. */
CASE_IN(a_writer_that_reads_goes_on_as_a_reader, struct both, b, begin, end, "rw/down") {
    assert_int_equal(try_as(b->write, A), HF_OK);
    hf_op *writer = scene_acquire_as(b->their_write, B);
    scene_await_nodes("/rw/down/", 2);
    assert_int_equal(try_as(b->read, A), HF_OK);
    scene_await_nodes("/rw/down/", 3);
    scene_await_nodes("__READ__0000000000", 1);
    assert_int_equal(hf_lock_release_as(b->write, A), HF_OK);
    scene_await_nodes("/rw/down/", 2);
    assert_int_equal(try_as(b->their_read, C), HF_EBUSY); /* behind that writer */
    assert_false(scene_is_done(writer));
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(scene_join(writer), HF_OK);
    assert_int_equal(hf_lock_release_as(b->their_write, B), HF_OK);
}

CASE_IN(readers_follow_a_writer_that_reads_on, struct both, b, begin, end, "rw/follow") {
    assert_int_equal(try_as(b->write, A), HF_OK);
    hf_op *reader = scene_acquire_as(b->their_read, B);
    scene_await_nodes("/rw/follow/", 2);
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b->write, A), HF_OK);
    assert_int_equal(scene_join(reader), HF_OK);
    assert_int_equal(hf_lock_release_as(b->their_read, B), HF_OK);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
}

/* If its writing was broken another may write: its number is worth nothing then. */
CASE(a_writer_that_was_broken_does_not_read) {
    OWN(end) struct both b;
    bool broken = false;
    begin(&b, "rw/broken");
    assert_int_equal(try_as(b.write, A), HF_OK);
    assert_int_equal(hf_lock_break(b.their_write, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(try_as(b.their_write, B), HF_OK);
    assert_int_equal(try_as(b.read, A), HF_EBUSY);
    scene_await_nodes("/rw/broken/", 1);
    assert_int_equal(hf_lock_release_as(b.write, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(b.their_write, B), HF_OK);
}

CASE_IN(both_sides_count, struct both, b, begin, end, "rw/count") {
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->write, A), HF_EDEADLK);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->their_write, B), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->write, A), HF_OK);
    assert_int_equal(try_as(b->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b->write, A), HF_OK);
    assert_int_equal(try_as(b->their_read, B), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b->write, A), HF_ENOTOWNER);
}

CASE_IN(a_wait_that_is_given_up_lets_others_pass, struct both, b, begin, end, "rw/gone") {
    assert_int_equal(try_as(b->read, A), HF_OK);
    hf_op *writer = scene_acquire_as(b->their_write, B);
    scene_await_nodes("/rw/gone/", 2);
    hf_op *reader = scene_acquire_as(b->read, C);
    scene_await_nodes("/rw/gone/", 3);
    hf_op_cancel(writer);
    assert_int_equal(scene_join(writer), HF_ECANCELED);
    assert_int_equal(scene_join(reader), HF_OK);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b->read, C), HF_OK);
}

CASE_IN(tokens_grow_on_both_sides, struct both, b, begin, end, "rw/token") {
    int64_t last = 0;
    for (int i = 0; i < 4; i++) {
        hf_lock *lock = i % 2 == 0 ? b->write : b->their_read;
        hf_result result = HF_INIT(hf_result, HF_NO_DEFAULTS);
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.owner = A;
        assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_OK);
        assert_true(result.token > last);
        last = result.token;
        assert_int_equal(hf_lock_release_as(lock, A), HF_OK);
    }
}

CASE_IN(a_mutex_of_that_name_is_another_kind, struct both, b, begin, end, "rw/type") {
    own_lock *plain = scene_lock(b->pair.theirs, HF_PLAIN, "rw/type");
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(try_as(plain, B), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(try_as(plain, B), HF_OK);
    assert_int_equal(try_as(b->write, A), HF_EWRONGTYPE);
    assert_int_equal(try_as(b->read, A), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release_as(plain, B), HF_OK);
}

/* ---- By whatever handle one looks ---- */

static void assert_owner(const hf_holder *found, hf_client *client, hf_owner owner,
                         const char *side) {
    own_text *text = text_of("%s:%llu%s", hf_client_id(client), (unsigned long long)owner, side);
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
CASE_IN(a_writer_is_shown_by_any_handle, struct both, b, begin, end, "rw/writer") {
    hf_lock *plain = scene_lock(b->pair.theirs, HF_PLAIN, "rw/writer");
    hf_lock *handles[] = {plain, b->read, b->write, b->their_read};
    assert_int_equal(try_as(b->write, A), HF_OK);
    assert_int_equal(try_as(b->read, A), HF_OK);
    hf_op *writer = scene_acquire_as(b->their_write, B);
    scene_await_nodes("/rw/writer/", 3);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        own_info *info = look_by(handles[i], HF_FOUND_WRITE, 2, 1);
        assert_owner(info->holders[0], b->pair.ours, A, "");
        assert_owner(info->holders[1], b->pair.ours, A, ":write");
        assert_owner(info->waiters[0], b->pair.theirs, B, ":write");
    }
    hf_lock_free(plain);
    assert_int_equal(hf_lock_release_as(b->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(scene_join(writer), HF_OK);
    assert_int_equal(hf_lock_release_as(b->their_write, B), HF_OK);
}

CASE_IN(readers_are_shown_by_any_handle, struct both, b, begin, end, "rw/readers") {
    own_lock *plain = scene_lock(b->pair.theirs, HF_PLAIN, "rw/readers");
    hf_lock *handles[] = {plain, b->read, b->write};
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->their_read, B), HF_OK);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        own_info *info = look_by(handles[i], HF_FOUND_READ, 2, 0);
        assert_owner(info->holders[0], b->pair.ours, A, "");
        assert_owner(info->holders[1], b->pair.theirs, B, "");
    }
    assert_int_equal(hf_lock_release_as(b->read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(b->their_read, B), HF_OK);
    hf_lock_info_free(look_by(plain, HF_FOUND_FREE, 0, 0));

    assert_int_equal(try_as(plain, C), HF_OK);
    hf_lock_info *info = look_by(b->write, HF_FOUND_PLAIN, 1, 0);
    assert_owner(info->holders[0], b->pair.theirs, C, "");
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_release_as(plain, C), HF_OK);
}

/* What a writer reads goes with its writing, or the next would wait for one who has been notified that it is lost. */
CASE_IN(a_break_of_the_inspected_holder_frees_it, struct both, b, begin, end, "rw/free") {
    bool broken = false;
    own_lock *plain = scene_lock(b->pair.theirs, HF_PLAIN, "rw/free");
    assert_int_equal(try_as(b->write, A), HF_OK);
    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(hf_lock_break(plain, &broken), HF_EWRONGTYPE);
    hf_lock_info_free(look_by(plain, HF_FOUND_WRITE, 2, 0));
    assert_int_equal(hf_lock_break(b->their_write, &broken), HF_OK);
    assert_true(broken);
    hf_lock_info_free(look_by(plain, HF_FOUND_FREE, 0, 0));
    assert_int_equal(hf_lock_release_as(b->write, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(b->read, A), HF_ELOST);

    assert_int_equal(try_as(b->read, A), HF_OK);
    assert_int_equal(try_as(b->their_read, B), HF_OK);
    assert_int_equal(hf_lock_break(b->their_read, &broken), HF_OK);
    assert_true(broken);
    hf_lock_info_free(look_by(plain, HF_FOUND_FREE, 0, 0));
}

CASE_IN(the_tool_frees_either_side, struct both, b, begin, end, "rw/tool") {
    for (int side = 0; side < 2; side++) {
        if (side == 0)
            assert_int_equal(try_as(b->write, A), HF_OK);
        assert_int_equal(try_as(b->read, A), HF_OK);
        assert_int_equal(scene_tool("show --held", "rw/tool"), 0);
        assert_int_equal(scene_tool("show", "rw/tool"), 0);
        assert_int_equal(scene_tool("unlock --force", "rw/tool"), 0);
        assert_int_equal(scene_tool("show --held", "rw/tool"), 1);
        assert_int_equal(scene_tool("unlock --force", "rw/tool"), 1);
        assert_int_equal(hf_lock_release_as(b->read, A), HF_ELOST);
        if (side == 0)
            assert_int_equal(hf_lock_release_as(b->write, A), HF_ELOST);
    }
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
