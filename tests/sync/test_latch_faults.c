/*
 * The latch when the network or the server fails: commands that change the count are never sent
 * twice, queries are repeated, and no loss can leave a waiter waiting.
 *
 * test_faults.c has the faults that a lock, a semaphore, permits and a latch share.
 */
#include "sync/objects.h"

static void begin_with(struct world *w, int64_t count) {
    objects_begin(w, NULL);
    assert_int_equal(hf_latch_try_set(w->rival_latch, count, NULL), HF_OK);
}
#define LATCH_CASE(name, count) CASE_IN(name, struct world, w, begin_with, world_end, count)

/* The latch is closed, and a waiter sleeps until it opens. */
static void begin_waiting(struct world *w, struct world_caller *waiter) {
    begin_with(w, 1);
    world_call_latch(waiter, w->latch, HF_FOREVER, NULL);
    assert_true(object_wait_asleep(w, LATCH_LOOK, 2, HANG_MS));
}

LATCH_CASE(set_and_delete_replies_lost, 3) {
    proxy_drop_replies_after(w->proxy, hfi_script_counter_delete.sha1);
    assert_int_equal(hf_latch_delete(w->latch, NULL), HF_EINDOUBT);
    assert_false(key_exists(w->server, LATCH_NAME));
    proxy_drop_replies_after(w->proxy, hfi_script_latch_set.sha1);
    assert_int_equal(hf_latch_try_set(w->latch, 5, NULL), HF_EINDOUBT);
    assert_int_equal(object_number(LATCH_NAME), 5);
}

ROW_CASES_IN(questions_are_asked_again, form, object_forms, struct world, w, begin_with, world_end,
             3) {
    int64_t count = 0;
    proxy_drop_replies_after(w->proxy, OBJECT_GET);
    assert_int_equal(hf_latch_count(w->latch, &count), HF_OK);
    assert_int_equal(count, 3);
    proxy_drop_replies_after(w->proxy, LATCH_LOOK);
    assert_int_equal(form->await(w, 0), HF_EBUSY);
    assert_int_equal(hf_latch_delete(w->rival_latch, NULL), HF_OK);
    proxy_drop_replies_after(w->proxy, LATCH_LOOK);
    assert_int_equal(form->await(w, HF_FOREVER), HF_OK);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* Opened and closed again while nothing could be heard, with the same count: there is proof. */
CASE(not_trapped_by_events_while_refused) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    begin_waiting(&w, &waiter);
    proxy_refuse(w.proxy, true);
    assert_true(proxy_cut_all(w.proxy) >= 2);
    object_next_generation(LATCH_OURS, LATCH_OURS, 1);
    object_next_generation(LATCH_OURS, LATCH_OURS, 1);
    assert_false(atomic_load(&waiter.done));
    proxy_refuse(w.proxy, false);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(object_number(LATCH_NAME), 1);
}

/* No message is sent: the key is deleted; deleted and closed again with a higher count; and permits
 * come back by an edit. The connections stay up, so only a poll can notice, after ten seconds at
 * most. */
LATCH_CASE(lost_messages_hang_no_waiter, 1) {
    struct world_caller deleted, trapped, hungry;
    own_latch *other = NULL;
    cmd_ok(w->server, "SET other 1");
    assert_int_equal(hf_latch_new_bytes(w->client, "other", 5, &other), HF_OK);
    assert_int_equal(hf_sem_try_set(w->rival_sem, 0, 0, NULL), HF_OK);
    world_call_latch(&deleted, w->latch, HANG_MS, NULL);
    world_call_latch(&trapped, other, HANG_MS, NULL);
    world_call_sem(&hungry, w->sem, 1, HANG_MS, NULL);
    assert_true(object_wait_asleep(w, LATCH_LOOK, 4, HANG_MS));
    assert_true(object_wait_asleep(w, SEM_ACQUIRE, 2, HANG_MS));
    cmd_ok(w->server, "DEL " LATCH_NAME);
    cmd_ok(w->server, "SET other 2");
    cmd_ok(w->server, "SET " SEM_NAME " 1");
    assert_int_equal(world_join(&deleted), HF_OK);
    assert_int_equal(world_join(&trapped), HF_OK);
    assert_int_equal(world_join(&hungry), HF_OK);
    assert_int_equal(object_number("other"), 2);
}

/* Waiting changes nothing, so there is nothing to undo after an answer that makes no sense. */
ROW_CASES_IN(an_answer_that_is_nonsense, form, object_forms, struct world, w, begin_with, world_end,
             1) {
    proxy_forge_reply(w->proxy, LATCH_LOOK, ":5\r\n", 4);
    assert_int_equal(form->await(w, HANG_MS), HF_EPROTO);
    assert_int_equal(form->await(w, 0), HF_EBUSY);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* The user may neither listen nor publish: waiting polls, and failed notifications is counted. */
LATCH_CASE(U46_without_the_right_to_channels, 1) {
    struct world_caller waiter;
    hf_client *mute = object_open_mute();
    hf_latch *latch = object_latch(mute);
    long long attempts = server_calls(world_server(), "evalsha");
    world_call_latch(&waiter, latch, HF_FOREVER, NULL);
    assert_true(WAIT_FOR(server_calls(world_server(), "evalsha") > attempts, HANG_MS));
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(world_stats(mute).notify_failures, 1);
    hf_latch_free(latch);
    object_close_mute(mute);
}

RUN_CASES(world_start_server, world_stop_server)
