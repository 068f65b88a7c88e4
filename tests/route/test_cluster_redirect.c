/*
 * What a server of a cluster may say instead of doing what it was asked: each time the command is done in
 * the end, where it belongs, and once. With real servers and real slots.
 */
#include "route/ring.h"

/* A slot, who serves it, and who is to. */
struct move {
    struct ring r;
    unsigned slot;
    struct server *from, *to;
    struct monitor *at_from, *at_to;
};

/* Both servers know the scripts, and the client knows who serves what. */
static void warm_up(struct move *m, any_kind kind) {
    struct server *const servers[] = {m->from, m->to};
    for (size_t i = 0; i < 2; i++) {
        char name[32];
        ring_name_at(&m->r, servers[i], "warm", name);
        own_lock *lock = scene_lock(m->r.client, kind, name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
}

static void begin(struct move *m, const char *name, any_kind kind, const hf_options *options) {
    ring_begin(&m->r, options);
    m->slot = shards_slot(m->r.shards, name);
    m->from = shards_owner(m->r.shards, m->slot);
    m->to = shards_other(m->r.shards, m->from);
    warm_up(m, kind);
    m->at_from = monitor_start(m->from);
    m->at_to = monitor_start(m->to);
}

static void end(struct move *m) {
    monitor_stop(m->at_from);
    monitor_stop(m->at_to);
    ring_end(&m->r);
}

/* How often an acquire was done at each; a hold that has moved may also have been verified by now. */
static void assert_acquired(struct move *m, const char *name, size_t at_from, size_t at_to) {
    own_text *done = text_of("\"hset\" \"%s\"", name);
    assert_int_equal(monitor_count(m->at_from, done), at_from);
    assert_int_equal(monitor_count(m->at_to, done), at_to);
}

CASE_IN(moved, struct move, m, begin, end, "moved", HF_PLAIN, NULL) {
    own_lock *lock = scene_lock(m->r.client, HF_PLAIN, "moved");
    shards_open_slot(m->r.shards, m->slot, m->from, m->to);
    shards_close_slot(m->r.shards, m->slot, m->from, m->to);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_acquired(m, "moved", 0, 1);
    assert_int_equal(scene_stats(m->r.client).redirects, 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_stats(m->r.client).redirects, 1); /* it is known now */
    assert_int_equal(scene_stats(m->r.client).failovers, 0);
}

/* Held while its slot moves: the hold goes along, and the map is learnt by a client that asks first. */
CASE_IN(U83_moved_while_held, struct move, m, begin, end, "held", HF_PLAIN, NULL) {
    own_lock *lock = scene_lock(m->r.client, HF_PLAIN, "held");
    own_lock *rival = scene_lock(m->r.rival, HF_PLAIN, "held");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    shards_move_slot(m->r.shards, m->slot, m->from, m->to);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(scene_stats(m->r.client).losses, 0);
}

/* What must not be done twice is not. */
CASE_IN(moved_what_counts, struct move, m, begin, end, "counted", HF_PLAIN, NULL) {
    bool set;
    int64_t left;
    own_sem *sem = made(hf_sem_new, m->r.client, "counted");
    assert_int_equal(hf_sem_try_set(sem, 10, 0, &set), HF_OK);
    shards_move_slot(m->r.shards, m->slot, m->from, m->to);
    assert_int_equal(hf_sem_release(sem, 3), HF_OK);
    assert_int_equal(hf_sem_available(sem, &left), HF_OK);
    assert_int_equal(left, 13);
    assert_int_equal(hf_sem_acquire(sem, 1), HF_OK);
    assert_int_equal(hf_sem_available(sem, &left), HF_OK);
    assert_int_equal(left, 12);
    assert_int_equal(scene_stats(m->r.client).in_doubt, 0);
}

/* One key, which is not where the slot is: each command is done at the other, and asks again before the next. */
CASE_IN(asked, struct move, m, begin, end, "asked", HF_PLAIN, NULL) {
    own_lock *lock = scene_lock(m->r.client, HF_PLAIN, "asked");
    own_lock *rival = scene_lock(m->r.rival, HF_PLAIN, "asked");
    shards_open_slot(m->r.shards, m->slot, m->from, m->to);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_acquired(m, "asked", 0, 1);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_true(scene_stats(m->r.client).redirects >= 3);
    shards_close_slot(m->r.shards, m->slot, m->from, m->to);
}

/* By either server: which of the two says TRYAGAIN, the other having said ASK, depends on the version. */
struct said {
    const struct move *move;
    const char *word;
    long long before;
};

static long long times_said_by(struct server *server, const char *word) {
    char field[64];
    own_text *info = cmd_str(server, "INFO errorstats");
    snprintf(field, sizeof field, "errorstat_%s:count=", word);
    const char *found = strstr(info, field);
    return found != NULL ? atoll(found + strlen(field)) : 0;
}

static long long times_said(const struct move *m, const char *word) {
    return times_said_by(m->from, word) + times_said_by(m->to, word);
}

static bool is_said(void *arg) {
    const struct said *said = arg;
    return times_said(said->move, said->word) > said->before + 1;
}

/* Several keys, some of which do not exist: neither server knows where they are until the move is
 * over. */
CASE_IN(U84_TRYAGAIN_is_retried, struct move, m, begin, end, "again", HF_PLAIN | HF_FENCED, NULL) {
    struct scene_waiter waiter;
    own_lock *lock = scene_lock(m->r.client, HF_PLAIN | HF_FENCED, "again");
    assert_int_equal(hf_lock_acquire(lock), HF_OK); /* the counter of its tokens stays */
    assert_int_equal(hf_lock_release(lock), HF_OK);
    shards_open_slot(m->r.shards, m->slot, m->from, m->to);
    struct said said = {m, "TRYAGAIN", times_said(m, "TRYAGAIN")};
    scene_wait_for(&waiter, lock);
    assert_true(wait_until(is_said, &said, HANG_MS));
    shards_move_keys(m->r.shards, m->slot, m->from, m->to);
    shards_close_slot(m->r.shards, m->slot, m->from, m->to);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_acquired(m, "again", 1, 1); /* the first was before */
    assert_int_equal(hf_lock_release_as(lock, waiter.owner), HF_OK);
}

/* Nobody serves it for a while. */
CASE_IN(U87_CLUSTERDOWN_is_retried, struct move, m, begin, end, "down", HF_PLAIN, NULL) {
    struct scene_waiter waiter;
    own_lock *lock = scene_lock(m->r.client, HF_PLAIN, "down");
    struct said said = {m, "CLUSTERDOWN", times_said(m, "CLUSTERDOWN")};
    cmd_ok(m->from, "CLUSTER DELSLOTS %u", m->slot);
    scene_wait_for(&waiter, lock);
    assert_true(wait_until(is_said, &said, HANG_MS));
    cmd_ok(m->from, "CLUSTER ADDSLOTS %u", m->slot);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_acquired(m, "down", 1, 0);
    assert_int_equal(hf_lock_release_as(lock, waiter.owner), HF_OK);
}

/* ---- Renewals ---- */

struct renewed {
    hf_client *client;
    uint64_t at_least;
};

static bool is_renewed(void *arg) {
    const struct renewed *renewed = arg;
    return scene_stats(renewed->client).renewals >= renewed->at_least;
}

static void wait_renewed(hf_client *client, uint64_t more) {
    struct renewed renewed = {client, scene_stats(client).renewals + more};
    assert_true(wait_until(is_renewed, &renewed, HANG_MS));
}

/* Three of one slot go in one script, and one of another slot does not; then some of them are on the
 * move. */
CASE(renewed_by_slot) {
    OWN(end) struct move m;
    static const char *const names[] = {"{one}a", "{one}b", "{one}c", "two"};
    enum { NAMES = sizeof names / sizeof names[0] };
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    options.flags |=
        HF_NO_TRACKING; /* a report of a moved key has it renewed apart from the others */
    hf_lock *locks[NAMES];
    begin(&m, "{one}", HF_PLAIN, &options);
    for (size_t i = 0; i < NAMES; i++) {
        locks[i] = scene_lock(m.r.client, HF_PLAIN, names[i]);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    assert_true(monitor_wait(m.at_from, "\"3\" \"{one}", 1, HANG_MS));
    shards_open_slot(m.r.shards, m.slot, m.from, m.to);
    shards_move_key(m.r.shards, m.from, m.to, names[1]);
    wait_renewed(m.r.client, 2 * NAMES + 1);
    shards_move_keys(m.r.shards, m.slot, m.from, m.to);
    shards_close_slot(m.r.shards, m.slot, m.from, m.to);
    assert_true(monitor_wait(m.at_to, "\"3\" \"{one}", 1, HANG_MS));
    assert_int_equal(scene_stats(m.r.client).losses, 0);
    for (size_t i = 0; i < NAMES; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
}

/* ---- The wrong scheme ---- */

RING_CASE(a_cluster_as_one_server) {
    char name[32];
    struct server *other = shards_other(r->shards, shards_server(r->shards, 0));
    ring_name_at(r, other, "wrong", name);
    own_client *client = made(hf_open, server_tcp_url(shards_server(r->shards, 0)), NULL);
    own_lock *lock = scene_lock(client, HF_PLAIN, name);
    assert_int_equal(hf_lock_acquire(lock), HF_ENOTSUP);
    assert_non_null(strstr(hf_last_error()->text, "redis-cluster://"));
}

CASE(one_server_as_a_cluster) {
    const struct server_options options = {.tcp = true};
    own_server *server = server_start(&options);
    own_text *url = text_of("redis-cluster://127.0.0.1:%d", server_port(server));
    own_client *client = made(hf_open, url, NULL);
    own_lock *lock = scene_lock(client, HF_PLAIN, "wrong");
    assert_int_equal(hf_lock_acquire(lock), HF_ENOTSUP);
    assert_non_null(strstr(hf_last_error()->text, "use redis://"));
}

RUN_CASES(ring_start, ring_stop)
