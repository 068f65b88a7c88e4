/*
 * The shared channel of holdfast clients (break_channel.h) at one server: receives notifications of
 * broken holds, and adds them to scripts that break.
 *
 * Messages arrive on the thread that reads the pub/sub connection. It only notes the name, under
 * `mtx`, if database and prefix are ours. A task on the keeper reports the names to the core, at
 * once, and no more often than every 100 ms. With more than NOTED_MAX names, or without memory, it
 * reports that any hold may be gone. Joining and leaving the channel is also the keeper's. Lock
 * order: the registry of channels, then `mtx`.
 *
 * When the subscription begins, or is restored after a lost connection, messages may have been
 * missed. So then, too, any hold may be gone.
 */
#include "redis/ops/break_channel.h"

#include "base/clock.h"
#include "net/driver/keeper.h"
#include "redis/fleet/survey_responder.h"
#include "redis/ops/call.h"

#include <stdio.h>
#include <string.h>

#define BROKEN "broken 1 " /* then the database, a space, the key */
#define GAP_MS 100
#define NOTED_MAX 64

struct note {
    struct hfi_link link;
    size_t len;
    char name[];
};

struct hfi_break_channel {
    struct hfi_task task; /* on the keeper */
    struct hfi_redis *redis;
    struct hfi_node *node; /* which owns it */
    struct hfi_waiter waiter;
    struct hfi_alarm alarm;
    bool joined, stopped; /* the keeper's, like the next */
    int64_t delivered_ms;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_link notes;
    unsigned notes_len;
    bool any; /* any hold may be gone */
};

/* ---- Receiving ---- */

static bool takes(const char **at, const char *end, const char *text, size_t len) {
    if ((size_t)(end - *at) < len || memcmp(*at, text, len) != 0)
        return false;
    *at += len;
    return true;
}

const char *hfi_break_channel_name_in(const struct hfi_redis *redis, const char *message,
                                      size_t len, size_t *ret_len) {
    const char *at = message, *end = message + len;
    char head[48];
    int head_len = snprintf(head, sizeof head, BROKEN "%d ", redis->db);
    if (!takes(&at, end, head, (size_t)head_len) ||
        !takes(&at, end, redis->names.prefix, redis->names.prefix_len) || at == end)
        return NULL;
    *ret_len = (size_t)(end - at);
    return at;
}

static void note_locked(struct hfi_break_channel *break_channel, const char *name, size_t len) {
    struct note *note = NULL;
    if (break_channel->notes_len < NOTED_MAX && len <= HFI_NAME_MAX)
        note = hfi_alloc(break_channel->redis->mem, sizeof *note + len);
    if (note == NULL) {
        break_channel->any = true;
        return;
    }
    *note = (struct note){.len = len};
    memcpy(note->name, name, len);
    hfi_list_push_back(&break_channel->notes, &note->link);
    break_channel->notes_len++;
}

static void on_message(struct hfi_waiter *waiter, const char *message, size_t len) {
    struct hfi_break_channel *break_channel =
        HFI_CONTAINER(waiter, struct hfi_break_channel, waiter);
    size_t name_len;
    hfi_survey_responder_on_message(hfi_node_learnt(break_channel->node)->answers, message, len);
    const char *name = hfi_break_channel_name_in(break_channel->redis, message, len, &name_len);
    if (name == NULL)
        return;
    pthread_mutex_lock(&break_channel->mtx);
    note_locked(break_channel, name, name_len);
    pthread_mutex_unlock(&break_channel->mtx);
}

static const struct hfi_listener listener = {
    .on_message = on_message,
    .refused = "the server refuses the subscription to breaks and surveys: breaks are noticed "
               "late, and surveys do not show what this client holds; allow the channels"};

/* ---- Reporting to the core ---- */

static void clear_notes(struct hfi_break_channel *break_channel) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&break_channel->notes)) != NULL)
        hfi_free(break_channel->redis->mem, HFI_CONTAINER(link, struct note, link));
    break_channel->notes_len = 0;
}

static void deliver(struct hfi_break_channel *break_channel) {
    struct hfi_link notes, *link;
    hfi_list_init(&notes);
    pthread_mutex_lock(&break_channel->mtx);
    bool any = break_channel->any;
    bool anything = any || break_channel->notes_len > 0;
    break_channel->any = false;
    if (any)
        clear_notes(break_channel);
    hfi_list_splice(&notes, &break_channel->notes);
    break_channel->notes_len = 0;
    pthread_mutex_unlock(&break_channel->mtx);
    if (anything)
        break_channel->delivered_ms = hfi_now_ms();
    const struct hfi_engine_events *engine_events = break_channel->redis->engine_events;
    struct hfi_scope scope = {.node = break_channel->node};
    if (any)
        engine_events->doubted(engine_events->arg, &scope);
    while ((link = hfi_list_pop_front(&notes)) != NULL) {
        struct note *note = HFI_CONTAINER(link, struct note, link);
        scope.name = note->name;
        scope.name_len = note->len;
        engine_events->doubted(engine_events->arg, &scope);
        hfi_free(break_channel->redis->mem, note);
    }
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_break_channel, alarm)->task, HFI_EVENT_TIMER);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_break_channel *break_channel = HFI_CONTAINER(task, struct hfi_break_channel, task);
    if (break_channel->stopped || break_channel->redis->engine_events == NULL)
        return;
    if ((events & HFI_EVENT_SUBSCRIBED) != 0) {
        pthread_mutex_lock(&break_channel->mtx);
        break_channel->any = true;
        pthread_mutex_unlock(&break_channel->mtx);
    }
    int64_t at_ms = break_channel->delivered_ms + GAP_MS;
    if (hfi_now_ms() < at_ms)
        hfi_alarm_set(task->exec, &break_channel->alarm, at_ms);
    else
        deliver(break_channel);
}

void hfi_break_channel_changed(struct hfi_break_channel *break_channel) {
    pthread_mutex_lock(&break_channel->mtx);
    break_channel->any = true;
    pthread_mutex_unlock(&break_channel->mtx);
    hfi_task_post(&break_channel->task, HFI_EVENT_MESSAGE);
}

static void listen_at(struct hfi_node *node, void *arg) {
    struct hfi_break_channel *break_channel = hfi_node_learnt(node)->break_channel;
    const bool on = *(const bool *)arg;
    if (break_channel->stopped || break_channel->joined == on)
        return;
    if (on && hfi_node_last_answer_ms(node) == 0)
        return; /* nothing is held at a server that has not answered yet */
    bool subscribed = false;
    if (!on)
        hfi_pubsub_leave(&break_channel->waiter);
    else if (hfi_pubsub_join(hfi_node_learnt(node)->pubsub, &break_channel->waiter,
                             &break_channel->task, HFI_BREAK_CHANNEL, strlen(HFI_BREAK_CHANNEL),
                             &subscribed) != HF_OK)
        return; /* no memory: the next renewal notices instead */
    break_channel->joined = on;
    hfi_survey_responder_subscribe(hfi_node_learnt(node)->answers, on);
}

void hfi_break_channel_subscribe(struct hfi_engine *engine, bool on) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    redis->listens = on;
    redis->route->ops->each(redis->route, listen_at, &on);
    hfi_redis_watch_route(redis);
}

void hfi_break_channel_join(struct hfi_redis *redis, struct hfi_node *node) {
    listen_at(node, &redis->listens);
}

/* ---- Publishing ---- */

size_t hfi_break_channel_head(const struct hfi_redis *redis, char *to, size_t size) {
    return (size_t)snprintf(to, size, BROKEN "%d ", redis->db);
}

void hfi_break_channel_publish(const struct hfi_redis *redis, struct hfi_command *command) {
    char head[48];
    hfi_break_channel_head(redis, head, sizeof head);
    hfi_command_text(command, HFI_BREAK_CHANNEL);
    hfi_command_text(command, head);
}

void hfi_break_channel_refused(struct hfi_exchange *x) {
    if (!atomic_exchange(&hfi_node_learnt(x->node)->break_channel_warned, true))
        hfi_log(x->redis->log, HF_LOG_WARN,
                HFI_ABOUT(.code = HF_EPERM, .server = hfi_node_name(x->node), .name = x->name,
                          .name_len = x->name_len),
                "a lock was broken, but this user may not publish on " HFI_BREAK_CHANNEL
                ": its holder notices late; allow the channel");
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_break_channel *break_channel = HFI_CONTAINER(task, struct hfi_break_channel, task);
    clear_notes(break_channel);
    pthread_mutex_destroy(&break_channel->mtx);
    hfi_free(break_channel->redis->mem, break_channel);
}

int hfi_break_channel_new(struct hfi_redis *redis, struct hfi_node *node,
                          struct hfi_break_channel **ret) {
    struct hfi_break_channel *break_channel = hfi_zalloc(redis->mem, sizeof *break_channel);
    if (break_channel == NULL)
        return HF_ENOMEM;
    break_channel->redis = redis;
    break_channel->node = node;
    break_channel->waiter.listener = &listener;
    break_channel->waiter.lazy = true;
    break_channel->alarm.fire = alarm_fired;
    break_channel->delivered_ms = -GAP_MS;
    hfi_list_init(&break_channel->notes);
    pthread_mutex_init(&break_channel->mtx, NULL);
    hfi_task_init(&break_channel->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = break_channel;
    return HF_OK;
}

void hfi_break_channel_stop(struct hfi_break_channel *break_channel) {
    if (break_channel == NULL)
        return;
    if (break_channel->joined)
        hfi_pubsub_leave(&break_channel->waiter);
    break_channel->joined = false;
    break_channel->stopped = true;
    hfi_alarm_clear(break_channel->task.exec, &break_channel->alarm);
}

void hfi_break_channel_free(struct hfi_break_channel *break_channel) {
    if (break_channel != NULL)
        hfi_task_unref(&break_channel->task);
}
