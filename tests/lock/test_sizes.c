/*
 * Structs that carry their size: what was never set is refused, with the name of the initialiser; a
 * larger one than the library's is taken as long as it uses nothing that is new; an output is looked
 * at before anything is done.
 *
 * Each call is made with its struct at the start of a larger room, as a program has it that was
 * compiled with a newer header.
 */
#include "support/world.h"

#define ROOM 2048

/* The room, aligned for whatever begins there. */
union room {
    size_t size;
    int64_t align;
    unsigned char bytes[ROOM];
};

/* ---- The structs: one call each, which succeeds with a good one ---- */

static int open_client(struct world *w, void *given) {
    hf_client *client;
    int err = hf_open(server_url(w->server), given, &client);
    if (err == HF_OK)
        hf_close(client);
    return err;
}

static int make_lock(struct world *w, void *given) {
    hf_lock *lock;
    int err = hf_lock_new_with(w->client, "sized", 5, given, &lock);
    if (err == HF_OK)
        hf_lock_free(lock);
    return err;
}

static int acquire(struct world *w, void *given) {
    int err = hf_lock_acquire_with(w->lock, given, NULL);
    return err == HF_OK ? hf_lock_release(w->lock) : err;
}

static int acquire_async(struct world *w, void *given) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    int err = hf_lock_acquire_start(w->lock, given, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    err = joined(op, &result);
    return err == HF_OK ? hf_lock_release_as(w->lock, result.owner) : err;
}

static int await(struct world *w, void *given) {
    own_latch *latch = made(hf_latch_new, w->client, "sized");
    return hf_latch_await_with(latch, given);
}

static int take_permit(struct world *w, void *given) {
    own_permits *permits;
    hf_permit_id id;
    assert_int_equal(hf_permits_new(w->client, "permits", &permits), HF_OK);
    assert_int_equal(hf_permits_set(permits, 1), HF_OK);
    int err = hf_permits_acquire_with(permits, given, &id);
    if (err == HF_OK)
        err = hf_permits_release(permits, &id);
    return err;
}

static int fill_result(struct world *w, void *ret) {
    int err = hf_lock_acquire_with(w->lock, NULL, ret);
    return err == HF_OK ? hf_lock_release(w->lock) : err;
}

static int wait_result(struct world *w, void *ret) {
    own_op *op;
    assert_int_equal(hf_ping_start(w->client, NULL, NULL, &op), HF_OK);
    return hf_op_wait(op, HANG_MS, ret);
}

static int fill_stats(struct world *w, void *ret) {
    return hf_client_stats(w->client, ret);
}

static const hf_options options = HF_OPTIONS_INIT;
static const hf_lock_options lock_options = HF_LOCK_OPTIONS_INIT;
static const hf_acquire_options acquire_options = HF_ACQUIRE_OPTIONS_INIT;
static const hf_wait_options wait_options = HF_WAIT_OPTIONS_INIT;
static const hf_permits_options permits_options = HF_PERMITS_OPTIONS_INIT;
static const hf_result result = HF_RESULT_INIT;
static const hf_stats stats = HF_STATS_INIT;

static const struct sized {
    int (*call)(struct world *w, void *given);
    const void *good;
    size_t size;
    const char *init;
} all[] = {
    {open_client, &options, sizeof options, "HF_OPTIONS_INIT"},
    {make_lock, &lock_options, sizeof lock_options, "HF_LOCK_OPTIONS_INIT"},
    {acquire, &acquire_options, sizeof acquire_options, "HF_ACQUIRE_OPTIONS_INIT"},
    {acquire_async, &acquire_options, sizeof acquire_options, "HF_ACQUIRE_OPTIONS_INIT"},
    {await, &wait_options, sizeof wait_options, "HF_WAIT_OPTIONS_INIT"},
    {take_permit, &permits_options, sizeof permits_options, "HF_PERMITS_OPTIONS_INIT"},
    {fill_result, &result, sizeof result, "HF_RESULT_INIT"},
    {wait_result, &result, sizeof result, "HF_RESULT_INIT"},
    {fill_stats, &stats, sizeof stats, "HF_STATS_INIT"},
};

#define FOR_EACH(sized)                                                                            \
    /* NOLINTNEXTLINE(bugprone-macro-parentheses): it is declared here */                          \
    for (const struct sized *sized = all; sized < all + sizeof all / sizeof *all; sized++)

static void fill(const struct sized *sized, size_t size, union room *room) {
    memset(room, 0, sizeof *room);
    memcpy(room, sized->good, sized->size);
    room->size = size;
}

/* ---- ---- */

WORLD_CASE(a_size_that_was_not_set_is_refused) {
    static const size_t sizes[] = {0, 1, sizeof(size_t), 4097, 1 << 20, SIZE_MAX};
    union room room;
    FOR_EACH(sized) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            fill(sized, sizes[i], &room);
            assert_int_equal(sized->call(w, &room), HF_EINVAL);
            assert_non_null(strstr(hf_last_error()->text, sized->init));
            assert_int_equal(room.size, sizes[i]);
        }
        assert_true(world_free(w)); /* of which nobody could have been notified */
    }
}

WORLD_CASE(a_newer_program_may_use_known_fields) {
    union room room;
    FOR_EACH(sized) {
        fill(sized, sized->size, &room);
        assert_int_equal(sized->call(w, &room), HF_OK);
        fill(sized, sized->size + 24, &room);
        assert_int_equal(sized->call(w, &room), HF_OK);
        for (size_t i = 0; i < 24; i++)
            assert_int_equal(room.bytes[sized->size + i], 0);
    }
}

WORLD_CASE(and_nothing_that_we_do_not_know) {
    union room room;
    FOR_EACH(sized) {
        for (size_t at = 0; at < 24; at++) {
            fill(sized, sized->size + 24, &room);
            room.bytes[sized->size + at] = 1;
            assert_int_equal(sized->call(w, &room), HF_EINVAL);
            assert_non_null(strstr(hf_last_error()->text, "does not know"));
        }
        fill(sized, sized->size, &room);
        room.bytes[sized->size] = 1; /* behind it: not ours to look at */
        assert_int_equal(sized->call(w, &room), HF_OK);
        assert_true(world_free(w));
    }
}

WORLD_CASE(outputs_say_how_much_was_written) {
    union room room;
    FOR_EACH(sized) {
        if (sized->call != fill_result && sized->call != wait_result && sized->call != fill_stats)
            continue;
        fill(sized, sized->size + 24, &room);
        assert_int_equal(sized->call(w, &room), HF_OK);
        assert_int_equal(room.size, sized->size);
    }
}

RUN_CASES(world_start_server, world_stop_server)
