/*
 * How little stack will do: what the header asks of a thread that calls, and what the library's own
 * threads have whatever the default of the process is.
 */
#include "net/scene.h"
#include "support/case.h"

#include <limits.h>

#define LEAST_STACK (64 * 1024) /* as the header says */
/* ThreadSanitizer keeps 768 KiB of its own on each stack, and leaves 128 of ours. */
#if defined(__SANITIZE_THREAD__)
#define CALLBACK_STACK (64 * 1024)
#else
#define CALLBACK_STACK (128 * 1024)
#endif

static void *call_everything(void *arg) {
    hf_client *client = arg;
    hf_lock *lock = NULL, *fair = NULL, *held = NULL;
    hf_lock_info *info = NULL;
    bool ok = hf_lock_new(client, "stack", &lock) == HF_OK &&
              hf_lock_new(client, "stack, held", &held) == HF_OK &&
              new_lock(client, HF_FAIR, "stack, fair", 11, &fair) == HF_OK;
    ok = ok && hf_lock_acquire(lock) == HF_OK && hf_lock_inspect(lock, &info) == HF_OK &&
         hf_lock_release(lock) == HF_OK && hf_lock_acquire(fair) == HF_OK &&
         hf_lock_release(fair) == HF_OK && hf_lock_acquire_for(held, 50) == HF_ETIMEDOUT;
    hf_lock_info_free(info);
    hf_lock_free(lock);
    hf_lock_free(held);
    hf_lock_free(fair);
    return ok ? client : NULL;
}

static void *open_and_close(void *url) {
    hf_client *client;
    hf_options options = scene_options();
    bool ok = hf_open(url, &options, &client) == HF_OK && call_everything(client) != NULL &&
              hf_close(client) == HF_OK;
    return ok ? url : NULL;
}

static bool works_with_stack(size_t size, void *(*body)(void *), const void *arg) {
    pthread_attr_t attr;
    pthread_t thread;
    void *result = NULL;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, size), 0);
    assert_int_equal(pthread_create(&thread, &attr, body, (void *)(uintptr_t)arg), 0);
    pthread_attr_destroy(&attr);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result != NULL;
}

static hf_lock *hold(hf_client *client) {
    hf_lock *lock = scene_lock(client, "stack, held");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    return lock;
}

CASE(a_caller_needs_as_much_as_the_header_says) {
    own_client *client = scene_open(server_tcp_url(scene_server()), NULL);
    own_lock *held = hold(client);
    assert_true(works_with_stack(LEAST_STACK, call_everything, client));
    assert_true(works_with_stack(LEAST_STACK, open_and_close, server_tcp_url(scene_server())));
    assert_int_equal(hf_lock_release(held), HF_OK);
}

static void use_stack(hf_op *op, const hf_result *result, void *user) {
    volatile char room[CALLBACK_STACK];
    (void)op;
    (void)result;
    for (size_t i = 0; i < sizeof room; i += 1024)
        room[i] = 1;
    atomic_store((atomic_int *)user, room[0]);
}

static bool is_set(void *arg) {
    return atomic_load((atomic_int *)arg) != 0;
}

/* Where the process makes all its threads small, ours are not. */
CASE(our_threads_do_not_take_a_small_default) {
    pthread_attr_t before, small;
    atomic_int called = 0;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    pthread_attr_init(&small);
    assert_int_equal(pthread_attr_setstacksize(&small, (size_t)PTHREAD_STACK_MIN), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    hf_client *client = scene_open(server_tcp_url(scene_server()), NULL);
    hf_lock *held = hold(client);
    assert_true(works_with_stack(LEAST_STACK, call_everything, client));
    assert_int_equal(hf_ping_start(client, use_stack, &called, NULL), HF_OK);
    assert_true(wait_until(is_set, &called, HANG_MS));
    assert_int_equal(hf_lock_release(held), HF_OK);
    hf_lock_free(held);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&before);
}

RUN_CASES(scene_start_server, scene_stop_server)
