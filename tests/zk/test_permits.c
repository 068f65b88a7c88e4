/*
 * Permits with leases in ZooKeeper, on the nodes of Curator's InterProcessSemaphoreV2. What is on the server
 * is looked at, and changed, past the library.
 */
#include "support/case.h"
#include "zk/scene.h"

#define BRIEF_MS 1500 /* a lease that is waited out */

struct pool {
    struct scene_pair pair;
    hf_permits *ours, *theirs;
};

static void begin(struct pool *p, const char *name) {
    scene_pair_begin(&p->pair);
    assert_int_equal(hf_permits_new(p->pair.ours, name, &p->ours), HF_OK);
    assert_int_equal(hf_permits_new(p->pair.theirs, name, &p->theirs), HF_OK);
}

static void end(struct pool *p) {
    hf_permits_free(p->ours);
    hf_permits_free(p->theirs);
    scene_pair_end(&p->pair);
}

static int take(hf_permits *permits, int64_t count, int64_t wait_ms, int64_t lease_ms,
                hf_permit_id *ids) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = count;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    return hf_permits_acquire_with(permits, &options, ids);
}

static hf_op *take_start(hf_permits *permits, int64_t count, hf_permit_id *ids) {
    hf_op *op = NULL;
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = count;
    assert_int_equal(hf_permits_acquire_start(permits, &options, ids, NULL, NULL, &op), HF_OK);
    return op;
}

static void assert_numbers(hf_permits *permits, int64_t total, int64_t taken) {
    int64_t number = -99;
    assert_int_equal(hf_permits_total(permits, &number), HF_OK);
    assert_int_equal(number, total);
    assert_int_equal(hf_permits_taken(permits, &number), HF_OK);
    assert_int_equal(number, taken);
    assert_int_equal(hf_permits_available(permits, &number), HF_OK);
    assert_int_equal(number, total - taken);
}

CASE(the_number_of_permits) {
    OWN(end) struct pool p;
    bool done = false;
    int64_t number = -1;
    begin(&p, "pool/number");
    assert_int_equal(hf_permits_available(p.ours, &number), HF_OK);
    assert_int_equal(number, 0);
    assert_int_equal(hf_permits_try_set(p.ours, 3, &done), HF_OK);
    assert_true(done);
    assert_int_equal(hf_permits_try_set(p.theirs, 9, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_permits_add(p.theirs, 2), HF_OK);
    assert_numbers(p.ours, 5, 0);
    assert_int_equal(hf_permits_set(p.ours, 4), HF_OK);
    assert_numbers(p.theirs, 4, 0);
    size_t len = 0;
    char *data = zk_data(scene.eyes, "/pool/number/permits", &len);
    assert_non_null(data);
    assert_int_equal(len, 4);
    assert_memory_equal(data, "\0\0\0\4", 4);
    free(data);
    assert_int_equal(hf_permits_delete(p.ours, &done), HF_OK);
    assert_true(done);
    assert_int_equal(hf_permits_delete(p.ours, &done), HF_OK);
    assert_false(done);
}

CASE_IN(taken_and_given_back, struct pool, p, begin, end, "pool/take") {
    hf_permit_id ids[3], more[2];
    assert_int_equal(hf_permits_set(p->ours, 3), HF_OK);
    assert_int_equal(take(p->ours, 2, 0, HF_WATCHDOG, ids), HF_OK);
    assert_int_equal(take(p->theirs, 2, 0, HF_WATCHDOG, more), HF_EBUSY);
    assert_int_equal(take(p->theirs, 2, 20, HF_WATCHDOG, more), HF_ETIMEDOUT);
    assert_int_equal(take(p->theirs, 1, 0, HF_WATCHDOG, &ids[2]), HF_OK);
    assert_numbers(p->ours, 3, 3);
    scene_await_empty("/pool/take/locks");
    struct zk_children *leases = zk_children(scene.eyes, "/pool/take/leases");
    for (size_t i = 0; i < leases->count; i++) {
        assert_non_null(strstr(leases->names[i], "-lease-"));
        assert_int_equal(strncmp(leases->names[i], "_c_", 3), 0);
    }
    zk_children_free(leases);
    assert_true(hf_permits_remaining_ms(p->ours, &ids[0]) > 0);
    assert_int_equal(hf_permits_release_many(p->ours, ids, 2), HF_OK);
    assert_int_equal(hf_permits_release(p->ours, &ids[0]), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(p->ours, &ids[2]),
                     HF_OK); /* the client that knows the id */
    assert_int_equal(hf_permits_release(p->theirs, &ids[2]), HF_ELOST);
    assert_numbers(p->ours, 3, 0);
}

CASE_IN(all_or_none_are_released, struct pool, p, begin, end, "pool/both") {
    hf_permit_id ids[2];
    assert_int_equal(hf_permits_set(p->ours, 2), HF_OK);
    assert_int_equal(take(p->theirs, 1, 0, HF_WATCHDOG, &ids[0]), HF_OK);
    memset(ids[1].text, 'a', sizeof ids[1].text - 1);
    ids[1].text[sizeof ids[1].text - 1] = '\0';
    assert_int_equal(hf_permits_release_many(p->ours, ids, 2), HF_ENOTOWNER);
    assert_numbers(p->ours, 2, 1);
    assert_int_equal(hf_permits_release(p->theirs, &ids[0]), HF_OK);
}

CASE_IN(waits_end_in_order, struct pool, p, begin, end, "pool/wait") {
    hf_permit_id first[2], ids[2], id;
    hf_op *early = take_start(p->ours, 2, first);
    scene_await_watches("/pool/wait/permits", 0);
    scene_await_nodes("/pool/wait/locks/", 1);
    assert_false(scene_is_done(early)); /* there is no number yet */
    assert_int_equal(hf_permits_try_set(p->theirs, 2, NULL), HF_OK);
    assert_int_equal(scene_join(early), HF_OK);

    hf_op *both = take_start(p->theirs, 2, ids);
    scene_await_nodes("/pool/wait/locks/", 1);
    hf_op *one = take_start(p->ours, 1, &id);
    scene_await_nodes("/pool/wait/locks/", 2);
    assert_int_equal(hf_permits_release(p->ours, &first[0]), HF_OK);
    assert_numbers(p->ours, 2, 1);
    assert_false(scene_is_done(both));
    assert_false(scene_is_done(one)); /* it came later */
    assert_int_equal(hf_permits_release(p->ours, &first[1]), HF_OK);
    assert_int_equal(scene_join(both), HF_OK);
    assert_int_equal(hf_permits_add(p->ours, 1), HF_OK);
    assert_int_equal(scene_join(one), HF_OK);
    assert_numbers(p->ours, 3, 3);
    assert_int_equal(hf_permits_release_many(p->theirs, ids, 2), HF_OK);
    assert_int_equal(hf_permits_release(p->ours, &id), HF_OK);
}

CASE_IN(a_wait_that_is_given_up_leaves_nothing, struct pool, p, begin, end, "pool/gone") {
    hf_permit_id first, ids[2], id;
    assert_int_equal(hf_permits_set(p->ours, 1), HF_OK);
    assert_int_equal(hf_permits_acquire(p->ours, &first), HF_OK);
    hf_op *op = take_start(p->theirs, 1, ids);
    scene_await_nodes("/pool/gone/locks/", 1);
    hf_op *next = take_start(p->ours, 1, &id);
    scene_await_nodes("/pool/gone/locks/", 2);
    hf_op_cancel(op);
    assert_int_equal(scene_join(op), HF_ECANCELED);
    scene_await_nodes("/pool/gone/locks/", 1);
    assert_int_equal(hf_permits_release(p->ours, &first), HF_OK);
    assert_int_equal(scene_join(next), HF_OK);
    scene_await_empty("/pool/gone/locks");
    assert_numbers(p->ours, 1, 1);
    assert_int_equal(hf_permits_release(p->ours, &id), HF_OK);
}

CASE_IN(leases, struct pool, p, begin, end, "pool/lease") {
    hf_permit_id brief, lasting;
    int64_t left_ms = 0;
    assert_int_equal(hf_permits_set(p->ours, 2), HF_OK);
    assert_int_equal(take(p->ours, 1, 0, BRIEF_MS, &brief), HF_OK);
    assert_int_equal(take(p->ours, 1, 0, HF_NO_LEASE, &lasting), HF_OK);
    assert_true(zk_wait_children(scene.eyes, "/pool/lease/leases", 1, HANG_MS)); /* it ran out */
    assert_int_equal(hf_permits_release(p->ours, &brief), HF_ELOST);
    struct zk_children *left = zk_children(scene.eyes, "/pool/lease/leases");
    own_text *path = text_of("/pool/lease/leases/%s", left->names[0]);
    assert_int_equal(zk_owner(scene.eyes, path), 0);
    zk_children_free(left);
    assert_int_equal(hf_permits_release(p->theirs, &lasting), HF_OK);

    assert_int_equal(take(p->ours, 1, 0, SURVIVES_MS, &brief), HF_OK);
    assert_int_equal(hf_permits_extend(p->ours, &brief, 60000), HF_OK);
    assert_int_equal(hf_permits_ttl_ms(p->ours, &brief, &left_ms), HF_OK);
    assert_true(left_ms > 0);
    assert_int_equal(hf_permits_extend(p->theirs, &brief, 60000), HF_ENOTSUP);
    assert_int_equal(hf_permits_ttl_ms(p->theirs, &brief, &left_ms), HF_ENOTSUP);
    assert_int_equal(hf_permits_extend(p->theirs, &lasting, 60000), HF_ENOTOWNER);
    assert_int_equal(hf_permits_expire(p->ours, 60000, NULL), HF_ENOTSUP);
    assert_int_equal(hf_permits_release(p->ours, &brief), HF_OK);
}

/* As with the end of a session: the leases are gone, and nobody has asked their holder. */
CASE_IN(sessions_the_server_ends_are_made_again, struct pool, p, begin, end, "pool/dead") {
    hf_permit_id ids[3], id;
    assert_int_equal(hf_permits_set(p->ours, 3), HF_OK);
    hf_client *client = scene_direct(SURVIVES_MS);
    hf_permits *permits = NULL;
    assert_int_equal(hf_permits_new(client, "pool/dead", &permits), HF_OK);
    assert_int_equal(take(permits, 3, 0, HF_WATCHDOG, ids), HF_OK);
    hf_op *op = take_start(p->theirs, 1, &id);
    scene_await_nodes("/pool/dead/locks/", 1);
    struct zk_children *leases = zk_children(scene.eyes, "/pool/dead/leases");
    assert_int_equal(leases->count, 3);
    for (size_t i = 0; i < leases->count; i++) {
        own_text *path = text_of("/pool/dead/leases/%s", leases->names[i]);
        assert_int_equal(zk_delete(scene.eyes, path), 0);
    }
    zk_children_free(leases);
    assert_int_equal(scene_join(op), HF_OK);
    assert_int_equal(hf_permits_release(permits, &ids[0]), HF_ELOST);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_permits_release(p->theirs, &id), HF_OK);
}

CASE_IN(deleted_permits_are_lost, struct pool, p, begin, end, "pool/delete") {
    hf_permit_id ids[2];
    bool done = false;
    assert_int_equal(hf_permits_set(p->ours, 2), HF_OK);
    assert_int_equal(take(p->ours, 2, 0, HF_WATCHDOG, ids), HF_OK);
    assert_int_equal(hf_permits_delete(p->theirs, &done), HF_OK);
    assert_true(done);
    assert_numbers(p->ours, 0, 0);
    assert_int_equal(hf_permits_release(p->ours, &ids[0]), HF_ELOST);
}

/* As by a Curator that has their number from its program, and not by a node. */
CASE_IN(deleted_without_a_number, struct pool, p, begin, end, "pool/bare") {
    hf_permit_id id;
    bool done = true;
    assert_int_equal(hf_permits_delete(p->theirs, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_permits_set(p->ours, 1), HF_OK);
    assert_int_equal(take(p->ours, 1, 0, HF_WATCHDOG, &id), HF_OK);
    assert_int_equal(zk_delete(scene.eyes, "/pool/bare/permits"), 0);
    assert_int_equal(hf_permits_delete(p->theirs, &done), HF_OK);
    assert_true(done);
    assert_true(zk_wait_children(scene.eyes, "/pool/bare/leases", 0, HANG_MS));
    assert_int_equal(hf_permits_release(p->ours, &id), HF_ELOST);
}

CASE_IN(a_lock_of_that_name_is_another_kind, struct pool, p, begin, end, "pool/type") {
    hf_permit_id id;
    own_lock *lock = scene_lock(p->pair.theirs, HF_PLAIN, "pool/type");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(take(p->ours, 1, 0, HF_WATCHDOG, &id), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_permits_set(p->ours, 1), HF_OK);
    assert_int_equal(take(p->ours, 1, 0, HF_WATCHDOG, &id), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_EWRONGTYPE);
    assert_int_equal(hf_permits_release(p->ours, &id), HF_OK);
}

static void assert_found(hf_lock *lock, hf_found kind) {
    own_info *info = NULL;
    assert_int_equal(hf_lock_inspect(lock, &info), HF_OK);
    assert_int_equal(info->kind, kind);
    assert_int_equal(info->holders_len, 0);
    assert_int_equal(info->waiters_len, 0);
}

/* As the tool does it: a lock's handle is what one looks with first. */
CASE_IN(a_locks_handle_reports_the_other_kind, struct pool, p, begin, end, "pool/found") {
    hf_permit_id id;
    bool done = false;
    own_sem *sem = NULL;
    own_lock *lock = scene_lock(p->pair.theirs, HF_PLAIN, "pool/found");
    own_lock *number = scene_lock(p->pair.theirs, HF_PLAIN, "pool/number-of");
    assert_found(lock, HF_FOUND_FREE);
    assert_int_equal(hf_permits_set(p->ours, 2), HF_OK);
    assert_found(lock, HF_FOUND_PERMITS);
    assert_int_equal(take(p->ours, 1, 0, HF_WATCHDOG, &id), HF_OK);
    assert_found(lock, HF_FOUND_PERMITS);
    assert_numbers(p->theirs, 2, 1);
    assert_int_equal(hf_permits_release(p->ours, &id), HF_OK);
    assert_found(lock, HF_FOUND_PERMITS);

    assert_found(number, HF_FOUND_FREE);
    assert_int_equal(hf_sem_new(p->pair.ours, "pool/number-of", &sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 3, 0, NULL), HF_OK);
    assert_found(number, HF_FOUND_COUNTER);
    assert_int_equal(hf_sem_delete(sem, &done), HF_OK);
    assert_true(done);
    assert_found(number, HF_FOUND_FREE);
}

CASE_IN(the_tool_frees_all_that_are_taken, struct pool, p, begin, end, "pool/tool") {
    hf_permit_id id;
    assert_int_equal(hf_permits_set(p->ours, 2), HF_OK);
    assert_int_equal(scene_tool("show", "pool/tool"), 0);
    assert_int_equal(scene_tool("show --held", "pool/tool"), 1);
    assert_int_equal(scene_tool("unlock --force", "pool/tool"), 1);
    assert_numbers(p->ours, 2, 0); /* nobody had one, so their number is still there */
    assert_int_equal(take(p->ours, 1, 0, HF_WATCHDOG, &id), HF_OK);
    assert_int_equal(scene_tool("show --held", "pool/tool"), 0);
    assert_int_equal(scene_tool("unlock --force", "pool/tool"), 0);
    assert_numbers(p->ours, 0, 0);
    assert_int_equal(hf_permits_release(p->ours, &id), HF_ELOST);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
