/* The name listener of `holdfast watch`: turns messages into events, and marks that the server
 * should be polled.
 *
 * Runs on the main thread, inside hf_dispatch(). A release message seldom names the owner; the last
 * known holder is taken for it. Facts that are not in a message, such as counts, come with the next
 * poll, which is then due. So it is when the server reports a change of the key: of a deleted one no
 * message comes.
 *
 * In a quorum each server publishes for itself, also when a minority vote is released. So there a
 * message only triggers a poll; a break decides how the end that the poll finds is called. */
#include "watch/watch.h"

#include <inttypes.h>

static void on_state(struct watch_events *events, const hf_notification *notification) {
    unsigned bit = 1u << notification->server;
    events->servers = notification->servers;
    if (notification->kind == HF_NOTIFY_SUBSCRIBED)
        events->subscribed |= bit;
    else
        events->subscribed &= ~bit;
    if (notification->code == HF_EPERM && !events->refused) {
        events->refused = true;
        say(LEVEL_NOTICE, "the server sends no messages (access denied): brief changes are missed");
    }
}

static void missed(struct watch_events *events, const hf_notification *notification) {
    char text[64];
    snprintf(text, sizeof text, "%" PRId64 " messages", notification->number);
    watch_missed(events->view, text);
}

static void on_event(hf_listener *listener, const hf_notification *notification, void *user) {
    struct watch_events *events = user;
    (void)listener;
    if (notification->kind == HF_NOTIFY_CHANGED) {
        events->changed = true;
        return;
    }
    events->poll_due = true;
    if (notification->kind == HF_NOTIFY_SUBSCRIBED || notification->kind == HF_NOTIFY_INTERRUPTED)
        on_state(events, notification);
    else if (notification->kind == HF_NOTIFY_BROKEN)
        watch_broken(events->view, notification->age_ms);
    else if (!events->view->begun || notification->servers > 1)
        return;
    else if (notification->kind == HF_NOTIFY_MISSED)
        missed(events, notification);
    else if (notification->kind == HF_NOTIFY_RELEASED ||
             notification->kind == HF_NOTIFY_WRITE_RELEASED)
        watch_released(events->view, false, notification->age_ms);
    else if (notification->kind == HF_NOTIFY_READ_RELEASED)
        watch_released(events->view, true, notification->age_ms);
    else if (notification->kind == HF_NOTIFY_OPENED || notification->kind == HF_NOTIFY_CLOSED)
        watch_latch(events->view, notification->kind == HF_NOTIFY_OPENED, notification->age_ms);
}

int watch_events_begin(struct watch_events *events, hf_client *client, const char *name,
                       struct watch_view *view) {
    *events = (struct watch_events){.view = view};
    return hf_listen(client, name, on_event, events, &events->listener);
}

void watch_events_end(struct watch_events *events) {
    hf_listener_free(events->listener);
    events->listener = NULL;
}

bool watch_events_are_subscribed(const struct watch_events *events) {
    size_t subscribed = 0;
    for (size_t i = 0; i < events->servers; i++)
        subscribed += (events->subscribed >> i) & 1u;
    return 2 * subscribed > events->servers;
}
