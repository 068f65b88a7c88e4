/*
 * The steps of a walk: one for each exported function, in the order of tests/frame/exports.txt.
 */
#include "api/walk.h"
#include "support/new_lock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BRIEF_MS 20 /* a wait that is meant to fail */

static void ignore_event(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    (void)event;
    (void)user;
}

static void ignore_permit(hf_permits *permits, const char *id, const hf_event *event, void *user) {
    (void)permits;
    (void)id;
    (void)event;
    (void)user;
}

static void ignore_notification(hf_listener *listener, const hf_notification *notification,
                                void *user) {
    (void)listener;
    (void)notification;
    (void)user;
}

static void note_listening(hf_listener *listener, const hf_notification *notification, void *user) {
    struct walk *w = user;
    (void)listener;
    if (notification->kind == HF_NOTIFY_SUBSCRIBED)
        atomic_store(&w->listening, 1);
}

static hf_acquire_options briefly(struct walk *w) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = BRIEF_MS;
    options.cancel = w->cancel;
    return options;
}

static int acquire_with(struct walk *w) {
    hf_acquire_options options = briefly(w);
    return hf_lock_acquire_with(w->held, &options, NULL);
}

static int acquire_start(struct walk *w) {
    hf_acquire_options options = briefly(w);
    return hf_lock_acquire_start(w->lock, &options, NULL, NULL, &w->made_op);
}

static int new_all(struct walk *w) {
    hf_lock *members[] = {w->lock, w->fenced};
    return hf_lock_new_multi(members, 2, &w->made_lock);
}

static int new_group(struct walk *w) {
    const hf_bytes values[] = {{.bytes = "a", .len = 1}, {.bytes = "b", .len = 1}};
    return hf_lock_new_group(w->client, "group", 5, values, 2, &w->made_lock);
}

static int stats(struct walk *w) {
    hf_stats all = HF_STATS_INIT;
    return hf_client_stats(w->client, &all);
}

static hf_extend_options for_a_minute(struct walk *w) {
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    options.owner = w->owner;
    options.mode = HF_EXTEND_SET;
    options.lease_ms = 60000;
    return options;
}

static int extend_with(struct walk *w) {
    hf_extend_options options = for_a_minute(w);
    return hf_lock_extend_with(w->held, &options, NULL);
}

static int extend_with_start(struct walk *w) {
    hf_extend_options options = for_a_minute(w);
    return hf_lock_extend_with_start(w->held, &options, NULL, NULL, &w->made_op);
}

/* In a child it stays the walk's. */
static int close_start(struct walk *w) {
    int err = hf_close_start(w->extra, NULL, NULL);
    if (err == HF_OK)
        w->extra = NULL;
    return err;
}

static int fence_check(void) {
    hf_fence fence = HF_FENCE_INIT;
    return hf_fence_check(&fence, 1);
}

/* One that frees it, or ends it. */
#define ENDS(function, thing) (function(w->thing), w->thing = NULL, 0)
#define FROM_TEXT(text) (w->len = strlen(text), 0)

/* X(function, what a child answers, the call) */
#define STEPS(X)                                                                                   \
    X(hf_cancel_fire, CHILD_ANY, (hf_cancel_fire(w->armed), 0))                                    \
    X(hf_cancel_free, CHILD_ANY, ENDS(hf_cancel_free, cancel))                                     \
    X(hf_cancel_new, CHILD_ZERO, hf_cancel_new(&w->made_cancel))                                   \
    X(hf_cancel_reset, CHILD_ANY, (hf_cancel_reset(w->cancel), 0))                                 \
    X(hf_client_id, CHILD_ANY, FROM_TEXT(hf_client_id(w->client)))                                 \
    X(hf_client_metrics, CHILD_FORKED, hf_client_metrics(w->client, &w->made_text))                \
    X(hf_client_stats, CHILD_FORKED, stats(w))                                                     \
    X(hf_close, CHILD_ZERO, ENDS(hf_close, extra))                                                 \
    X(hf_close_start, CHILD_FORKED, close_start(w))                                                \
    X(hf_deadlocks_free, CHILD_ANY, ENDS(hf_deadlocks_free, deadlocks))                            \
    X(hf_dispatch, CHILD_FORKED, hf_dispatch(w->manual, 1))                                        \
    X(hf_dispatch_fd, CHILD_FORKED, hf_dispatch_fd(w->manual))                                     \
    X(hf_error_format, CHILD_ANY,                                                                  \
      FROM_TEXT(hf_error_format(NULL, w->made_handle, sizeof w->made_handle)))                     \
    X(hf_error_name, CHILD_ANY, FROM_TEXT(hf_error_name(HF_EBUSY)))                                \
    X(hf_fence_check, CHILD_ANY, fence_check())                                                    \
    X(hf_fleet_deadlocks, CHILD_ANY, hf_fleet_deadlocks(w->fleet, w->fleet, &w->made_deadlocks))   \
    X(hf_fleet_free, CHILD_ANY, ENDS(hf_fleet_free, fleet))                                        \
    X(hf_fleet_json, CHILD_ANY, hf_fleet_json(w->fleet, &w->made_text))                            \
    X(hf_last_error, CHILD_ANY, FROM_TEXT(hf_last_error()->text))                                  \
    X(hf_latch_await, CHILD_FORKED, hf_latch_await(w->latch))                                      \
    X(hf_latch_await_for, CHILD_FORKED, hf_latch_await_for(w->latch, BRIEF_MS))                    \
    X(hf_latch_await_start, CHILD_FORKED,                                                          \
      hf_latch_await_start(w->latch, NULL, NULL, NULL, &w->made_op))                               \
    X(hf_latch_await_with, CHILD_FORKED, hf_latch_await_with(w->latch, NULL))                      \
    X(hf_latch_count, CHILD_FORKED, hf_latch_count(w->latch, &w->value))                           \
    X(hf_latch_count_down, CHILD_FORKED, hf_latch_count_down(w->latch))                            \
    X(hf_latch_count_down_start, CHILD_FORKED,                                                     \
      hf_latch_count_down_start(w->latch, NULL, NULL, &w->made_op))                                \
    X(hf_latch_count_start, CHILD_FORKED, hf_latch_count_start(w->latch, NULL, NULL, &w->made_op)) \
    X(hf_latch_delete, CHILD_FORKED, hf_latch_delete(w->latch, &w->yes))                           \
    X(hf_latch_delete_start, CHILD_FORKED,                                                         \
      hf_latch_delete_start(w->latch, NULL, NULL, &w->made_op))                                    \
    X(hf_latch_free, CHILD_ANY, ENDS(hf_latch_free, latch))                                        \
    X(hf_latch_name, CHILD_ANY, FROM_TEXT(hf_latch_name(w->latch, NULL)))                          \
    X(hf_latch_new, CHILD_FORKED, hf_latch_new(w->client, "new", &w->made_latch))                  \
    X(hf_latch_new_bytes, CHILD_FORKED, hf_latch_new_bytes(w->client, "n", 1, &w->made_latch))     \
    X(hf_latch_try_set, CHILD_FORKED, hf_latch_try_set(w->latch, 1, &w->yes))                      \
    X(hf_latch_try_set_start, CHILD_FORKED,                                                        \
      hf_latch_try_set_start(w->latch, 1, NULL, NULL, &w->made_op))                                \
    X(hf_listen, CHILD_FORKED,                                                                     \
      hf_listen(w->client, "heard", ignore_notification, NULL, &w->made_listener))                 \
    X(hf_listen_breaks, CHILD_FORKED,                                                              \
      hf_listen_breaks(w->client, ignore_notification, NULL, &w->made_listener))                   \
    X(hf_listen_bytes, CHILD_FORKED,                                                               \
      hf_listen_bytes(w->client, "heard", 5, ignore_notification, NULL, &w->made_listener))        \
    X(hf_listener_free, CHILD_ANY, ENDS(hf_listener_free, listener))                               \
    X(hf_lock_acquire, CHILD_FORKED, hf_lock_acquire(w->lock))                                     \
    X(hf_lock_acquire_for, CHILD_FORKED, hf_lock_acquire_for(w->held, BRIEF_MS))                   \
    X(hf_lock_acquire_start, CHILD_FORKED, acquire_start(w))                                       \
    X(hf_lock_acquire_with, CHILD_FORKED, acquire_with(w))                                         \
    X(hf_lock_adopt, CHILD_FORKED, hf_lock_adopt(w->held, w->handle, 0, NULL))                     \
    X(hf_lock_adopt_start, CHILD_FORKED,                                                           \
      hf_lock_adopt_start(w->held, w->handle, 0, NULL, NULL, &w->made_op))                         \
    X(hf_lock_break, CHILD_FORKED, hf_lock_break(w->held, &w->yes))                                \
    X(hf_lock_break_start, CHILD_FORKED, hf_lock_break_start(w->held, NULL, NULL, &w->made_op))    \
    X(hf_lock_extend, CHILD_FORKED, hf_lock_extend(w->held, 60000))                                \
    X(hf_lock_extend_as, CHILD_FORKED, hf_lock_extend_as(w->held, w->owner, 60000))                \
    X(hf_lock_extend_start, CHILD_FORKED,                                                          \
      hf_lock_extend_start(w->held, w->owner, 60000, NULL, NULL, &w->made_op))                     \
    X(hf_lock_extend_with, CHILD_FORKED, extend_with(w))                                           \
    X(hf_lock_extend_with_start, CHILD_FORKED, extend_with_start(w))                               \
    X(hf_lock_forget, CHILD_FORKED, hf_lock_forget(w->held))                                       \
    X(hf_lock_forget_as, CHILD_FORKED, hf_lock_forget_as(w->held, w->owner))                       \
    X(hf_lock_free, CHILD_ANY, ENDS(hf_lock_free, lock))                                           \
    X(hf_lock_handle, CHILD_FORKED,                                                                \
      hf_lock_handle(w->held, w->owner, w->made_handle, sizeof w->made_handle))                    \
    X(hf_lock_hold_count, CHILD_FORKED, hf_lock_hold_count(w->held, &w->value))                    \
    X(hf_lock_hold_count_as, CHILD_FORKED, hf_lock_hold_count_as(w->held, w->owner, &w->value))    \
    X(hf_lock_hold_count_start, CHILD_FORKED,                                                      \
      hf_lock_hold_count_start(w->held, w->owner, NULL, NULL, &w->made_op))                        \
    X(hf_lock_info_free, CHILD_ANY, ENDS(hf_lock_info_free, info))                                 \
    X(hf_lock_info_json, CHILD_ANY, hf_lock_info_json(w->info, "held", 4, &w->made_text))          \
    X(hf_lock_inspect, CHILD_FORKED, hf_lock_inspect(w->held, &w->made_info))                      \
    X(hf_lock_inspect_start, CHILD_FORKED,                                                         \
      hf_lock_inspect_start(w->held, &w->made_info, NULL, NULL, &w->made_op))                      \
    X(hf_lock_is_locked, CHILD_FORKED, hf_lock_is_locked(w->held, &w->yes))                        \
    X(hf_lock_is_locked_start, CHILD_FORKED,                                                       \
      hf_lock_is_locked_start(w->held, NULL, NULL, &w->made_op))                                   \
    X(hf_lock_is_mine, CHILD_FORKED, hf_lock_is_mine(w->held, &w->yes))                            \
    X(hf_lock_is_mine_as, CHILD_FORKED, hf_lock_is_mine_as(w->held, w->owner, &w->yes))            \
    X(hf_lock_is_mine_start, CHILD_FORKED,                                                         \
      hf_lock_is_mine_start(w->held, w->owner, NULL, NULL, &w->made_op))                           \
    X(hf_lock_lost_fd, CHILD_FORKED, hf_lock_lost_fd(w->held))                                     \
    X(hf_lock_name, CHILD_ANY, FROM_TEXT(hf_lock_name(w->held, NULL)))                             \
    X(hf_lock_new, CHILD_FORKED, hf_lock_new(w->client, "new", &w->made_lock))                     \
    X(hf_lock_new_bytes, CHILD_FORKED, hf_lock_new_bytes(w->client, "new", 3, &w->made_lock))      \
    X(hf_lock_new_group, CHILD_FORKED, new_group(w))                                               \
    X(hf_lock_new_multi, CHILD_FORKED, new_all(w))                                                 \
    X(hf_lock_new_named, CHILD_FORKED, hf_lock_new_named(w->client, "new", NULL, &w->made_lock))   \
    X(hf_lock_new_with, CHILD_FORKED, hf_lock_new_with(w->client, "new", 3, NULL, &w->made_lock))  \
    X(hf_lock_on_lost, CHILD_FORKED, hf_lock_on_lost(w->held, ignore_event, NULL))                 \
    X(hf_lock_release, CHILD_FORKED, hf_lock_release(w->held))                                     \
    X(hf_lock_release_as, CHILD_FORKED, hf_lock_release_as(w->held, w->owner))                     \
    X(hf_lock_release_start, CHILD_FORKED,                                                         \
      hf_lock_release_start(w->held, w->owner, NULL, NULL, &w->made_op))                           \
    X(hf_lock_remaining_ms, CHILD_ZERO, hf_lock_remaining_ms(w->held))                             \
    X(hf_lock_remaining_ms_as, CHILD_ZERO, hf_lock_remaining_ms_as(w->held, w->owner))             \
    X(hf_lock_server_info, CHILD_FORKED, hf_lock_server_info(w->lock, &w->made_facts))             \
    X(hf_lock_server_info_start, CHILD_FORKED,                                                     \
      hf_lock_server_info_start(w->lock, &w->made_facts, NULL, NULL, &w->made_op))                 \
    X(hf_lock_token, CHILD_FORKED, hf_lock_token(w->fenced, &w->value))                            \
    X(hf_lock_token_as, CHILD_FORKED, hf_lock_token_as(w->fenced, w->owner, &w->value))            \
    X(hf_lock_try, CHILD_FORKED, hf_lock_try(w->held))                                             \
    X(hf_lock_ttl_ms, CHILD_FORKED, hf_lock_ttl_ms(w->held, &w->value))                            \
    X(hf_lock_ttl_ms_start, CHILD_FORKED, hf_lock_ttl_ms_start(w->held, NULL, NULL, &w->made_op))  \
    X(hf_op_abandon, CHILD_ANY, (w->yes = hf_op_abandon(w->op), w->op = NULL, 0))                  \
    X(hf_op_cancel, CHILD_ANY, (hf_op_cancel(w->op), 0))                                           \
    X(hf_op_free, CHILD_ANY, ENDS(hf_op_free, op))                                                 \
    X(hf_op_wait, CHILD_FORKED, hf_op_wait(w->op, BRIEF_MS, NULL))                                 \
    X(hf_open, CHILD_ZERO, hf_open(server_url(w->server), NULL, &w->made_client))                  \
    X(hf_owner_new, CHILD_ANY, (w->value = (int64_t)hf_owner_new(), 0))                            \
    X(hf_owner_self, CHILD_ANY, (w->value = (int64_t)hf_owner_self(), 0))                          \
    X(hf_permits_acquire, CHILD_FORKED, hf_permits_acquire(w->permits, &w->made_id))               \
    X(hf_permits_acquire_for, CHILD_FORKED,                                                        \
      hf_permits_acquire_for(w->permits, BRIEF_MS, &w->made_id))                                   \
    X(hf_permits_acquire_start, CHILD_FORKED,                                                      \
      hf_permits_acquire_start(w->permits, NULL, &w->made_id, NULL, NULL, &w->made_op))            \
    X(hf_permits_acquire_with, CHILD_FORKED,                                                       \
      hf_permits_acquire_with(w->permits, NULL, &w->made_id))                                      \
    X(hf_permits_add, CHILD_FORKED, hf_permits_add(w->permits, 1))                                 \
    X(hf_permits_add_start, CHILD_FORKED,                                                          \
      hf_permits_add_start(w->permits, 1, NULL, NULL, &w->made_op))                                \
    X(hf_permits_available, CHILD_FORKED, hf_permits_available(w->permits, &w->value))             \
    X(hf_permits_available_start, CHILD_FORKED,                                                    \
      hf_permits_available_start(w->permits, NULL, NULL, &w->made_op))                             \
    X(hf_permits_delete, CHILD_FORKED, hf_permits_delete(w->permits, &w->yes))                     \
    X(hf_permits_delete_start, CHILD_FORKED,                                                       \
      hf_permits_delete_start(w->permits, NULL, NULL, &w->made_op))                                \
    X(hf_permits_expire, CHILD_FORKED, hf_permits_expire(w->permits, 60000, &w->yes))              \
    X(hf_permits_expire_start, CHILD_FORKED,                                                       \
      hf_permits_expire_start(w->permits, 60000, NULL, NULL, &w->made_op))                         \
    X(hf_permits_extend, CHILD_FORKED, hf_permits_extend(w->permits, &w->permit, 60000))           \
    X(hf_permits_extend_start, CHILD_FORKED,                                                       \
      hf_permits_extend_start(w->permits, &w->permit, 60000, NULL, NULL, &w->made_op))             \
    X(hf_permits_free, CHILD_ANY, ENDS(hf_permits_free, permits))                                  \
    X(hf_permits_lost_fd, CHILD_FORKED, hf_permits_lost_fd(w->permits))                            \
    X(hf_permits_name, CHILD_ANY, FROM_TEXT(hf_permits_name(w->permits, NULL)))                    \
    X(hf_permits_new, CHILD_FORKED, hf_permits_new(w->client, "new", &w->made_permits))            \
    X(hf_permits_new_bytes, CHILD_FORKED,                                                          \
      hf_permits_new_bytes(w->client, "new", 3, &w->made_permits))                                 \
    X(hf_permits_on_lost, CHILD_FORKED, hf_permits_on_lost(w->permits, ignore_permit, NULL))       \
    X(hf_permits_release, CHILD_FORKED, hf_permits_release(w->permits, &w->permit))                \
    X(hf_permits_release_many, CHILD_FORKED, hf_permits_release_many(w->permits, &w->permit, 1))   \
    X(hf_permits_release_start, CHILD_FORKED,                                                      \
      hf_permits_release_start(w->permits, &w->permit, 1, NULL, NULL, &w->made_op))                \
    X(hf_permits_remaining_ms, CHILD_ZERO, hf_permits_remaining_ms(w->permits, &w->permit))        \
    X(hf_permits_set, CHILD_FORKED, hf_permits_set(w->permits, 10))                                \
    X(hf_permits_set_start, CHILD_FORKED,                                                          \
      hf_permits_set_start(w->permits, 10, NULL, NULL, &w->made_op))                               \
    X(hf_permits_taken, CHILD_FORKED, hf_permits_taken(w->permits, &w->value))                     \
    X(hf_permits_taken_start, CHILD_FORKED,                                                        \
      hf_permits_taken_start(w->permits, NULL, NULL, &w->made_op))                                 \
    X(hf_permits_total, CHILD_FORKED, hf_permits_total(w->permits, &w->value))                     \
    X(hf_permits_total_start, CHILD_FORKED,                                                        \
      hf_permits_total_start(w->permits, NULL, NULL, &w->made_op))                                 \
    X(hf_permits_try, CHILD_FORKED, hf_permits_try(w->permits, &w->made_id))                       \
    X(hf_permits_try_set, CHILD_FORKED, hf_permits_try_set(w->permits, 5, &w->yes))                \
    X(hf_permits_try_set_start, CHILD_FORKED,                                                      \
      hf_permits_try_set_start(w->permits, 5, NULL, NULL, &w->made_op))                            \
    X(hf_permits_ttl_ms, CHILD_FORKED, hf_permits_ttl_ms(w->permits, &w->permit, &w->value))       \
    X(hf_permits_ttl_ms_start, CHILD_FORKED,                                                       \
      hf_permits_ttl_ms_start(w->permits, &w->permit, NULL, NULL, &w->made_op))                    \
    X(hf_ping, CHILD_FORKED, hf_ping(w->client))                                                   \
    X(hf_ping_start, CHILD_FORKED, hf_ping_start(w->client, NULL, NULL, &w->made_op))              \
    X(hf_sem_acquire, CHILD_FORKED, hf_sem_acquire(w->sem, 1))                                     \
    X(hf_sem_acquire_for, CHILD_FORKED, hf_sem_acquire_for(w->sem, 1000, BRIEF_MS))                \
    X(hf_sem_acquire_start, CHILD_FORKED,                                                          \
      hf_sem_acquire_start(w->sem, 1, NULL, NULL, NULL, &w->made_op))                              \
    X(hf_sem_acquire_with, CHILD_FORKED, hf_sem_acquire_with(w->sem, 1, NULL))                     \
    X(hf_sem_add, CHILD_FORKED, hf_sem_add(w->sem, 1))                                             \
    X(hf_sem_add_start, CHILD_FORKED, hf_sem_add_start(w->sem, 1, NULL, NULL, &w->made_op))        \
    X(hf_sem_available, CHILD_FORKED, hf_sem_available(w->sem, &w->value))                         \
    X(hf_sem_available_start, CHILD_FORKED,                                                        \
      hf_sem_available_start(w->sem, NULL, NULL, &w->made_op))                                     \
    X(hf_sem_delete, CHILD_FORKED, hf_sem_delete(w->sem, &w->yes))                                 \
    X(hf_sem_delete_start, CHILD_FORKED, hf_sem_delete_start(w->sem, NULL, NULL, &w->made_op))     \
    X(hf_sem_drain, CHILD_FORKED, hf_sem_drain(w->sem, &w->value))                                 \
    X(hf_sem_drain_start, CHILD_FORKED, hf_sem_drain_start(w->sem, NULL, NULL, &w->made_op))       \
    X(hf_sem_free, CHILD_ANY, ENDS(hf_sem_free, sem))                                              \
    X(hf_sem_name, CHILD_ANY, FROM_TEXT(hf_sem_name(w->sem, NULL)))                                \
    X(hf_sem_new, CHILD_FORKED, hf_sem_new(w->client, "new", &w->made_sem))                        \
    X(hf_sem_new_bytes, CHILD_FORKED, hf_sem_new_bytes(w->client, "new", 3, &w->made_sem))         \
    X(hf_sem_release, CHILD_FORKED, hf_sem_release(w->sem, 1))                                     \
    X(hf_sem_release_if_exists, CHILD_FORKED, hf_sem_release_if_exists(w->sem, 1, &w->yes))        \
    X(hf_sem_release_if_exists_start, CHILD_FORKED,                                                \
      hf_sem_release_if_exists_start(w->sem, 1, NULL, NULL, &w->made_op))                          \
    X(hf_sem_release_start, CHILD_FORKED,                                                          \
      hf_sem_release_start(w->sem, 1, NULL, NULL, &w->made_op))                                    \
    X(hf_sem_try, CHILD_FORKED, hf_sem_try(w->sem, 1))                                             \
    X(hf_sem_try_set, CHILD_FORKED, hf_sem_try_set(w->sem, 5, 0, &w->yes))                         \
    X(hf_sem_try_set_start, CHILD_FORKED,                                                          \
      hf_sem_try_set_start(w->sem, 5, 0, NULL, NULL, &w->made_op))                                 \
    X(hf_server_info_free, CHILD_ANY, ENDS(hf_server_info_free, facts))                            \
    X(hf_strerror, CHILD_ANY, FROM_TEXT(hf_strerror(HF_EBUSY)))                                    \
    X(hf_survey, CHILD_FORKED, hf_survey(w->client, NULL, &w->made_fleet))                         \
    X(hf_survey_start, CHILD_FORKED,                                                               \
      hf_survey_start(w->client, NULL, &w->made_fleet, NULL, NULL, &w->made_op))                   \
    X(hf_text_free, CHILD_ANY, ENDS(hf_text_free, text))                                           \
    X(hf_version, CHILD_ANY, FROM_TEXT(hf_version()))                                              \
    X(hf_version_num, CHILD_ANY, hf_version_num())

#define DEFINE(function, child, expression)                                                        \
    static void call_##function(struct walk *w) {                                                  \
        w->result = (expression);                                                                  \
    }
STEPS(DEFINE)

#define LIST(function, child, expression) {#function, child, call_##function},
const struct walk_step walk_steps[] = {STEPS(LIST)};
const size_t walk_len = sizeof walk_steps / sizeof walk_steps[0];

/* ---- Life ---- */

static hf_options options_with(unsigned flags) {
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = 60000;
    options.cmd_timeout_ms = options.connect_timeout_ms = HANG_MS; /* a busy server is no fault */
    options.flags = flags;
    return options;
}

bool walk_begin(struct walk *w, struct server *server) {
    hf_options options = options_with(0), manual = options_with(HF_MANUAL_DISPATCH);
    *w = (struct walk){.server = server};
    return hf_open(server_url(server), &options, &w->client) == HF_OK &&
           hf_open(server_url(server), &manual, &w->manual) == HF_OK;
}

/* Frees it once, whichever thread calls: a cancelled thread may have done it already. */
#define DROP(function, thing) (function(w->thing), w->thing = NULL)

void walk_end(struct walk *w) {
    DROP(hf_lock_info_free, info);
    DROP(hf_server_info_free, facts);
    DROP(hf_fleet_free, fleet);
    DROP(hf_deadlocks_free, deadlocks);
    DROP(hf_text_free, text);
    DROP(hf_close, extra);
    DROP(hf_close, client);
    DROP(hf_close, manual);
}

/* A new name each time: what the last walk holds at its end stays for a lease. */
static const char *name_of(struct walk *w, char name[64], const char *what) {
    snprintf(name, 64, "%s-%d-%lu", what, (int)getpid(), w->serial);
    return name;
}

static bool make_held(struct walk *w) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_lock_options fenced = HF_LOCK_OPTIONS_INIT;
    char name[64];
    fenced.flags = HF_FENCED;
    w->owner = options.owner = hf_owner_new();
    if (hf_lock_new(w->client, name_of(w, name, "held"), &w->held) != HF_OK ||
        hf_lock_acquire_with(w->held, &options, NULL) != HF_OK ||
        hf_lock_acquire_with(w->held, &options, NULL) != HF_OK || hf_lock_lost_fd(w->held) < 0)
        return false;
    snprintf(w->handle, sizeof w->handle, "%s:%llu", hf_client_id(w->client),
             (unsigned long long)w->owner);
    name_of(w, name, "fenced");
    return hf_lock_new_with(w->client, name, strlen(name), &fenced, &w->fenced) == HF_OK &&
           hf_lock_acquire_start(w->held, NULL, NULL, NULL, &w->op) == HF_OK;
}

static bool make_armed(struct walk *w) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    if (hf_cancel_new(&w->armed) != HF_OK)
        return false;
    options.cancel = w->armed;
    return hf_lock_acquire_start(w->held, &options, NULL, NULL, &w->armed_op) == HF_OK;
}

static bool make_others(struct walk *w) {
    char name[64];
    return hf_sem_new(w->client, name_of(w, name, "sem"), &w->sem) == HF_OK &&
           hf_sem_try_set(w->sem, 100, 0, NULL) == HF_OK &&
           hf_permits_new(w->client, name_of(w, name, "permits"), &w->permits) == HF_OK &&
           hf_permits_try_set(w->permits, 100, NULL) == HF_OK &&
           hf_permits_try(w->permits, &w->permit) == HF_OK && hf_permits_lost_fd(w->permits) >= 0 &&
           hf_latch_new(w->client, name_of(w, name, "latch"), &w->latch) == HF_OK;
}

/* What only one step changes, by freeing it. */
static bool make_answers(struct walk *w) {
    return (w->extra != NULL || hf_open(server_url(w->server), NULL, &w->extra) == HF_OK) &&
           (w->info != NULL || hf_lock_inspect(w->held, &w->info) == HF_OK) &&
           (w->facts != NULL || hf_lock_server_info(w->lock, &w->facts) == HF_OK) &&
           (w->fleet != NULL || hf_survey(w->client, NULL, &w->fleet) == HF_OK) &&
           (w->deadlocks != NULL ||
            hf_fleet_deadlocks(w->fleet, w->fleet, &w->deadlocks) == HF_OK) &&
           (w->text != NULL || hf_client_metrics(w->client, &w->text) == HF_OK);
}

static bool listens(void *arg) {
    struct walk *w = arg;
    return atomic_load(&w->listening) != 0;
}

/* The client's own thread has done all of it, and sleeps: a thread that posts to it has to wake it. */
static bool settle(struct walk *w) {
    own_op *op = NULL;
    bool settled = wait_until(listens, w, HANG_MS) &&
                   hf_ping_start(w->client, NULL, NULL, &op) == HF_OK &&
                   hf_op_wait(op, HANG_MS, NULL) == HF_OK;
    return settled;
}

bool walk_prepare(struct walk *w) {
    static atomic_ulong serial;
    char name[64];
    w->number++;
    w->serial = atomic_fetch_add(&serial, 1);
    atomic_store(&w->listening, 0);
    return hf_lock_new(w->client, name_of(w, name, "lock"), &w->lock) == HF_OK &&
           hf_lock_lost_fd(w->lock) >= 0 && hf_cancel_new(&w->cancel) == HF_OK &&
           hf_listen(w->client, name_of(w, name, "listen"), note_listening, w, &w->listener) ==
               HF_OK &&
           make_held(w) && make_armed(w) && make_others(w) && make_answers(w) && settle(w);
}

void walk_tidy(struct walk *w) {
    if (w->made_op != NULL)
        hf_op_wait(w->made_op, HANG_MS, NULL); /* it may write to what is freed below */
    hf_op_cancel(w->op);
    if (w->op != NULL)
        hf_op_wait(w->op, HANG_MS, NULL);
    hf_op_cancel(w->armed_op);
    if (w->armed_op != NULL)
        hf_op_wait(w->armed_op, HANG_MS, NULL);
    DROP(hf_op_free, made_op);
    DROP(hf_op_free, op);
    DROP(hf_op_free, armed_op);
    DROP(hf_listener_free, listener);
    DROP(hf_listener_free, made_listener);
    DROP(hf_lock_free, lock);
    DROP(hf_lock_free, held);
    DROP(hf_lock_free, fenced);
    DROP(hf_lock_free, made_lock);
    DROP(hf_sem_free, sem);
    DROP(hf_sem_free, made_sem);
    DROP(hf_permits_free, permits);
    DROP(hf_permits_free, made_permits);
    DROP(hf_latch_free, latch);
    DROP(hf_latch_free, made_latch);
    DROP(hf_cancel_free, cancel);
    DROP(hf_cancel_free, armed);
    DROP(hf_cancel_free, made_cancel);
    DROP(hf_lock_info_free, made_info);
    DROP(hf_server_info_free, made_facts);
    DROP(hf_fleet_free, made_fleet);
    DROP(hf_deadlocks_free, made_deadlocks);
    DROP(hf_text_free, made_text);
    DROP(hf_close, made_client);
}

/* ---- Nothing is left out ---- */

void walk_assert_complete(void) {
    FILE *file = fopen(HF_SOURCE_DIR "/tests/frame/exports.txt", "re");
    char line[128];
    size_t i = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0')
            continue;
        assert_true(i < walk_len);
        assert_string_equal(walk_steps[i].name, line); /* both are sorted */
        i++;
    }
    assert_int_equal(i, walk_len);
    fclose(file);
}
