/*
 * Sequence numbers end at 2147483647; then a server gives that number to every node, and the order
 * is unknown. A client that gets such a number is refused, and leaves; when the parent node has
 * been deleted, numbers start anew.
 */
#include "support/case.h"
#include "zk/scene.h"

struct row {
    any_kind kind;
    const char *name, *path;
};

static void play(const struct row *row) {
    assert_int_equal(zk_make(scene.eyes, row->path, "", 0), 0); /* it stays when it is empty */
    zk_set_next_number(scene.zk, row->path, INT32_MAX - 1);
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, row->kind, row->name),
            *wanted = scene_lock(rival, row->kind, row->name);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    for (int i = 0; i < 3; i++) {
        assert_hf(HF_EUNAVAILABLE, hf_lock_acquire_for(wanted, HANG_MS));
        assert_non_null(strstr(hf_last_error()->text, "run out of sequence numbers"));
        assert_true(zk_wait_children(scene.eyes, row->path, 1, HANG_MS));
    }
    assert_true(hf_lock_remaining_ms(lock) > 0);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_hf(HF_EUNAVAILABLE, hf_lock_acquire(lock));
    assert_true(zk_wait_children(scene.eyes, row->path, 0, HANG_MS));
    assert_int_equal(zk_delete(scene.eyes, row->path), 0);
    assert_hf(HF_OK, hf_lock_acquire(wanted));
    assert_hf(HF_OK, hf_lock_release(wanted));
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_close(client);
    hf_close(rival);
}

CASE(numbers_that_are_used_up_are_refused) {
    static const struct row rows[] = {
        {HF_PLAIN, "used-up", "/used-up"},
        {HF_READ, "used-up-read", "/used-up-read"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        play(&rows[i]);
}

static int start(void **state) {
    (void)state;
    struct zk_options options = {
        .config = (const char *const[]){"maxSessionTimeout=60000", "digest.enabled=false", NULL}};
    scene.zk = zk_start(&options);
    scene.proxy = NULL;
    scene.eyes = zk_client_open(zk_port(scene.zk));
    return 0;
}

int main(void) {
    zk_need();
    return test_cases_run(start, scene_stop);
}
