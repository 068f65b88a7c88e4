/*
 * Tracking at one server (track.h): the id to report to, and the reports.
 *
 * Used by renewals, which have the keys of holds tracked, and by attempts on a string lock that a
 * stranger has. Messages come on the thread that reads the pub/sub connection. It wakes the waiters
 * of a string lock at once, and notes the name, under `mtx`. A task on the keeper passes the names
 * on to the core, at once, and no more often than every 100 ms. A report about all keys (FLUSHALL),
 * more than NOTED_MAX names, or no memory, is passed on for the whole server, at most once a second.
 * Lock order: `mtx`, then nothing; the registry of channels is locked without it.
 *
 * The id is asked for in front of the first subscription: it is the first thing that the server
 * answers there, so it needs no name. A refusal is remembered, and then all is as without tracking.
 */
#include "redis/pubsub/track.h"

#include "base/clock.h"
#include "net/driver/keeper.h"
#include "redis/exchange/exchange.h"
#include "redis/pubsub/pubsub.h"

#include <string.h>

#define INVALIDATE "__redis__:invalidate"
#define STRING_CHANNEL "holdfast_string" /* where its waiters are */
#define CHANNEL_SMALL 512
#define GAP_MS 100
#define ALL_GAP_MS 1000
#define NOTED_MAX 1024

struct note {
    struct hfi_link link;
    size_t len;
    char name[];
};

struct hfi_tracker {
    struct hfi_task task; /* on the keeper */
    struct hfi_redis *redis;
    struct hfi_node *node; /* which owns it */
    struct hfi_alarm alarm;
    bool stopped; /* the keeper's, like the next two */
    int64_t delivered_ms, all_ms;

    _Atomic int64_t target; /* the id of the pub/sub connection; 0: unknown */
    atomic_bool asked;      /* for that, and not answered yet */
    atomic_bool subscribed; /* to any channel: the server reports to no other connection */
    atomic_bool refused;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_link notes;
    unsigned notes_len;
    bool all; /* any key may have changed */
};

/* ---- What the server allows ---- */

bool hfi_tracker_is_possible(const struct hfi_tracker *tracker) {
    return tracker->redis->base.tracks &&
           !atomic_load_explicit(&tracker->refused, memory_order_relaxed);
}

int64_t hfi_tracker_target(const struct hfi_tracker *tracker) {
    return hfi_tracker_is_possible(tracker) &&
                   atomic_load_explicit(&tracker->subscribed, memory_order_relaxed)
               ? atomic_load_explicit(&tracker->target, memory_order_relaxed)
               : 0;
}

/* Unless the server cannot do it just now: LOADING, BUSY and the like. */
static void refuse(struct hfi_tracker *tracker, const struct hfi_reply *reply) {
    bool final = strncmp(reply->str, "NOPERM", 6) == 0 || strncmp(reply->str, "ERR", 3) == 0;
    if (!final || atomic_exchange(&tracker->refused, true))
        return;
    hfi_log(tracker->redis->log, HF_LOG_DEBUG, HFI_ABOUT(.server = hfi_node_name(tracker->node)),
            "%s: the server does not report changes of locks, so deleted ones are noticed late: "
            "%.*s",
            hfi_node_name(tracker->node), (int)(reply->len < 128 ? reply->len : 128), reply->str);
}

static void ask_id(struct hfi_tracker *tracker) {
    static const char question[] = "*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n";
    struct hfi_conn *conn = hfi_node_listener(tracker->node);
    atomic_store(&tracker->asked, true);
    if (hfi_conn_send(conn, question, sizeof question - 1) != HF_OK)
        atomic_store(&tracker->asked, false);
}

void hfi_tracker_state(struct hfi_tracker *tracker, bool up) {
    atomic_store(&tracker->target, 0);
    atomic_store(&tracker->asked, false);
    atomic_store(&tracker->subscribed, false);
    if (up && !tracker->stopped && hfi_tracker_is_possible(tracker))
        ask_id(tracker);
}

/* A status is a pong. */
static bool read_id(struct hfi_tracker *tracker, const struct hfi_reply *reply) {
    if (reply->type != HFI_REPLY_INTEGER && reply->type != HFI_REPLY_ERROR)
        return false;
    if (!atomic_exchange(&tracker->asked, false))
        return false;
    if (reply->type == HFI_REPLY_ERROR)
        refuse(tracker, reply);
    else
        atomic_store(&tracker->target, reply->integer > 0 ? reply->integer : 0);
    return true;
}

static bool is_bytes(const struct hfi_reply *reply, const char *text) {
    return reply->type == HFI_REPLY_STRING && reply->len == strlen(text) &&
           memcmp(reply->str, text, reply->len) == 0;
}

static void note_subscription(struct hfi_tracker *tracker, const struct hfi_reply *message) {
    if (message->type == HFI_REPLY_ARRAY && message->elements == 3 &&
        (is_bytes(message->element[0], "subscribe") || is_bytes(message->element[0], "ssubscribe")))
        atomic_store_explicit(&tracker->subscribed, true, memory_order_relaxed);
}

static bool is_ok(const struct hfi_reply *reply) {
    return reply != NULL && reply->type == HFI_REPLY_STATUS;
}

static bool is_about_id(const struct hfi_reply *reply) {
    return memmem(reply->str, reply->len, "does not exist", strlen("does not exist")) != NULL;
}

bool hfi_tracker_is_on(struct hfi_tracker *tracker, int64_t target, const struct hfi_reply *reply) {
    if (reply == NULL || reply->type != HFI_REPLY_ERROR)
        return is_ok(reply);
    /* The connection has ended, and we have not noticed yet. */
    if (is_about_id(reply))
        atomic_compare_exchange_strong(&tracker->target, &target, 0);
    else
        refuse(tracker, reply);
    return false;
}

bool hfi_tracker_is_next(struct hfi_tracker *tracker, const struct hfi_reply *reply) {
    if (reply != NULL && reply->type == HFI_REPLY_ERROR)
        refuse(tracker, reply);
    return is_ok(reply);
}

/* ---- Writing ---- */

static void next_command(struct hfi_command *command) {
    hfi_command_close(command);
    hfi_command_open(command);
}

void hfi_track_on(struct hfi_command *command, int64_t target) {
    hfi_command_text(command, "CLIENT");
    hfi_command_text(command, "TRACKING");
    hfi_command_text(command, "ON");
    hfi_command_text(command, "REDIRECT");
    hfi_command_number(command, target);
    hfi_command_text(command, "OPTIN");
    hfi_command_text(command, "NOLOOP");
    next_command(command);
}

void hfi_track_next(struct hfi_command *command) {
    hfi_command_text(command, "CLIENT");
    hfi_command_text(command, "CACHING");
    hfi_command_text(command, "YES");
    next_command(command);
}

/* ---- Receiving ---- */

static bool note_locked(struct hfi_tracker *tracker, const char *name, size_t len) {
    struct note *note = NULL;
    if (tracker->notes_len < NOTED_MAX && len <= HFI_NAME_MAX)
        note = hfi_alloc(tracker->redis->mem, sizeof *note + len);
    if (note == NULL)
        return false;
    *note = (struct note){.len = len};
    memcpy(note->name, name, len);
    hfi_list_push_back(&tracker->notes, &note->link);
    tracker->notes_len++;
    return true;
}

void hfi_tracker_note(struct hfi_tracker *tracker, const char *name, size_t len) {
    pthread_mutex_lock(&tracker->mtx);
    if (!tracker->all && !note_locked(tracker, name, len))
        tracker->all = true;
    pthread_mutex_unlock(&tracker->mtx);
    hfi_task_post(&tracker->task, HFI_EVENT_MESSAGE);
}

static void note_all(struct hfi_tracker *tracker) {
    pthread_mutex_lock(&tracker->mtx);
    tracker->all = true;
    pthread_mutex_unlock(&tracker->mtx);
    hfi_task_post(&tracker->task, HFI_EVENT_MESSAGE);
}

static void wake_waiters(struct hfi_tracker *tracker, const char *name, size_t len) {
    struct hfi_redis *redis = tracker->redis;
    char small[CHANNEL_SMALL], *channel = small;
    size_t channel_len = hfi_name_prefixed(&redis->names, STRING_CHANNEL, name, len, NULL);
    if (channel_len > sizeof small)
        channel = hfi_alloc(redis->mem, channel_len);
    if (channel == NULL)
        return; /* they attempt every few seconds anyway */
    hfi_name_prefixed(&redis->names, STRING_CHANNEL, name, len, channel);
    hfi_pubsub_wake(hfi_node_learnt(tracker->node)->pubsub, channel, channel_len);
    if (channel != small)
        hfi_free(redis->mem, channel);
}

static void key_changed(struct hfi_tracker *tracker, const struct hfi_reply *key) {
    const struct hfi_names *names = &tracker->redis->names;
    if (key->type != HFI_REPLY_STRING || key->len <= names->prefix_len ||
        memcmp(key->str, names->prefix, names->prefix_len) != 0)
        return;
    const char *name = key->str + names->prefix_len;
    size_t len = key->len - names->prefix_len;
    atomic_fetch_add_explicit(tracker->redis->track_events, 1, memory_order_relaxed);
    wake_waiters(tracker, name, len);
    hfi_tracker_note(tracker, name, len);
}

static bool is_report(const struct hfi_reply *message) {
    return message->type == HFI_REPLY_ARRAY && message->elements == 3 &&
           is_bytes(message->element[1], INVALIDATE);
}

bool hfi_tracker_push(struct hfi_tracker *tracker, const struct hfi_reply *message) {
    if (!is_report(message)) {
        note_subscription(tracker, message);
        return read_id(tracker, message);
    }
    if (!tracker->redis->base.tracks)
        return true;
    const struct hfi_reply *keys = message->element[2];
    if (keys->type == HFI_REPLY_NIL) {
        atomic_fetch_add_explicit(tracker->redis->track_events, 1, memory_order_relaxed);
        note_all(tracker);
    }
    for (size_t i = 0; keys->type == HFI_REPLY_ARRAY && i < keys->elements; i++)
        key_changed(tracker, keys->element[i]);
    return true;
}

/* ---- Passing on ---- */

static void clear_notes(const struct hfi_tracker *tracker, struct hfi_link *notes) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(notes)) != NULL)
        hfi_free(tracker->redis->mem, HFI_CONTAINER(link, struct note, link));
}

static void deliver_all(struct hfi_tracker *tracker) {
    const struct hfi_engine_events *engine_events = tracker->redis->engine_events;
    struct hfi_scope scope = {.node = tracker->node};
    struct hfi_link notes;
    hfi_list_init(&notes);
    pthread_mutex_lock(&tracker->mtx);
    tracker->all = false;
    hfi_list_splice(&notes, &tracker->notes); /* they are among all */
    tracker->notes_len = 0;
    pthread_mutex_unlock(&tracker->mtx);
    clear_notes(tracker, &notes);
    tracker->all_ms = tracker->delivered_ms = hfi_now_ms();
    hfi_pubsub_wake_all(hfi_node_learnt(tracker->node)->pubsub);
    tracker->redis->key_changed(tracker->redis, tracker->node, NULL, 0);
    engine_events->touched(engine_events->arg, &scope);
}

static void deliver(struct hfi_tracker *tracker) {
    const struct hfi_engine_events *engine_events = tracker->redis->engine_events;
    struct hfi_link notes, *link;
    hfi_list_init(&notes);
    pthread_mutex_lock(&tracker->mtx);
    hfi_list_splice(&notes, &tracker->notes);
    tracker->notes_len = 0;
    pthread_mutex_unlock(&tracker->mtx);
    tracker->delivered_ms = hfi_now_ms();
    for (link = notes.next; link != &notes; link = link->next) {
        const struct note *note = HFI_CONTAINER(link, struct note, link);
        const struct hfi_scope scope = {
            .node = tracker->node, .name = note->name, .name_len = note->len};
        engine_events->touched(engine_events->arg, &scope);
        tracker->redis->key_changed(tracker->redis, tracker->node, note->name, note->len);
    }
    clear_notes(tracker, &notes);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_tracker, alarm)->task, HFI_EVENT_TIMER);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_tracker *tracker = HFI_CONTAINER(task, struct hfi_tracker, task);
    (void)events;
    if (tracker->stopped || tracker->redis->engine_events == NULL)
        return;
    pthread_mutex_lock(&tracker->mtx);
    bool all = tracker->all, some = tracker->notes_len > 0;
    pthread_mutex_unlock(&tracker->mtx);
    int64_t now_ms = hfi_now_ms(), at_ms = HFI_NEVER;
    if (all && now_ms >= tracker->all_ms + ALL_GAP_MS) {
        deliver_all(tracker);
        return;
    }
    if (all)
        at_ms = tracker->all_ms + ALL_GAP_MS;
    if (some && now_ms >= tracker->delivered_ms + GAP_MS)
        deliver(tracker);
    else if (some)
        at_ms = hfi_min_ms(at_ms, tracker->delivered_ms + GAP_MS);
    if (at_ms != HFI_NEVER)
        hfi_alarm_set(task->exec, &tracker->alarm, at_ms);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_tracker *tracker = HFI_CONTAINER(task, struct hfi_tracker, task);
    clear_notes(tracker, &tracker->notes);
    pthread_mutex_destroy(&tracker->mtx);
    hfi_free(tracker->redis->mem, tracker);
}

int hfi_tracker_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_tracker **ret) {
    struct hfi_tracker *tracker = hfi_zalloc(redis->mem, sizeof *tracker);
    if (tracker == NULL)
        return HF_ENOMEM;
    tracker->redis = redis;
    tracker->node = node;
    tracker->alarm.fire = alarm_fired;
    tracker->delivered_ms = -GAP_MS;
    tracker->all_ms = -ALL_GAP_MS;
    hfi_list_init(&tracker->notes);
    pthread_mutex_init(&tracker->mtx, NULL);
    hfi_task_init(&tracker->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = tracker;
    return HF_OK;
}

void hfi_tracker_stop(struct hfi_tracker *tracker) {
    if (tracker == NULL)
        return;
    tracker->stopped = true;
    atomic_store(&tracker->target, 0);
    hfi_alarm_clear(tracker->task.exec, &tracker->alarm);
}

void hfi_tracker_free(struct hfi_tracker *tracker) {
    if (tracker != NULL)
        hfi_task_unref(&tracker->task);
}
