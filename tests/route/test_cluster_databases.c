/*
 * Databases of a cluster (Valkey 9, cluster-databases): a lock is its name in its database, there as elsewhere. A
 * cluster with one database refuses the others.
 *
 * A cluster of its own for each case.
 */
#include "route/scene.h"
#include "support/shards.h"

#define DATABASE 3

static hf_client *open_database(const struct shards *shards, int db) {
    char url[512];
    hf_client *client;
    hf_options options = scene_options();
    options.report_after_ms = 0; /* a survey asks every client at once */
    snprintf(url, sizeof url, "%s/%d", shards_url(shards), db);
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    return client;
}

CASE(one_database_refuses_the_others) {
    struct shards *shards = shards_start(NULL);
    hf_client *client = open_database(shards, DATABASE);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "mine");
    assert_int_equal(hf_lock_try(lock), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "no database 3"));
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    shards_free(shards);
}

static long long count_keys(struct shards *shards, int db) {
    long long keys = 0;
    for (int i = 0; i < shards_count(shards); i++) {
        struct server *server = shards_server(shards, i);
        cmd_ok(server, "SELECT %d", db);
        keys += cmd_int(server, "DBSIZE");
        cmd_ok(server, "SELECT 0");
    }
    return keys;
}

static void separate(struct shards *shards, any_kind kind, const char *name) {
    hf_client *zero = open_database(shards, 0), *three = open_database(shards, DATABASE);
    hf_client *waiting = open_database(shards, DATABASE);
    hf_lock *in_zero = scene_lock(zero, kind, name), *in_three = scene_lock(three, kind, name);
    hf_lock *rival = scene_lock(waiting, kind, name);
    struct scene_waiter waiter;
    assert_int_equal(hf_lock_try(in_zero), HF_OK);
    assert_int_equal(hf_lock_try(in_three), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_true(count_keys(shards, 0) > 0);
    assert_true(count_keys(shards, DATABASE) > 0);
    scene_wait_for(&waiter, rival);
    assert_int_equal(hf_lock_release(in_zero), HF_OK);
    struct server *from = shards_owner_of(shards, name);
    assert_true(shards_move_slot_at_once(shards, shards_slot(shards, name), from,
                                         shards_other(shards, from)));
    assert_int_equal(hf_lock_extend(in_three, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(in_three), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    hf_lock_free(in_zero);
    hf_lock_free(in_three);
    hf_lock_free(rival);
    hf_close(zero);
    hf_close(three);
    hf_close(waiting);
}

/* Key by key: who is sent after a key asks in the same database. */
static void moves_by_key(struct shards *shards, any_kind kind, const char *name) {
    hf_client *zero = open_database(shards, 0), *three = open_database(shards, DATABASE);
    hf_client *other = open_database(shards, DATABASE);
    hf_lock *in_zero = scene_lock(zero, kind, name), *in_three = scene_lock(three, kind, name);
    hf_lock *rival = scene_lock(other, kind, name);
    unsigned slot = shards_slot(shards, name);
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    assert_int_equal(hf_lock_try(in_three), HF_OK);
    shards_open_slot(shards, slot, from, to);
    cmd_ok(from, "SELECT %d", DATABASE);
    cmd_ok(from, "MIGRATE 127.0.0.1 %d %s %d %d", server_port(to), name, DATABASE, HANG_MS);
    cmd_ok(from, "SELECT 0");
    assert_int_equal(hf_lock_extend(in_three, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_try(in_zero), HF_OK);
    assert_int_equal(hf_lock_release(in_zero), HF_OK);
    shards_close_slot(shards, slot, from, to);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release(in_three), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_true(scene_stats(three).redirects > 0);
    assert_int_equal(scene_stats(three).losses, 0);
    hf_lock_free(in_zero);
    hf_lock_free(in_three);
    hf_lock_free(rival);
    hf_close(zero);
    hf_close(three);
    hf_close(other);
}

CASE(a_redirected_client_stays_in_its_database) {
    if (!shards_can_have_databases())
        skip();
    struct shards *shards = shards_start(&(struct shards_options){.databases = 16});
    moves_by_key(shards, HF_PLAIN, "by-key");
    shards_free(shards);
}

/* ---- What is no lock, and what looks at locks ---- */

static void separate_sem(hf_client *zero, hf_client *three) {
    int64_t left;
    bool set;
    own_sem *in_zero = made(hf_sem_new, zero, "sem");
    own_sem *in_three = made(hf_sem_new, three, "sem");
    assert_int_equal(hf_sem_try_set(in_zero, 1, 0, &set), HF_OK);
    assert_int_equal(hf_sem_try_set(in_three, 2, 0, &set), HF_OK);
    assert_true(set);
    assert_int_equal(hf_sem_acquire(in_three, 2), HF_OK);
    assert_int_equal(hf_sem_available(in_zero, &left), HF_OK);
    assert_int_equal(left, 1);
}

static void separate_permits(hf_client *zero, hf_client *three) {
    hf_permit_id one, other;
    bool set;
    own_permits *in_zero = made(hf_permits_new, zero, "permits");
    own_permits *in_three = made(hf_permits_new, three, "permits");
    assert_int_equal(hf_permits_try_set(in_zero, 1, &set), HF_OK);
    assert_int_equal(hf_permits_try_set(in_three, 1, &set), HF_OK);
    assert_true(set);
    assert_int_equal(hf_permits_acquire(in_three, &one), HF_OK);
    assert_int_equal(hf_permits_acquire(in_zero, &other), HF_OK);
    assert_int_equal(hf_permits_release(in_three, &one), HF_OK);
    assert_int_equal(hf_permits_release(in_zero, &other), HF_OK);
}

static void separate_latch(hf_client *zero, hf_client *three) {
    int64_t left;
    bool set;
    own_latch *in_zero = made(hf_latch_new, zero, "latch");
    own_latch *in_three = made(hf_latch_new, three, "latch");
    assert_int_equal(hf_latch_try_set(in_zero, 1, &set), HF_OK);
    assert_int_equal(hf_latch_try_set(in_three, 1, &set), HF_OK);
    assert_true(set);
    assert_int_equal(hf_latch_count_down(in_three), HF_OK);
    assert_int_equal(hf_latch_await(in_three), HF_OK);
    assert_int_equal(hf_latch_count(in_zero, &left), HF_OK);
    assert_int_equal(left, 1);
}

static size_t surveyed(hf_client *client) {
    own_fleet *fleet;
    assert_int_equal(hf_survey(client, NULL, &fleet), HF_OK);
    return fleet->locks_len;
}

/* A survey, an inspection and a break see one database. */
static void look_into(hf_client *zero, hf_client *three) {
    own_lock *in_zero = scene_lock(zero, HF_PLAIN, "seen");
    own_lock *in_three = scene_lock(three, HF_PLAIN, "seen");
    hf_lock_info *info;
    bool broken;
    assert_int_equal(hf_lock_try(in_three), HF_OK);
    assert_int_equal(hf_lock_inspect(in_zero, &info), HF_OK);
    assert_int_equal(info->holders_len, 0);
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_inspect(in_three, &info), HF_OK);
    assert_int_equal(info->holders_len, 1);
    hf_lock_info_free(info);
    assert_int_equal(surveyed(zero), 0);
    assert_int_equal(surveyed(three), 1);
    assert_int_equal(hf_lock_break(in_zero, &broken), HF_OK);
    assert_false(broken);
    assert_int_equal(hf_lock_break(in_three, &broken), HF_OK);
    assert_true(broken);
}

CASE(each_database_has_its_own_objects_and_views) {
    if (!shards_can_have_databases())
        skip();
    struct shards *shards = shards_start(&(struct shards_options){.databases = 16});
    hf_client *zero = open_database(shards, 0), *three = open_database(shards, DATABASE);
    look_into(zero, three);
    separate_sem(zero, three);
    separate_permits(zero, three);
    separate_latch(zero, three);
    hf_close(zero);
    hf_close(three);
    shards_free(shards);
}

CASE(each_database_has_its_own_locks) {
    static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_FENCED, HF_FAIR, HF_WRITE, HF_STRING};
    if (!shards_can_have_databases())
        skip();
    struct shards *shards = shards_start(&(struct shards_options){.databases = 16});
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        own_text *name = text_of("both-%zu", i);
        separate(shards, kinds[i], name);
    }
    shards_free(shards);
}

RUN_CASES(NULL, NULL)
