/*
 * Very many nodes beneath one name. As long as the list of them is no longer than 4 MiB all is as
 * ever; above that, a client that asks for the list is refused, with words, and nobody else of the
 * client notices: the connection stays, and so does what is held by it.
 *
 * Holders it can be so many that to delete them is more than a server takes in one request.
 *
 * Some thousands of nodes here, with long names where the list is to be long; a hundred thousand in `make soak`.
 */
#include "support/case.h"
#include "zk/scene.h"

enum {
    FEW = 2000,
    MANY = 100000,
    PLACE_NAME = 55, /* bytes of a place in a queue */
    LONG_NAME = 1000,
    LIST_MAX = 4 * 1024 * 1024
};

static bool in_soak(void) {
    return getenv("HF_SOAK") != NULL;
}

static void make(const char *format, const char *parent, int number, const char *filler) {
    own_text *path = text_of(format, parent, number, filler);
    assert_int_equal(zk_make(scene.eyes, path, "", 0), 0);
}

static hf_fleet *survey(hf_client *client, const char *pattern) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    options.limit_ms = HANG_MS;
    assert_hf(HF_OK, hf_survey(client, &options, &fleet));
    return fleet;
}

/* ---- A long queue ---------------------------------------------------------------------------- */

/* As Curator's mutex makes them without protection; they stay, so the queue does not move but by a break. */
CASE_AROUND(a_queue_of_many, scene_heal, NULL) {
    int waiters = in_soak() ? MANY : FEW;
    own_client *client = scene_direct(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "many");
    hf_lock_info *info = NULL;
    bool locked = false, broken = false;
    assert_int_equal(zk_make(scene.eyes, "/many", "", 0), 0);
    for (int i = 0; i < waiters; i++)
        make("%s/lock-%010d%s", "/many", i, "");
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_int_equal(zk_count(scene.eyes, "/many"), waiters);
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(lock, 50));
    assert_true(zk_wait_children(scene.eyes, "/many", waiters, HANG_MS));
    assert_hf(HF_OK, hf_lock_is_locked(lock, &locked));
    assert_true(locked);
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    assert_int_equal(info->holders_len, 1);
    assert_int_equal(info->waiters_len, 99);
    hf_lock_info_free(info);
    hf_fleet *fleet = survey(client, "many");
    assert_string_equal(fleet->missing_text, "");
    assert_int_equal(fleet->locks_len, 1);
    assert_int_equal(fleet->locks[0]->listeners, waiters - 1);
    hf_fleet_free(fleet);
    assert_hf(HF_OK, hf_lock_break(lock, &broken));
    assert_true(broken);
    assert_int_equal(zk_exists(scene.eyes, "/many/lock-0000000000"), ZK_NO_NODE);
}

/* ---- Many who hold it ------------------------------------------------------------------------ */

/* Readers of nobody's, who stay: a lock whose name is so long that deleting them all is more than a server takes in one
 * request. In soak the name is short, and they are more. */
struct readers {
    int count;
    char name[801], path[802];
    hf_client *client;
    hf_lock *read, *write;
};

static void readers_begin(struct readers *readers, char letter) {
    readers->count = in_soak() ? 30000 : 1500;
    size_t name_len = in_soak() ? 8 : 800;
    memset(readers->name, letter, name_len);
    readers->name[name_len] = '\0';
    snprintf(readers->path, sizeof readers->path, "/%s", readers->name);
    assert_int_equal(zk_make(scene.eyes, readers->path, "", 0), 0);
    for (int i = 0; i < readers->count; i++)
        make("%s/__READ__%010d%s", readers->path, i, "");
    readers->client = scene_proxied(SURVIVES_MS);
    readers->read = scene_lock(readers->client, HF_READ, readers->name);
    readers->write = scene_lock(readers->client, HF_WRITE, readers->name);
    assert_hf(HF_EBUSY, hf_lock_try(readers->write));
}

static void assert_all_are_broken(struct readers *readers) {
    bool broken = false;
    assert_hf(HF_OK, hf_lock_break(readers->read, &broken));
    assert_true(broken);
    assert_true(zk_wait_children(scene.eyes, readers->path, 0, HANG_MS));
    assert_hf(HF_OK, hf_lock_try(readers->write));
    assert_hf(HF_OK, hf_lock_release(readers->write));
}

static void readers_end(struct readers *readers) {
    hf_lock_free(readers->read);
    hf_lock_free(readers->write);
    hf_close(readers->client);
}

CASE_AROUND(many_readers_are_broken_in_pieces, scene_heal, NULL) {
    OWN(readers_end) struct readers readers;
    readers_begin(&readers, 'p');
    size_t before = proxy_seen(scene.proxy, "multi");
    assert_all_are_broken(&readers);
    assert_true(proxy_seen(scene.proxy, "multi") > before + 1);
}

/* A reader of the one piece leaves before its nodes are deleted: the others are, all the same. */
CASE_AROUND(one_of_many_leaves_meanwhile, scene_heal, NULL) {
    OWN(readers_end) struct readers readers;
    char left[1024];
    bool broken = false;
    readers_begin(&readers, 'm');
    hf_op *op = NULL;
    proxy_stall_request(scene.proxy, "multi");
    assert_hf(HF_OK, hf_lock_break_start(readers.read, NULL, NULL, &op));
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    for (int i = 0; i < readers.count; i += readers.count / 3) {
        snprintf(left, sizeof left, "%s/__READ__%010d", readers.path, i);
        assert_int_equal(zk_delete(scene.eyes, left), 0);
    }
    assert_true(proxy_release_held(scene.proxy) > 0);
    hf_result result = HF_RESULT_INIT;
    assert_hf(HF_OK, joined(op, &result));
    assert_true(zk_wait_children(scene.eyes, readers.path, 0, HANG_MS));
    assert_hf(HF_OK, hf_lock_break(readers.read, &broken));
    assert_false(broken);
}

/* The answer to a piece is lost: it is sent again, finds nothing any more, and the others follow. */
CASE_AROUND(an_answer_of_a_piece_is_lost, scene_heal, NULL) {
    OWN(readers_end) struct readers readers;
    readers_begin(&readers, 'a');
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_all_are_broken(&readers);
    assert_int_equal(proxy_fired(scene.proxy), fired + 1);
}

/* Leases as Curator's semaphore makes them, and with them the number of permits. */
CASE_AROUND(many_permits_are_deleted_in_pieces, scene_heal, NULL) {
    enum { LEASES = 1500 };
    char name[801], path[1024];
    own_client *client = scene_direct(SURVIVES_MS);
    own_permits *permits = NULL;
    int64_t free = -1;
    bool deleted = false;
    memset(name, 'l', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_hf(HF_OK, hf_permits_new(client, name, &permits));
    assert_hf(HF_OK, hf_permits_set(permits, 2 * LEASES));
    snprintf(path, sizeof path, "/%s/leases", name);
    (void)zk_make(scene.eyes, path, "", 0); /* unless the number has made it */
    for (int i = 0; i < LEASES; i++)
        make("%s/lease-%010d%s", path, i, "");
    assert_hf(HF_OK, hf_permits_available(permits, &free));
    assert_int_equal(free, LEASES);
    assert_hf(HF_OK, hf_permits_delete(permits, &deleted));
    assert_true(deleted);
    assert_true(zk_wait_children(scene.eyes, path, 0, HANG_MS));
    assert_hf(HF_OK, hf_permits_delete(permits, &deleted));
    assert_false(deleted);
}

/* ---- A list that is too long ----------------------------------------------------------------- */

/* Until the list is longer than it may be. Returns how many there are then. */
static int make_too_many(const char *parent) {
    char filler[LONG_NAME + 1] = "";
    size_t name_len = in_soak() ? PLACE_NAME : LONG_NAME;
    memset(filler, 'x', name_len - strlen("filler-0000000000"));
    int count = (int)(LIST_MAX / (name_len + 4)) + 1;
    assert_int_equal(zk_make(scene.eyes, parent, "", 0), 0);
    for (int i = 0; i < count; i++)
        make("%s/filler-%010d%s", parent, i, filler);
    return count;
}

static void assert_too_long(int err) {
    assert_hf(HF_EPROTO, err);
    assert_non_null(strstr(hf_last_error()->text, "over 4 MiB"));
}

CASE_AROUND(a_list_that_is_too_long_is_refused, scene_heal, NULL) {
    own_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "long"),
            *other = scene_lock(client, HF_PLAIN, "other");
    hf_lock_info *info = NULL;
    bool flag;
    assert_hf(HF_OK, hf_lock_acquire(other));
    int count = make_too_many("/long");
    assert_too_long(hf_lock_try(lock));
    assert_too_long(hf_lock_acquire(lock));
    assert_too_long(hf_lock_acquire_for(lock, 1000));
    assert_too_long(hf_lock_is_locked(lock, &flag));
    assert_too_long(hf_lock_inspect(lock, &info));
    assert_too_long(hf_lock_break(lock, &flag));
    assert_null(info);

    /* A survey tells of the others, and that it does not tell all. */
    hf_fleet *fleet = survey(client, "o*");
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->missing_text, "");
    hf_fleet_free(fleet);
    fleet = survey(client, NULL);
    assert_true(fleet->locks_len >= 1);
    assert_string_equal(fleet->missing_text, "a list of nodes is longer than a reply may be");
    hf_fleet_free(fleet);

    /* Nothing of ours is left there, and nobody else has noticed. */
    assert_true(zk_wait_children(scene.eyes, "/long", count, HANG_MS));
    assert_int_equal(scene_stats(client).reconnects, 0);
    assert_int_equal(scene_stats(client).holds, 1);
    assert_true(hf_lock_remaining_ms(other) > 0);
    assert_hf(HF_OK, hf_lock_release(other));
    hf_lock_free(other);
    hf_lock_free(lock);
}

/* One who waits has asked for the list before; when it is its turn it asks again. */
CASE_AROUND(a_queue_that_becomes_too_long, scene_heal, NULL) {
    hf_client *holder = scene_direct(SURVIVES_MS), *client = scene_direct(SURVIVES_MS);
    hf_lock *held = scene_lock(holder, HF_READ, "grows"),
            *wanted = scene_lock(client, HF_WRITE, "grows");
    assert_hf(HF_OK, hf_lock_acquire(held));
    hf_op *op = scene_acquire_start(wanted);
    assert_true(zk_wait_children(scene.eyes, "/grows", 2, HANG_MS));
    char filler[LONG_NAME + 1] = "";
    memset(filler, 'x', LONG_NAME);
    int count = LIST_MAX / (LONG_NAME + 4) + 1;
    for (int i = 0; i < count; i++)
        make("%s/%010d%s", "/grows", i, filler);
    assert_hf(HF_EPENDING, hf_op_wait(op, 0, NULL));
    assert_hf(HF_OK, hf_lock_release(held));
    assert_hf(HF_EPROTO, hf_op_wait(op, HANG_MS, NULL));
    assert_true(zk_wait_children(scene.eyes, "/grows", count, HANG_MS));
    hf_op_free(op);
    hf_lock_free(held);
    hf_lock_free(wanted);
    hf_close(holder);
    hf_close(client);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
