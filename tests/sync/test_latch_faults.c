/*
 * The latch when the network or the server fails: what changes the count is never sent twice, what asks for it is asked
 * again, and nothing that is lost can leave somebody waiting.
 */
#include "sync/scene.h"

#define BRIEF_MS PASSING_MS /* an exchange, where one is to run out */

static void begin_with(struct scene *s, int64_t count) {
    scene_begin(s, NULL);
    assert_int_equal(hf_latch_try_set(s->rival_latch, count, NULL), HF_OK);
}

/* The latch is closed, and somebody sleeps until it is open. */
static void begin_waiting(struct scene *s, struct waiter *waiter) {
    begin_with(s, 1);
    waiter_await(waiter, s->latch, HF_FOREVER, NULL);
    assert_true(scene_wait_asleep(s, SCENE_LOOK, 2, HANG_MS));
}

static void U20_count_down_reply_lost(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 3);
        proxy_drop_replies_after(s.proxy, SCENE_COUNT_DOWN);
        assert_int_equal(form->count_down(&s), HF_EUNKNOWN);
        assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_COUNT_DOWN), 1);
        assert_int_equal(scene_number(LATCH_NAME), 2);
        assert_int_equal(scene_stats(s.client).unknowns, 1);
        scene_end(&s);
    }
}

static void U20_count_down_never_answered(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        hf_options options = scene_options();
        options.cmd_timeout_ms = BRIEF_MS;
        scene_begin(&s, &options);
        assert_int_equal(hf_latch_try_set(s.rival_latch, 3, NULL), HF_OK);
        proxy_mute_replies_after(s.proxy, SCENE_COUNT_DOWN);
        int64_t start_ms = now_ms();
        assert_int_equal(form->count_down(&s), HF_EUNKNOWN);
        assert_true(now_ms() - start_ms >= BRIEF_MS);
        assert_int_equal(proxy_seen_in_time(s.proxy, SCENE_COUNT_DOWN), 1);
        assert_int_equal(scene_number(LATCH_NAME), 2);
        scene_end(&s);
    }
}

/* Held up and delivered when the caller has been told: it counts nothing any more. */
static void a_late_copy_counts_nothing(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 3);
        proxy_hold_request(s.proxy, SCENE_COUNT_DOWN);
        assert_int_equal(form->count_down(&s), HF_EUNKNOWN);
        sleep_ms(600); /* a copy may act for half a second */
        assert_true(proxy_release_held(s.proxy) >= 1);
        assert_int_equal(scene_number(LATCH_NAME), 3);
        scene_end(&s);
    }
}

static void set_and_delete_replies_lost(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 3);
    proxy_drop_replies_after(s.proxy, hfi_script_counter_delete.sha1);
    assert_int_equal(hf_latch_delete(s.latch, NULL), HF_EUNKNOWN);
    assert_false(key_exists(s.server, LATCH_NAME));
    proxy_drop_replies_after(s.proxy, hfi_script_latch_set.sha1);
    assert_int_equal(hf_latch_try_set(s.latch, 5, NULL), HF_EUNKNOWN);
    assert_int_equal(scene_number(LATCH_NAME), 5);
    scene_end(&s);
}

static void questions_are_asked_again(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        int64_t count = 0;
        begin_with(&s, 3);
        proxy_drop_replies_after(s.proxy, SCENE_GET);
        assert_int_equal(hf_latch_count(s.latch, &count), HF_OK);
        assert_int_equal(count, 3);
        proxy_drop_replies_after(s.proxy, SCENE_LOOK);
        assert_int_equal(form->await(&s, 0), HF_EBUSY);
        assert_int_equal(hf_latch_delete(s.rival_latch, NULL), HF_OK);
        proxy_drop_replies_after(s.proxy, SCENE_LOOK);
        assert_int_equal(form->await(&s, HF_FOREVER), HF_OK);
        assert_int_equal(scene_stats(s.client).unknowns, 0);
        scene_end(&s);
    }
}

/* Opened while nobody could be told: it looks when it is heard again. */
static void opened_while_connections_are_lost(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_waiting(&s, &waiter);
    proxy_refuse(s.proxy, true);
    assert_true(proxy_cut_all(s.proxy) >= 2);
    assert_int_equal(hf_latch_count_down(s.rival_latch), HF_OK);
    assert_false(atomic_load(&waiter.done));
    proxy_refuse(s.proxy, false);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    scene_end(&s);
}

/* Opened and closed again while nothing could be heard, with the same count: there is proof. */
static void not_trapped_by_what_happened_while_deaf(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_waiting(&s, &waiter);
    proxy_refuse(s.proxy, true);
    assert_true(proxy_cut_all(s.proxy) >= 2);
    scene_next_generation(SCENE_OURS, SCENE_OURS, 1);
    scene_next_generation(SCENE_OURS, SCENE_OURS, 1);
    assert_false(atomic_load(&waiter.done));
    proxy_refuse(s.proxy, false);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(scene_number(LATCH_NAME), 1);
    scene_end(&s);
}

/* A server that has forgotten everything has no latch. */
static void the_server_restarts(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_waiting(&s, &waiter);
    server_restart(s.server);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    scene_end(&s);
}

/* Nothing tells anybody: the key is just deleted; deleted and closed anew with a higher count; and permits come back by an
 * edit. The connections stay sound, so only asking again can find out, after ten seconds at most. */
static void lost_messages_hang_nobody(void **state) {
    (void)state;
    struct scene s;
    struct waiter deleted, trapped, hungry;
    hf_latch *other = NULL;
    begin_with(&s, 1);
    cmd_ok(s.server, "SET other 1");
    assert_int_equal(hf_latch_new_bytes(s.client, "other", 5, &other), HF_OK);
    assert_int_equal(hf_sem_try_set(s.rival_sem, 0, 0, NULL), HF_OK);
    waiter_await(&deleted, s.latch, HANG_MS, NULL);
    waiter_await(&trapped, other, HANG_MS, NULL);
    waiter_acquire(&hungry, s.sem, 1, HANG_MS, NULL);
    assert_true(scene_wait_asleep(&s, SCENE_LOOK, 4, HANG_MS));
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 2, HANG_MS));
    cmd_ok(s.server, "DEL " LATCH_NAME);
    cmd_ok(s.server, "SET other 2");
    cmd_ok(s.server, "SET " SEM_NAME " 1");
    assert_int_equal(waiter_join(&deleted), HF_OK);
    assert_int_equal(waiter_join(&trapped), HF_OK);
    assert_int_equal(waiter_join(&hungry), HF_OK);
    assert_int_equal(scene_number("other"), 2);
    hf_latch_free(other);
    scene_end(&s);
}

/* Waiting changes nothing, so there is nothing to undo after an answer that makes no sense. */
static void an_answer_that_is_nonsense(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        begin_with(&s, 1);
        proxy_forge_reply(s.proxy, SCENE_LOOK, ":5\r\n", 4);
        assert_int_equal(form->await(&s, HANG_MS), HF_EPROTO);
        assert_int_equal(form->await(&s, 0), HF_EBUSY);
        assert_int_equal(scene_stats(s.client).unknowns, 0);
        scene_end(&s);
    }
}

static void U39_out_of_memory(void **state) {
    (void)state;
    struct scene s;
    begin_with(&s, 2);
    cmd_ok(s.server, "CONFIG SET maxmemory 1");
    assert_int_equal(hf_latch_count_down(s.latch), HF_EOOM);
    assert_int_equal(hf_latch_await_for(s.latch, 0), HF_EBUSY); /* waiting needs no memory */
    cmd_ok(s.server, "CONFIG SET maxmemory 0");
    assert_int_equal(scene_number(LATCH_NAME), 2);
    assert_int_equal(scene_stats(s.client).unknowns, 0);
    scene_end(&s);
}

/* The user may neither listen nor publish: waiting polls, and what could not be told is counted. */
static void U46_without_the_right_to_channels(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    begin_with(&s, 1);
    hf_client *mute = scene_open_mute();
    hf_latch *latch = scene_latch(mute);
    waiter_await(&waiter, latch, HF_FOREVER, NULL);
    sleep_ms(100); /* whether it waits yet makes no difference */
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(scene_stats(mute).notify_failures, 1);
    hf_latch_free(latch);
    scene_close_mute(mute);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U20_count_down_reply_lost),
        cmocka_unit_test(U20_count_down_never_answered),
        cmocka_unit_test(a_late_copy_counts_nothing),
        cmocka_unit_test(set_and_delete_replies_lost),
        cmocka_unit_test(questions_are_asked_again),
        cmocka_unit_test(opened_while_connections_are_lost),
        cmocka_unit_test(not_trapped_by_what_happened_while_deaf),
        cmocka_unit_test(the_server_restarts),
        cmocka_unit_test(lost_messages_hang_nobody),
        cmocka_unit_test(an_answer_that_is_nonsense),
        cmocka_unit_test(U39_out_of_memory),
        cmocka_unit_test(U46_without_the_right_to_channels),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
