/*
 * A lock's key with unexpected content: overwritten with another type, or with a forged field.
 *
 * A holder whose key has become something else has lost its lock: the call that finds out returns
 * that, the callback reports it, and it is counted. And the server survives any number in a field.
 */
#include "lock/group.h"

struct kind_case {
    const char *name;
    any_kind kind;
    bool group; /* values of it, whatever the kind */
};

static const struct kind_case cases[] = {
    {"plain", HF_PLAIN, false}, {"nonreentrant", HF_NONREENTRANT, false},
    {"spin", HF_SPIN, false},   {"fenced", HF_FENCED, false},
    {"fair", HF_FAIR, false},   {"read", HF_READ, false},
    {"write", HF_WRITE, false}, {"group", HF_PLAIN, true},
};
enum { CASES = sizeof cases / sizeof *cases };

static hf_lock *new_case(const struct world *w, const struct kind_case *kind) {
    if (kind->group)
        return new_values(w->client, "jack mary");
    return made(new_lock, w->client, kind->kind, WORLD_NAME, strlen(WORLD_NAME));
}

static void hold(struct world *w, const struct kind_case *kind, const hf_options *options,
                 struct world_events *events) {
    world_begin(w, options);
    hf_lock_free(w->lock);
    w->lock = new_case(w, kind);
    *events = (struct world_events){0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
}

static void overwrite(const struct world *w) {
    cmd_ok(w->server, "SET " WORLD_NAME " text");
}

/* Reported once, counted once, and nothing is held any more. */
static void assert_lost(struct world *w, struct world_events *events) {
    assert_true(world_wait_atomic(&events->losses, 1, HANG_MS));
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    redisReply *reply = cmd(w->server, "GET " WORLD_NAME); /* what is there is left alone */
    assert_string_equal(reply->str, "text");
    freeReplyObject(reply);
    world_end(w);
    assert_int_equal(atomic_load(&events->losses), 1);
}

CASE(a_release_of_an_overwritten_hold) {
    struct world w;
    struct world_events events;
    for (int i = 0; i < CASES; i++) {
        printf("%s\n", cases[i].name);
        hold(&w, &cases[i], NULL, &events);
        overwrite(&w);
        assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
        assert_lost(&w, &events);
    }
}

CASE(an_extension_of_an_overwritten_hold) {
    struct world w;
    struct world_events events;
    for (int i = 0; i < CASES; i++) {
        printf("%s\n", cases[i].name);
        hold(&w, &cases[i], NULL, &events);
        overwrite(&w);
        assert_int_equal(hf_lock_extend(w.lock, 90000), HF_ELOST);
        assert_lost(&w, &events);
    }
}

CASE(a_renewal_of_an_overwritten_hold) {
    struct world w;
    struct world_events events;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    for (int i = 0; i < CASES; i++) {
        printf("%s\n", cases[i].name);
        hold(&w, &cases[i], &options, &events);
        overwrite(&w);
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
        assert_lost(&w, &events);
    }
}

/* The acquire says what it met; what was held before is looked at because of it, long before the next
 * renewal. */
CASE(a_nested_acquire_of_an_overwritten_hold) {
    struct world w;
    struct world_events events;
    for (int i = 0; i < CASES; i++) {
        if (cases[i].kind == HF_NONREENTRANT)
            continue; /* it refuses before it asks */
        printf("%s\n", cases[i].name);
        hold(&w, &cases[i], NULL, &events);
        overwrite(&w);
        assert_int_equal(hf_lock_acquire(w.lock), HF_EWRONGTYPE);
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS / 2));
        assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
        assert_lost(&w, &events);
    }
}

/* ---- Forged ---- */

static bool is_alive(struct server *server) {
    own_reply *reply = cmd(server, "PING");
    return reply->type == REDIS_REPLY_STATUS;
}

static hf_lock *side(struct world *w, any_kind kind) {
    return made(new_lock, w->client, kind, WORLD_NAME, strlen(WORLD_NAME));
}

/* A reader that has an endless count keeps writers out, as any would, and nobody else's calls go on for
 * ever. What cannot be released for its sake is still held. */
WORLD_CASE(a_reader_with_an_endless_count) {
    bool broken;
    hf_lock *read = side(w, HF_READ), *write = side(w, HF_WRITE);
    cmd_ok(w->server, "HSET " WORLD_NAME " mode read 0:1 1e308 0:2 -1e308"); /* none in all */
    assert_int_equal(hf_lock_try(write), HF_EBUSY);
    assert_int_equal(hf_lock_acquire(read), HF_OK);
    assert_int_equal(hf_lock_acquire(read), HF_OK);
    assert_int_equal(hf_lock_extend(read, 90000), HF_OK);
    assert_int_equal(hf_lock_release(read), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(read), HF_EWRONGTYPE);
    assert_int_equal(world_stats(w->client).losses, 0);
    assert_true(is_alive(w->server));
    assert_int_equal(hf_lock_break(read, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(hf_lock_try(write), HF_OK);
    assert_int_equal(hf_lock_release(write), HF_OK);
    hf_lock_free(read);
    hf_lock_free(write);
}

/* The same in a hold of ours. */
CASE(our_own_count_is_endless) {
    struct world w;
    struct world_events events;
    for (int i = 0; i < CASES; i++) {
        if (cases[i].group)
            continue; /* its counts are in other fields */
        printf("%s\n", cases[i].name);
        hold(&w, &cases[i], NULL, &events);
        cmd_ok(w.server, "HSET " WORLD_NAME " %s%s 1e308", w.owner,
               cases[i].kind == HF_WRITE ? ":write" : "");
        /* whether a reader is there depends on its count, as levels have keys of their own */
        int err = cases[i].kind == HF_READ ? HF_ELOST : HF_EWRONGTYPE;
        assert_int_equal(hf_lock_release(w.lock), err);
        assert_true(is_alive(w.server));
        world_end(&w);
    }
}

RUN_CASES(world_start_server, world_stop_server)
