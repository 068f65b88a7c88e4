/*
 * Listening to a name of a quorum (hf_listen()): each server is heard for itself, and says which it is; one that is down is
 * heard when it is back.
 */
#include "joint/fleet.h"
#include "support/heard.h"
#include "support/memory.h"

#include <string.h>

/* Which of the servers said something of a kind, as bits. */
struct chorus {
    atomic_uint listening, released, deaf;
    atomic_int count;
    atomic_size_t servers;
};

static void note(hf_listener *listener, const hf_news *news, void *user) {
    struct chorus *chorus = user;
    unsigned bit = 1u << news->server;
    (void)listener;
    atomic_store(&chorus->servers, news->servers);
    if (news->kind == HF_NEWS_LISTENING)
        atomic_fetch_or(&chorus->listening, bit);
    else if (news->kind == HF_NEWS_RELEASED)
        atomic_fetch_or(&chorus->released, bit);
    else if (news->kind == HF_NEWS_DEAF)
        atomic_fetch_or(&chorus->deaf, bit);
    atomic_fetch_add(&chorus->count, 1);
}

static bool has_all(void *arg) {
    return atomic_load((atomic_uint *)arg) == (1u << FLEET) - 1;
}

static bool has_last(void *arg) {
    return (atomic_load((atomic_uint *)arg) & (1u << (FLEET - 1))) != 0;
}

static void every_server_is_heard(void **state) {
    struct fleet f;
    struct chorus chorus = {0};
    hf_listener *listener;
    (void)state;
    fleet_begin(&f, NULL);
    assert_int_equal(hf_listen(f.client, FLEET_NAME, note, &chorus, &listener), HF_OK);
    assert_true(wait_until(has_all, &chorus.listening, HANG_MS));
    assert_int_equal(atomic_load(&chorus.servers), FLEET);
    assert_int_equal(hf_lock_acquire(f.rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(f.rival_lock), HF_OK);
    assert_true(wait_until(has_all, &chorus.released, HANG_MS));
    hf_listener_free(listener);
    fleet_end(&f);
}

static void a_server_that_was_down_is_heard_again(void **state) {
    struct fleet f;
    struct chorus chorus = {0};
    hf_listener *listener;
    (void)state;
    fleet_begin(&f, NULL);
    assert_int_equal(hf_listen(f.client, FLEET_NAME, note, &chorus, &listener), HF_OK);
    assert_true(wait_until(has_all, &chorus.listening, HANG_MS));
    server_kill(f.server[FLEET - 1]);
    assert_true(wait_until(has_last, &chorus.deaf, HANG_MS));
    assert_int_equal(atomic_load(&chorus.deaf), 1u << (FLEET - 1));
    atomic_store(&chorus.listening, 0);
    server_restart(f.server[FLEET - 1]);
    assert_true(wait_until(has_last, &chorus.listening, HANG_MS));
    hf_listener_free(listener);
    fleet_end(&f);
}

/* All members or none: whichever allocation fails, all is given back. */
static void memory_runs_out_at_each_step(void **state) {
    struct fleet f;
    bool came_to_it = true;
    (void)state;
    fleet_begin(&f, NULL);
    for (long n = 1; came_to_it; n++) {
        struct memory memory = {0};
        struct chorus chorus = {0};
        hf_client *client;
        hf_listener *listener = NULL;
        hf_options options = fleet_options();
        options.allocator = memory_allocator(&memory);
        assert_int_equal(hf_open(f.direct_urls, &options, &client), HF_OK);
        atomic_store(&memory.fail_at, atomic_load(&memory.calls) + n);
        int err = hf_listen(client, FLEET_NAME, note, &chorus, &listener);
        came_to_it = err != HF_OK;
        if (came_to_it)
            assert_int_equal(err, HF_ENOMEM);
        hf_listener_free(listener);
        assert_int_equal(hf_close(client), HF_OK);
        assert_int_equal(atomic_load(&memory.live), 0);
        assert_true(n < 100);
    }
    fleet_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_server_is_heard),
        cmocka_unit_test(a_server_that_was_down_is_heard_again),
        cmocka_unit_test(memory_runs_out_at_each_step),
    };
    return cmocka_run_group_tests(tests, fleet_start_servers, fleet_stop_servers);
}
