/*
 * Name listeners: subscriptions to the channels of one name, at the node that serves it
 * (hf_listen()); or to the breaks and announced losses of all names (hf_listen_breaks()), which every
 * node publishes.
 *
 * A listener is made and ended on any thread. In between it is a task on the keeper. It finds the
 * node of the name, joins the channels there, and follows the name to another node. Messages arrive
 * on the thread that reads the connection, under the mutex of the registry of channels, and are
 * passed on at once. Changes of a subscription's state arrive there, too, in the same order. `mtx`
 * guards what both threads use: the subscriber, and the state of the subscriptions.
 *
 * It listens when each channel is subscribed or refused, and at least one of the name's own is
 * subscribed. It reports that then, and again whenever a lost subscription is restored, since
 * messages may have been missed.
 *
 * A script that breaks a lock publishes on the channel of breaks before it publishes the release.
 * The listener subscribes to both on one connection, so it reports the break first.
 *
 * If the server reports changes of keys (pubsub/track.h), it passes on those of its name. It has
 * nothing tracked itself: an inspection does, while the client has a listener. So each inspection is
 * followed by one report at most, and a listener that nobody inspects for costs nothing.
 *
 * It does not subscribe to channels of fair locks. Those notify each waiter on a channel of its
 * own, and the number of subscribers decides who gets the lock. One more subscriber there, even by
 * a pattern, would make a dead waiter look alive.
 *
 * Lock order: the registry of channels, then `mtx`, then the subscriber's own locks.
 */
#include "redis/fleet/name_listener.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "net/driver/keeper.h"
#include "redis/fleet/announcements.h"
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"

#include <string.h>

#define PAYLOAD_DIGITS 18

enum { OF_LOCK, OF_READWRITE, OF_STRING, OF_PERMITS, OF_LATCH, OF_BREAKS, OF_LOSSES, CHANNELS };

struct subscription {
    struct hfi_waiter waiter;
    struct name_listener *name_listener;
    bool joined;                        /* the keeper's */
    enum hfi_name_listener_state state; /* guarded by the listener's `mtx` */
    bool silent;                        /* also guarded by it: there is no such channel */
};

struct name_listener {
    struct hfi_name_listener base;
    /* on the keeper; one reference for the subscriber, one for the list */
    struct hfi_task task;
    struct hfi_redis *redis;

    /* The keeper's. */
    struct hfi_link link;  /* in redis->name_listeners, from its first run to its end */
    struct hfi_node *home; /* where it is subscribed, with a reference; NULL: nowhere */
    struct hfi_want want;
    bool wants; /* for a node */
    struct hfi_alarm alarm;
    unsigned failed_searches; /* failed searches for the node, in a row */
    bool ended;
    struct subscription subscriptions[CHANNELS];

    pthread_mutex_t mtx;                    /* guards below */
    struct hfi_name_subscriber *subscriber; /* NULL: unsubscribed */
    enum { REPORTED_NOTHING, REPORTED_LISTENING, REPORTED_UNREACHED, REPORTED_REFUSED } reported;
    bool anew; /* a channel was subscribed since the last report */

    size_t name_len; /* 0: breaks of all names */
    char name[];
};

static bool is_for_all_names(const struct name_listener *name_listener) {
    return name_listener->name_len == 0;
}

/* Writes the name of a channel unless `to` is NULL; returns its length. */
static size_t channel_name(const struct name_listener *name_listener, size_t which, char *to) {
    static const struct hfi_kind *const kinds[OF_BREAKS] = {
        [OF_LOCK] = &hfi_kind_plain,    [OF_READWRITE] = &hfi_kind_read,
        [OF_STRING] = &hfi_kind_string, [OF_PERMITS] = &hfi_object_semaphore,
        [OF_LATCH] = &hfi_object_latch,
    };
    if (which == OF_BREAKS) {
        enum { LEN = sizeof HFI_BREAK_CHANNEL - 1 };
        if (to != NULL)
            memcpy(to, HFI_BREAK_CHANNEL, LEN);
        return LEN;
    }
    if (which == OF_LOSSES)
        return hfi_announcements_channel(name_listener->redis, to);
    const struct hfi_call call = {.name = name_listener->name, .name_len = name_listener->name_len};
    return hfi_redis_kind_of(kinds[which])->channel(name_listener->redis, &call, to);
}

/* ---- Messages ---- */

static void report_locked(const struct name_listener *name_listener,
                          const struct hfi_name_event *name_event) {
    if (name_listener->subscriber != NULL)
        name_listener->subscriber->on_event(name_listener->subscriber, name_event);
}

static void report(struct name_listener *name_listener, const struct hfi_name_event *name_event) {
    pthread_mutex_lock(&name_listener->mtx);
    report_locked(name_listener, name_event);
    pthread_mutex_unlock(&name_listener->mtx);
}

/* A number in plain decimal, as scripts publish it; -1: something else. */
static int64_t number_of(const char *message, size_t len) {
    int64_t number = 0;
    if (len == 0 || len > PAYLOAD_DIGITS)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (message[i] < '0' || message[i] > '9')
            return -1;
        number = number * 10 + (message[i] - '0');
    }
    return number;
}

/* Survey questions arrive on this channel, too. */
static void on_break_message(struct name_listener *name_listener, const char *message, size_t len) {
    struct hfi_name_event name_event = {.kind = HF_NOTIFY_BROKEN};
    size_t name_len;
    const char *name = hfi_break_channel_name_in(name_listener->redis, message, len, &name_len);
    if (name == NULL || name_len > HFI_NAME_MAX)
        return;
    if (is_for_all_names(name_listener)) {
        name_event.name = name;
        name_event.name_len = name_len;
    } else if (name_len != name_listener->name_len ||
               memcmp(name, name_listener->name, name_len) != 0) {
        return;
    }
    report(name_listener, &name_event);
}

static void on_message(struct hfi_waiter *waiter, const char *message, size_t len) {
    static const struct {
        hf_notification_kind zero, one, more; /* what a number means; 0: nothing */
    } meanings[OF_BREAKS] = {
        [OF_LOCK] = {HF_NOTIFY_RELEASED, HF_NOTIFY_RELEASED, HF_NOTIFY_RELEASED},
        [OF_READWRITE] = {HF_NOTIFY_READ_RELEASED, HF_NOTIFY_WRITE_RELEASED, 0},
        [OF_STRING] = {HF_NOTIFY_RELEASED, HF_NOTIFY_RELEASED, HF_NOTIFY_RELEASED},
        [OF_PERMITS] = {0, HF_NOTIFY_AVAILABLE, HF_NOTIFY_AVAILABLE},
        [OF_LATCH] = {HF_NOTIFY_OPENED, HF_NOTIFY_CLOSED, 0},
    };
    struct subscription *subscription = HFI_CONTAINER(waiter, struct subscription, waiter);
    size_t which = (size_t)(subscription - subscription->name_listener->subscriptions);
    if (which == OF_BREAKS) {
        on_break_message(subscription->name_listener, message, len);
        return;
    }
    if (which == OF_LOSSES) { /* the message has its client's numbers, and no name */
        report(subscription->name_listener, &(struct hfi_name_event){.kind = HF_NOTIFY_LOST});
        return;
    }
    int64_t number = number_of(message, len);
    struct hfi_name_event name_event = {.kind = number == 0   ? meanings[which].zero
                                                : number == 1 ? meanings[which].one
                                                : number > 1  ? meanings[which].more
                                                              : 0};
    if (name_event.kind == HF_NOTIFY_AVAILABLE)
        name_event.number = number;
    if (name_event.kind != 0)
        report(subscription->name_listener, &name_event);
}

/* ---- State of the subscriptions ---- */

/* Whether a name listener with this subscription alone listens. Breaks alone do not cover a name; a
 * listener for all names is there for breaks. */
static bool counts(const struct name_listener *name_listener, size_t which) {
    return is_for_all_names(name_listener) ? which == OF_BREAKS : which < OF_BREAKS;
}

static void stands_locked(struct name_listener *name_listener) {
    size_t subscribed = 0;
    for (size_t i = 0; i < CHANNELS; i++) {
        const struct subscription *subscription = &name_listener->subscriptions[i];
        if (!subscription->silent && subscription->state == HFI_UNSUBSCRIBED)
            return;
        subscribed += !subscription->silent && subscription->state == HFI_SUBSCRIBED &&
                      counts(name_listener, i);
    }
    if (subscribed > 0 && (name_listener->anew || name_listener->reported != REPORTED_LISTENING)) {
        name_listener->reported = REPORTED_LISTENING;
        name_listener->anew = false;
        report_locked(name_listener, &(struct hfi_name_event){.kind = HF_NOTIFY_SUBSCRIBED});
    } else if (subscribed == 0 && name_listener->reported != REPORTED_REFUSED) {
        name_listener->reported = REPORTED_REFUSED;
        report_locked(name_listener,
                      &(struct hfi_name_event){.kind = HF_NOTIFY_INTERRUPTED, .code = HF_EPERM});
    }
}

/* If a connection is lost, all channels are lost at once, and that is reported once. */
static void on_state(struct hfi_waiter *waiter, enum hfi_name_listener_state state) {
    struct subscription *subscription = HFI_CONTAINER(waiter, struct subscription, waiter);
    struct name_listener *name_listener = subscription->name_listener;
    pthread_mutex_lock(&name_listener->mtx);
    name_listener->anew = name_listener->anew || state == HFI_SUBSCRIBED;
    subscription->state = state;
    if (state == HFI_UNSUBSCRIBED && name_listener->reported == REPORTED_LISTENING) {
        name_listener->reported = REPORTED_UNREACHED;
        report_locked(name_listener,
                      &(struct hfi_name_event){.kind = HF_NOTIFY_INTERRUPTED, .code = HF_EUNREACH});
    }
    stands_locked(name_listener);
    pthread_mutex_unlock(&name_listener->mtx);
}

static const struct hfi_listener listener = {
    .on_message = on_message,
    .on_state = on_state,
    .refused = "the server refuses the subscription to a name's messages; allow its channels"};
/* ---- Where it subscribes ---- */

static void join(struct subscription *subscription) {
    struct name_listener *name_listener = subscription->name_listener;
    size_t which = (size_t)(subscription - name_listener->subscriptions),
           len = channel_name(name_listener, which, NULL);
    char *name = hfi_alloc(name_listener->redis->mem, len + 1); /* a NUL is written, too */
    bool subscribed;
    if (name == NULL)
        return; /* and tries again */
    channel_name(name_listener, which, name);
    subscription->waiter.sharded = which < OF_BREAKS && hfi_redis_is_sharded(name_listener->redis);
    subscription->joined =
        hfi_pubsub_join(hfi_node_learnt(name_listener->home)->pubsub, &subscription->waiter,
                        &name_listener->task, name, len, &subscribed) == HF_OK;
    hfi_free(name_listener->redis->mem, name);
}

/* If a latch's name has braces, its channel is in another slot; a cluster has no such latch. */
static bool has_channel(const struct name_listener *name_listener, size_t which) {
    const struct hfi_redis *redis = name_listener->redis;
    if (is_for_all_names(name_listener))
        return which == OF_BREAKS || which == OF_LOSSES;
    if (which == OF_LOSSES)
        return false;
    return which != OF_LATCH || !hfi_redis_is_sharded(redis) ||
           !hfi_name_has_brace(&redis->names, name_listener->name, name_listener->name_len);
}

static void join_all(struct name_listener *name_listener) {
    pthread_mutex_lock(&name_listener->mtx);
    for (size_t i = 0; i < CHANNELS; i++)
        name_listener->subscriptions[i].silent = !has_channel(name_listener, i);
    pthread_mutex_unlock(&name_listener->mtx);
    for (size_t i = 0; i < CHANNELS; i++)
        if (!name_listener->subscriptions[i].joined && has_channel(name_listener, i))
            join(&name_listener->subscriptions[i]);
}

static void leave_all(struct name_listener *name_listener) {
    for (size_t i = 0; i < CHANNELS; i++) {
        struct subscription *subscription = &name_listener->subscriptions[i];
        if (!subscription->joined)
            continue;
        hfi_pubsub_leave(&subscription->waiter);
        subscription->joined = false;
        on_state(&subscription->waiter, HFI_UNSUBSCRIBED);
    }
    hfi_node_unref(name_listener->home);
    name_listener->home = NULL;
}

/* ---- The task ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct name_listener, alarm)->task, HFI_EVENT_TIMER);
}

static void check_later(struct name_listener *name_listener) {
    static const struct hfi_backoff backoff = {.first_ms = 50, .max_ms = 1000, .factor = 2};
    int64_t pause_ms = hfi_backoff_spread_ms(&backoff, name_listener->failed_searches++,
                                             hfi_jitter_bits(name_listener));
    hfi_alarm_set(name_listener->task.exec, &name_listener->alarm, hfi_now_ms() + pause_ms);
}

static void drop_want(struct name_listener *name_listener) {
    struct hfi_route *route = name_listener->redis->route;
    if (name_listener->wants)
        route->ops->unwant(route, &name_listener->want);
    name_listener->wants = false;
}

/* Some channel is not subscribed, and no event will come when it can be. */
static bool must_check_again(struct name_listener *name_listener) {
    bool again = false;
    for (size_t i = 0; i < CHANNELS; i++) {
        struct subscription *subscription = &name_listener->subscriptions[i];
        if (!has_channel(name_listener, i))
            continue;
        pthread_mutex_lock(&name_listener->mtx);
        bool unsubscribed = subscription->state == HFI_UNSUBSCRIBED;
        pthread_mutex_unlock(&name_listener->mtx);
        if (subscription->joined && unsubscribed)
            hfi_pubsub_again(&subscription->waiter);
        again |= !subscription->joined ||
                 (unsubscribed && hfi_route_changes(name_listener->redis->route));
    }
    return again;
}

/* Joins the channels at the node that serves the name now. */
static void check_subscriptions(struct name_listener *name_listener) {
    struct hfi_route *route = name_listener->redis->route;
    struct hfi_node *node =
        hfi_redis_node_for(name_listener->redis, name_listener->name, name_listener->name_len);
    if (node == NULL && route->ops->want != NULL) {
        leave_all(name_listener);
        name_listener->wants = true;
        route->ops->want(route, name_listener->name, name_listener->name_len, &name_listener->want,
                         &name_listener->task, HFI_EVENT_READY);
        return;
    }
    if (node != name_listener->home) {
        leave_all(name_listener);
        name_listener->home = node;
    } else {
        hfi_node_unref(node);
    }
    if (name_listener->home != NULL)
        join_all(name_listener);
    if (name_listener->home == NULL || must_check_again(name_listener))
        check_later(name_listener);
    else
        name_listener->failed_searches = 0;
}

static void begin(struct name_listener *name_listener) {
    hfi_task_ref(&name_listener->task);
    hfi_list_push_back(&name_listener->redis->name_listeners, &name_listener->link);
    if (!is_for_all_names(name_listener))
        atomic_fetch_add(&name_listener->redis->names_subscribed, 1);
    hfi_redis_watch_route(name_listener->redis);
}

static void end(struct name_listener *name_listener) {
    struct hfi_redis *redis = name_listener->redis;
    name_listener->ended = true;
    if (!hfi_linked(&name_listener->link))
        return; /* it has not begun */
    drop_want(name_listener);
    leave_all(name_listener);
    hfi_alarm_clear(name_listener->task.exec, &name_listener->alarm);
    hfi_list_remove(&name_listener->link);
    if (!is_for_all_names(name_listener))
        atomic_fetch_sub(&redis->names_subscribed, 1);
    if (!atomic_load(&redis->stopped))
        hfi_redis_watch_route(redis);
    hfi_task_unref(&name_listener->task);
}

static bool is_wanted(struct name_listener *name_listener) {
    pthread_mutex_lock(&name_listener->mtx);
    bool wanted = name_listener->subscriber != NULL;
    pthread_mutex_unlock(&name_listener->mtx);
    return wanted;
}

static void run(struct hfi_task *task, unsigned events) {
    struct name_listener *name_listener = HFI_CONTAINER(task, struct name_listener, task);
    if (name_listener->ended)
        return;
    if (!is_wanted(name_listener) || atomic_load(&name_listener->redis->stopped)) {
        end(name_listener);
        return;
    }
    if (!hfi_linked(&name_listener->link))
        begin(name_listener);
    /* messages and new subscriptions were passed on already */
    const unsigned reasons = HFI_EVENT_READY | HFI_EVENT_TIMER | HFI_EVENT_REFUSED;
    if ((events & reasons) == 0)
        return;
    bool wanted = name_listener->wants;
    drop_want(name_listener); /* takes the route's mutex, after which `err` is final */
    if (wanted && name_listener->want.err != HF_OK)
        check_later(name_listener);
    else
        check_subscriptions(name_listener);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct name_listener *name_listener = HFI_CONTAINER(task, struct name_listener, task);
    pthread_mutex_destroy(&name_listener->mtx);
    hfi_free(name_listener->redis->mem, name_listener);
}

static void unsubscribe(struct hfi_name_listener *base) {
    struct name_listener *name_listener = HFI_CONTAINER(base, struct name_listener, base);
    pthread_mutex_lock(&name_listener->mtx);
    name_listener->subscriber = NULL;
    pthread_mutex_unlock(&name_listener->mtx);
    hfi_task_post(&name_listener->task, HFI_EVENT_READY);
    hfi_task_unref(&name_listener->task);
}

int hfi_subscribe(struct hfi_engine *engine, const char *name, size_t name_len,
                  struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    struct name_listener *name_listener = hfi_zalloc(redis->mem, sizeof *name_listener + name_len);
    if (name_listener == NULL)
        return HF_ENOMEM;
    name_listener->base = (struct hfi_name_listener){.servers = 1, .unsubscribe = unsubscribe};
    name_listener->redis = redis;
    name_listener->subscriber = subscriber;
    name_listener->alarm.fire = alarm_fired;
    name_listener->name_len = name_len;
    memcpy(name_listener->name, name, name_len);
    for (size_t i = 0; i < CHANNELS; i++) {
        name_listener->subscriptions[i].name_listener = name_listener;
        name_listener->subscriptions[i].waiter.listener = &listener;
    }
    pthread_mutex_init(&name_listener->mtx, NULL);
    hfi_task_init(&name_listener->task, hfi_keeper_exec(redis->keeper), run, destroy);
    hfi_task_post(&name_listener->task, HFI_EVENT_READY);
    *ret = &name_listener->base;
    return HF_OK;
}

static bool is_meant(const struct name_listener *name_listener, const struct hfi_node *node,
                     const char *name, size_t name_len) {
    return name_listener->home == node && !is_for_all_names(name_listener) &&
           (name == NULL || (name_listener->name_len == name_len &&
                             memcmp(name_listener->name, name, name_len) == 0));
}

void hfi_name_listeners_changed(struct hfi_redis *redis, const struct hfi_node *node,
                                const char *name, size_t name_len) {
    for (struct hfi_link *link = redis->name_listeners.next; link != &redis->name_listeners;
         link = link->next) {
        struct name_listener *name_listener = HFI_CONTAINER(link, struct name_listener, link);
        if (is_meant(name_listener, node, name, name_len))
            report(name_listener, &(struct hfi_name_event){.kind = HF_NOTIFY_CHANGED});
    }
}

void hfi_name_listeners_check(struct hfi_redis *redis) {
    for (struct hfi_link *link = redis->name_listeners.next; link != &redis->name_listeners;
         link = link->next)
        hfi_task_post(&HFI_CONTAINER(link, struct name_listener, link)->task, HFI_EVENT_TIMER);
}

void hfi_name_listeners_stop(struct hfi_redis *redis) {
    while (!hfi_list_empty(&redis->name_listeners))
        end(HFI_CONTAINER(redis->name_listeners.next, struct name_listener, link));
}
